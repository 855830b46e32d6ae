"""Swish with learned steepness."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter

__all__ = ["Swish"]


class Swish(Link):
    """``x * sigmoid(beta * x)``.

    Ramachandran et al., `Searching for Activation Functions <https://arxiv.org/abs/1710.05941>`_ (2017).

    Args:
        beta_shape: Shape of ``beta``, that of one sample's first axes; None to take the whole shape of the first
            input's samples.
        beta_init: Initializer of ``beta``.

    Attributes:
        beta: The steepness.
    """

    def __init__(self, beta_shape: tuple[int, ...] | None, beta_init: Any = 1.0) -> None:
        super().__init__()
        with self.init_scope():
            self.beta = Parameter(_get_initializer(beta_init))
        if beta_shape is not None:
            self.beta.initialize(beta_shape)

    def forward(self, x: Any) -> Any:
        """Apply the function to ``x``, whose axis 0 is the batch."""
        if self.beta._array is None:
            self.beta.initialize(x.shape[1:])
        return F.swish(x, self.beta)
