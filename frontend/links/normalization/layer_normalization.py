"""Layer normalization."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter

__all__ = ["LayerNormalization"]


class LayerNormalization(Link):
    """Normalizes each row to zero mean and unit variance, then scales and shifts the columns.

    Ba et al., `Layer Normalization <https://arxiv.org/abs/1607.06450>`_ (2016).

    Args:
        size: Number of columns; None to see it from the first input.
        eps: Added to the variance.
        initial_gamma: Initializer of the scale; by default 1.
        initial_beta: Initializer of the shift; by default 0.

    Attributes:
        gamma: Scale, of shape (size,).
        beta: Shift, of shape (size,).
        eps: Added to the variance.
    """

    def __init__(
        self, size: int | None = None, eps: float = 1e-6, initial_gamma: Any = None, initial_beta: Any = None
    ) -> None:
        super().__init__()
        self.eps = eps
        with self.init_scope():
            self.gamma = Parameter(_get_initializer(1 if initial_gamma is None else initial_gamma))
            self.beta = Parameter(_get_initializer(0 if initial_beta is None else initial_beta))
        if size is not None:
            self._initialize_params(size)

    def _initialize_params(self, size: int) -> None:
        self.gamma.initialize(size)
        self.beta.initialize(size)

    def forward(self, x: Any) -> Any:
        """Normalize ``x`` of shape (rows, size)."""
        if self.gamma._array is None:
            self._initialize_params(prod(x.shape[1:]))
        return F.layer_normalization(x, self.gamma, self.beta, self.eps)
