"""Parts of all commands: their error, and imports that need an extra."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from typing import Any

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package is not called like its distribution


class CommandError(Exception):
    """Wrong use of a command; printed as one line, without a traceback."""


class Formatter(argparse.HelpFormatter):
    """Fills paragraphs to the terminal's width, as options are; indented ones stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(part if "\n " in f"\n{part}" else textwrap.fill(part, width, break_on_hyphens=False)
                           for part in parts)


def require(module: str, extra: str) -> Any:
    """Import a module that comes with an extra of Kusari's, or say which extra is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        name = DISTRIBUTIONS.get(root, root)
        raise CommandError(f'needs {name}, of the extra "{extra}": pip install "kusari[{extra}]"') from None
