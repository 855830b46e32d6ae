"""Group normalization."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...dtypes import get_dtype
from ...initializers import _with_dtype
from ...link import Link
from ...parameter import Parameter

__all__ = ["GroupNormalization"]


class GroupNormalization(Link):
    """Normalizes every group of channels of every sample, then scales and shifts each channel.

    Wu & He, `Group Normalization <https://arxiv.org/abs/1803.08494>`_ (2018).

    Args:
        groups: Number of groups; divides the number of channels.
        size: Number of channels; None to see it from the first input.
        eps: Added to the variance.
        initial_gamma: Initializer of the scale; by default 1.
        initial_beta: Initializer of the shift; by default 0.

    Attributes:
        groups: Number of groups.
        gamma: Scale, of shape (size,); float32 under ``mixed16``, as ``beta``.
        beta: Shift, of shape (size,).
        eps: Added to the variance.
    """

    def __init__(
        self, groups: int, size: int | None = None, eps: float = 1e-5, initial_gamma: Any = None,
        initial_beta: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.groups, self.eps = groups, eps
        dtype = get_dtype(None, map_mixed16="float32")
        with self.init_scope():
            self.gamma = Parameter(_with_dtype(1 if initial_gamma is None else initial_gamma, dtype))
            self.beta = Parameter(_with_dtype(0 if initial_beta is None else initial_beta, dtype))
        if size is not None:
            self._initialize_params(size)

    def _initialize_params(self, size: int) -> None:
        self.gamma.initialize(size)
        self.beta.initialize(size)

    def forward(self, x: Any) -> Any:
        """Normalize ``x`` of shape (N, size, …)."""
        if self.gamma._array is None:
            if x.ndim < 2:
                raise ValueError(f"input dimension must be at least 2, including batch size and channels; got {x.ndim}")
            self._initialize_params(x.shape[1])
        return F.group_normalization(x, self.groups, self.gamma, self.beta, self.eps)
