"""The link that multiplies by a weight."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...link import Chain
from ...parameter import Parameter
from .bias import Bias, _inputs

__all__ = ["Scale"]


class Scale(Chain):
    """Multiplies its input by a parameter, broadcast from ``axis`` on, and may add a bias.

    Args:
        axis: The axis of the input with which the weight's first one coincides.
        W_shape: Shape of the weight; None if it is given as a second input instead.
        bias_term: Whether to add a bias.
        bias_shape: Shape of the bias, where ``W_shape`` does not say it.

    Attributes:
        W: The weight, if ``W_shape`` is given; 1 at first.
        bias: The :class:`~kusari.links.Bias`, if there is one.

    Raises:
        ValueError: The bias's shape is not known.
    """

    def __init__(
        self,
        axis: int = 1,
        W_shape: tuple[int, ...] | None = None,
        bias_term: bool = False,
        bias_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.axis = axis
        self.has_W = W_shape is not None
        self.has_bias = bias_term
        with self.init_scope():
            if W_shape is not None:
                self.W = Parameter(1, W_shape)
                bias_shape = W_shape
            if bias_term:
                if bias_shape is None:
                    raise ValueError("bias_shape should be given if W is not learnt parameter and bias_term is True.")
                self.bias = Bias(axis, bias_shape)

    def forward(self, *xs: Any) -> Any:
        """Scale ``x`` by the weight, or by ``y`` if the link has none.

        Args:
            xs: ``x``; or ``x, y``.
        """
        if self.has_W:
            x, y = *_inputs(xs, 1, self), self.W
        else:
            x, y = _inputs(xs, 2, self)
        z = F.scale(x, y, self.axis)
        return self.bias(z) if self.has_bias else z
