"""The list of packages in pyproject.toml, as the disk has it.

``python tools/packages.py`` prints the list; ``--write`` puts it into pyproject.toml;
``--check`` exits with 1 when the two differ.  A package that is missing from the list is missing
from the wheel only, where nobody looks.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {"frontend": "kusari", "ir": "kusari.ir", "passes": "kusari.passes", "codegen": "kusari.codegen"}
LAYERS["runtime"] = "kusari.runtime"
FIELD = re.compile(r"^packages = \[\n(?P<lines>.*?)^\]\n", re.MULTILINE | re.DOTALL)


def on_disk(root: Path = ROOT) -> list[str]:
    """Every folder with an ``__init__.py`` below the layers, by import name."""
    names: list[str] = []
    for folder, name in LAYERS.items():
        for init in (root / folder).rglob("__init__.py"):
            names.append(".".join((name, *init.parent.relative_to(root / folder).parts)))
    return sorted(names)


def in_pyproject(root: Path = ROOT) -> list[str]:
    """The packages that pyproject.toml lists (read by pattern: tomllib is missing from Python 3.10)."""
    match = FIELD.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    if match is None:
        raise SystemExit("pyproject.toml has no 'packages = [' list with one name per line")
    return re.findall(r'"([^"]+)"', match["lines"])


def write(root: Path = ROOT) -> None:
    """Replace the list in pyproject.toml by what is on disk."""
    file = root / "pyproject.toml"
    lines = "".join(f'    "{name}",\n' for name in on_disk(root))
    file.write_text(FIELD.sub(f"packages = [\n{lines}]\n", file.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="update pyproject.toml")
    parser.add_argument("--check", action="store_true", help="exit with 1 when pyproject.toml differs")
    options = parser.parse_args()
    if options.write:
        write()
    disk, listed = on_disk(), in_pyproject()
    print("\n".join(disk))
    if options.check and disk != listed:
        print(f"missing from pyproject.toml: {sorted(set(disk) - set(listed))}", file=sys.stderr)
        print(f"not on disk: {sorted(set(listed) - set(disk))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
