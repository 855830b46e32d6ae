"""The link that adds a bias."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...errors import ArgumentError
from ...link import Link
from ...parameter import Parameter

__all__ = ["Bias"]


class Bias(Link):
    """Adds a parameter to its input, broadcast from ``axis`` on.

    Args:
        axis: The axis of the input with which the bias's first one coincides.
        shape: Shape of the bias; None if it is given as a second input instead.

    Attributes:
        b: The bias, if ``shape`` is given; 0 at first.
    """

    def __init__(self, axis: int = 1, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.axis = axis
        self.has_b = shape is not None
        if shape is not None:
            with self.init_scope():
                self.b = Parameter(0, shape)

    def forward(self, *xs: Any) -> Any:
        """Add the bias to ``x``, or ``y`` to ``x`` if the link has none.

        Args:
            xs: ``x``; or ``x, y``.
        """
        if self.has_b:
            x, y = *_inputs(xs, 1, self), self.b
        else:
            x, y = _inputs(xs, 2, self)
        return F.bias(x, y, self.axis)


def _inputs(xs: tuple[Any, ...], expected: int, link: Link) -> tuple[Any, ...]:
    if len(xs) != expected:
        why = "it has its own parameter" if expected == 1 else "it was made without a shape"
        raise ArgumentError(f"{type(link).__name__} expects {expected} input(s), since {why}. Actual: {len(xs)}")
    return xs
