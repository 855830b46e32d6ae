"""The command line: ``python -m kusari COMMAND``.

One module per command, each with ``add(subparsers)`` for its options and ``main(options)`` for the job, which
returns the exit code.  Wrong use and missing extras end in one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from . import bench, demo, doctor, explain, export, run
from .common import CommandError, Formatter

__all__ = ["main", "parser"]

DESCRIPTION = """\
Kusari: define-by-run neural networks with Chainer's API, and a compiler behind @static_graph.

  python -m kusari demo                  see what it does, on handwritten digits (a minute)
  python -m kusari run train.py -e 20    run a script that was written for Chainer
  python -m kusari explain train.py      ... and show what was compiled of it
  python -m kusari export models:Net --input 8,784 --out net.onnx
  python -m kusari bench mnist_mlp       eager against compiled, on this machine
  python -m kusari doctor                what was found here, and what is missing
"""

EPILOG = """\
`python -m kusari COMMAND --help` tells more about each. Exit codes: 0 done, 1 the job or the script failed,
2 wrong use or a missing extra. docs/debugging.md lists the environment variables.
"""

COMMANDS: tuple[ModuleType, ...] = (demo, run, explain, export, bench, doctor)


class Parser(argparse.ArgumentParser):
    """argparse, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="python -m kusari",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=Formatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = top.add_subparsers(metavar="COMMAND", dest="command", parser_class=Parser)
    for command in COMMANDS:
        command.add(subparsers)
    for each in subparsers.choices.values():
        each.set_defaults(error=each.error)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line given (``sys.argv`` by default) and return the exit code."""
    top = parser()
    options, unknown = top.parse_known_args(arguments)
    if unknown:
        getattr(options, "error", top.error)(f"unrecognized arguments: {' '.join(unknown)}")
    if options.version:
        from .. import __version__

        print(f"kusari {__version__}")
        return 0
    if options.command is None:
        top.error("expected a command: demo, run, explain, export, bench or doctor")
    try:
        return options.main(options)
    except CommandError as error:
        print(f"python -m kusari {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough: head, less
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
