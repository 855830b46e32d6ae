"""Rectified linear units with learned slopes."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter

__all__ = ["PReLU"]


class PReLU(Link):
    """``x`` where it is positive, else ``W * x``.

    He et al., `Delving Deep into Rectifiers <https://arxiv.org/abs/1502.01852>`_ (2015).

    Args:
        shape: Shape of the slopes, that of one sample's first axes; ``()``: one slope for all.
        init: Initializer of the slopes.

    Attributes:
        W: The slopes.

    >>> L.PReLU()(np.array([[-1, 2]], "float32")).array
    array([[-0.25,  2.  ]], dtype=float32)
    """

    def __init__(self, shape: tuple[int, ...] = (), init: Any = 0.25) -> None:
        super().__init__()
        with self.init_scope():
            self.W = Parameter(_get_initializer(init), shape)

    def forward(self, x: Any) -> Any:
        """Apply the function to ``x``, whose axis 0 is the batch."""
        return F.prelu(x, self.W)
