"""The package, where Python runs in the folder above a clone that is called kusari: it would be an empty one there."""
from pathlib import Path

if __name__ == "kusari":
    __path__ = [str(Path(__file__).parent / "frontend"), str(Path(__file__).parent)]
    __file__ = str(Path(__file__).parent / "frontend" / "__init__.py")
    exec(compile(Path(__file__).read_text(encoding="utf-8"), __file__, "exec"))
