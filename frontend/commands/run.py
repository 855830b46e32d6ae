"""``python -m kusari run``: an unmodified Chainer script, on Kusari."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from .. import compat, compat_numpy
from .common import CommandError, Formatter

DESCRIPTION = """\
Run a script that was written for Chainer, without changing it. Inside it `chainer`, `chainermn`,
`chainerx` and `onnx_chainer` (sub-modules included) are Kusari; everything else is as if Python ran the script itself.

  python -m kusari run train_mnist.py --epoch 20 --batchsize 100
  python -m kusari run --trace trace.json train_mnist.py

Names that NumPy has removed since (np.float, np.bool, np.Inf) are put back, and where the package six is not
installed, its most used names are there; docs/numpy.md tells more.

Options before the script are ours, those after it are the script's; a line says so where one of ours stands after a
script in whose text it does not occur. In a notebook, or in a conftest.py,
`import kusari.compat; kusari.compat.install()` does the same.
"""

# They tell the script's path, and the option, to the processes that it starts.
SCRIPT_VARIABLE = "KUSARI_SCRIPT"
ALIASES_VARIABLE = "KUSARI_NUMPY_ALIASES"


def add(subparsers: Any) -> None:
    """Declare the command's options."""
    parser = subparsers.add_parser(
        "run",
        help="run an unmodified Chainer script",
        description=DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("--trace", metavar="FILE", help="write a trace of functions and compiled code, to be opened "
                        "at https://ui.perfetto.dev or chrome://tracing")
    parser.add_argument("--profile", action="store_true", help="print which lines, functions and kernels took longest")
    add_script(parser)
    parser.set_defaults(main=main)


def add_script(parser: argparse.ArgumentParser) -> None:
    """The arguments ``script`` and ``arguments``, of every command that runs a script."""
    parser.add_argument("--no-numpy-aliases", action="store_true", help="leave numpy without the names it has removed")
    parser.add_argument("script", help="path of the Python file")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="handed to the script as its sys.argv[1:]")
    rest.required = False  # in the message about what is missing, too
    ours = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    parser.set_defaults(ours=sorted(ours - {"--help"}))


def tell_of_options_behind(options: argparse.Namespace) -> None:
    """Say on stderr which options of the command stand after the script, unless its text has them as its own."""
    source = source_of(options.script)
    given = {argument.partition("=")[0] for argument in options.arguments}
    for option in options.ours:
        if option in given and option.encode() not in source:
            print(f"python -m kusari {options.command}: {option} is handed to {options.script}: options of "
                  f"{options.command} come before the script", file=sys.stderr)


def main(options: argparse.Namespace) -> int:
    """Run the script and return its exit code; where it fails as one of several ranks, the others end with it."""
    tell_of_options_behind(options)
    code = _traced(options) if options.trace is not None or options.profile else execute(
        options.script, options.arguments, options.no_numpy_aliases)[0]
    if code:
        from ..distributed import global_except_hook  # also where the script has not come to its import

        global_except_hook.abort()
    return code


def _traced(options: argparse.Namespace) -> int:
    """Run the script under a profile, whose events are written; return its exit code."""
    from ..profiling.profile import profile

    source_of(options.script)
    path = None if options.trace is None else writable(options.trace)
    with profile.of_a_script() as found:
        code = execute(options.script, options.arguments, options.no_numpy_aliases)[0]
    if path is not None:
        path = _of_rank(path)
        found.save(path)
        print(f"trace: {path}, {len(found.events)} events; open it at https://ui.perfetto.dev", file=sys.stderr)
    if options.profile:
        print(found, file=sys.stderr)
    return code


def writable(file: str) -> Path:
    """The absolute path of a file that can be written; scripts may change the folder."""
    path = Path(file).absolute()
    is_there = path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None
    if not is_there:
        path.unlink(missing_ok=True)  # other ranks try the same
    return path


def _of_rank(path: Path) -> Path:
    """The file of this rank, ``trace-0.json``, if the script used MPI and there are several; else the path itself."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return path
    return path.with_stem(f"{path.stem}-{mpi.COMM_WORLD.rank}")


def source_of(script: str) -> bytes:
    """The script's text, or an error about the file."""
    path = Path(script)
    if path.is_dir():
        raise CommandError(f"expected the path of a Python file, {script} is a folder")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read the script {script}: {error.strerror}") from None


def execute(script: str, arguments: list[str], no_numpy_aliases: bool = False) -> tuple[int, ModuleType]:
    """Run a script as ``__main__`` with Chainer's names installed, and the names that NumPy has removed.

    Returns its exit code and its module, whose globals stay alive.  An exception is printed as Python would
    print it, without our frames, and is exit code 1.
    """
    source = source_of(script)  # before anything is changed
    module = ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__)
    module.__spec__ = ModuleSpec("kusari.commands._child", None)  # what multiprocessing's children import for it
    os.environ[SCRIPT_VARIABLE] = os.path.abspath(script)
    if no_numpy_aliases:
        os.environ[ALIASES_VARIABLE] = "0"
    compat.install()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.modules["__main__"] = module
    try:
        exec(compile(source, script, "exec"), module.__dict__)
    except SystemExit as error:
        return exit_code(error), module
    except Exception as error:
        traceback.print_exception(type(error), error, own_frames(error.__traceback__, script))
        if change := compat_numpy.explained(error):
            print(f"python -m kusari run: {change}", file=sys.stderr)
        return 1, module
    return 0, module


def exit_code(error: SystemExit) -> int:
    """Return the exit status for this exception; a message in it goes to stderr."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def own_frames(frames: TracebackType | None, script: str) -> TracebackType | None:
    """The traceback from the script's first frame on (empty for a syntax error)."""
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames
