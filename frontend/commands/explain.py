"""``python -m kusari explain``: what was compiled of a script."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from ..explanation import SUMMARY, WORDS
from .common import CommandError, Formatter
from .run import add_script, execute, tell_of_options_behind

DESCRIPTION = """\
Run a script, then print one screen on the @static_graph functions that it called: what was compiled, what is run
define-by-run and why, memory, and the kernels that take longest. --what names more: the IR before and after the
passes, the memory plans and schedules, the generated kernels, the trees of models, or all of it.

  python -m kusari explain train_mnist.py --epoch 1
  python -m kusari explain --what kernels --output kernels.txt train_mnist.py --epoch 1

The script's own output goes to stderr. It runs as with `python -m kusari run`, and to its end: give it little to do.
"""


def add(subparsers: Any) -> None:
    """Declare the command's options."""
    parser = subparsers.add_parser(
        "explain",
        help="run a script and show what was compiled of it",
        description=DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("--what", choices=WORDS, default=SUMMARY, help="the part to show (summary)")
    parser.add_argument("--output", metavar="FILE", help="write there instead of stdout")
    add_script(parser)
    parser.set_defaults(main=main)


def main(options: argparse.Namespace) -> int:
    """Run the script, print the explanations, return the script's exit code."""
    from ..static import explain, keeping_objects, static_functions

    tell_of_options_behind(options)
    with keeping_objects():
        with contextlib.redirect_stdout(sys.stderr):
            code, script = execute(options.script, options.arguments, options.no_numpy_aliases)
        called = [function for function in static_functions() if function.signatures()]
        text = str(explain(called, options.what))
        del script  # it had to live until here: it holds the functions
    if not called:
        print(f"{options.script}: no function decorated with @static_graph was called", file=sys.stderr)
        return code or 1
    if options.output:
        write(options.output, text)
    else:
        print(text)
    return code


def write(path: str, text: str) -> None:
    """Write the report, or say why it cannot be written."""
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
