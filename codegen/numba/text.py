"""Lines of Python, indented."""
from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

_IMPORTS = """import math

import numpy as np
from numba import carray
from numpy import bool_, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64


"""


class Lines:
    """Collects the text of one function."""

    def __init__(self, head: str) -> None:
        self._rows = [head]
        self._depth = 1

    def __call__(self, text: str) -> None:
        """Add a line."""
        self._rows.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Lines inside a ``for`` or an ``if``."""
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        """The module: the imports of every kernel, and the function."""
        return _IMPORTS + "\n".join(self._rows) + "\n"


def affine(terms: list[tuple[str, int]]) -> str:
    """A sum of products as text: ``10 * i0 + i1``; ``0`` if it is empty."""
    parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in terms if factor]
    return " + ".join(parts) or "0"
