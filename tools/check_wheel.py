"""Build the wheel, install it in a clean environment outside the tree, import every public module.

What works from the checkout may still be missing from the wheel: this is the check for it.  The
package and its required dependencies only: a module that needs an extra must import without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import check_lower_bounds

ROOT = Path(__file__).resolve().parent.parent

IMPORT_ALL = """
import importlib, pathlib, sys, warnings
import kusari
warnings.simplefilter("error")
root, where = pathlib.Path(sys.argv[1]), pathlib.Path(kusari.__file__)
assert root not in where.parents, f"kusari came from the checkout: {where}"
for name in sys.argv[2:]:
    importlib.import_module(name)
print(f"imported {len(sys.argv) - 2} modules of kusari {kusari.__version__} from the wheel")
"""


def modules(wheel: Path) -> list[str]:
    """The public modules a wheel carries: no part of the name starts with an underscore."""
    with zipfile.ZipFile(wheel) as archive:
        files = [Path(name) for name in archive.namelist() if name.startswith("kusari/") and name.endswith(".py")]
    names = [".".join((file.parent if file.name == "__init__.py" else file.with_suffix("")).parts) for file in files]
    return sorted(name for name in names if not any(part.startswith("_") for part in name.split(".")))


def missing(wheel: Path) -> list[str]:
    """The Python files of the layers that are not in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
    lost: list[str] = []
    for layer in ("frontend", "ir", "passes", "codegen", "runtime"):
        package = "kusari" if layer == "frontend" else f"kusari/{layer}"
        for file in sorted((ROOT / layer).rglob("*.py")):
            if f"{package}/{file.relative_to(ROOT / layer).as_posix()}" not in carried:
                lost.append(str(file.relative_to(ROOT)))
    return lost


def main() -> int:
    """Command line entry; any failing step ends the process with its exit code."""
    with tempfile.TemporaryDirectory(prefix="kusari-wheel-") as folder:
        dist, env = Path(folder) / "dist", Path(folder) / "env"
        build = [sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)]
        done = subprocess.run(build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout, file=sys.stderr)
            return done.returncode
        (wheel,) = dist.glob("*.whl")
        if lost := missing(wheel):
            print(f"missing from the wheel: {', '.join(lost)}", file=sys.stderr)
            return 1
        venv.create(env, with_pip=True)
        python = env / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
        for command in (install, [str(python), "-I", "-c", IMPORT_ALL, str(ROOT), *modules(wheel)]):
            done = subprocess.run(command, cwd=folder)
            if done.returncode:
                return done.returncode
        done = subprocess.run([str(python), "-I", "-m", "kusari", "--help"], cwd=folder, stdout=subprocess.DEVNULL)
        return done.returncode or check_lower_bounds.check(wheel)


if __name__ == "__main__":
    sys.exit(main())
