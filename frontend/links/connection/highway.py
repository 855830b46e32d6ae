"""The highway layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functions as F
from ...link import Chain
from .linear import Linear

__all__ = ["Highway"]


class Highway(Chain):
    """A layer behind a gate that lets the input through: ``t * activate(plain(x)) + (1 - t) * x``.

    Srivastava et al., `Highway Networks <https://arxiv.org/abs/1505.00387>`_ (2015).

    Args:
        in_out_size: Number of inputs and outputs.
        nobias: Whether to leave out the biases.
        activate: Activation of the layer.
        init_Wh: Initializer of the layer's weights.
        init_Wt: Initializer of the gate's weights.
        init_bh: Initializer of the layer's bias; by default zero.
        init_bt: Initializer of the gate's bias: below zero, to let the input through at first.

    Attributes:
        plain: The layer.
        transform: The gate; ``t`` is its sigmoid.
    """

    def __init__(
        self,
        in_out_size: int,
        nobias: bool = False,
        activate: Callable[[Any], Any] = F.relu,
        init_Wh: Any = None,
        init_Wt: Any = None,
        init_bh: Any = None,
        init_bt: Any = -1,
    ) -> None:
        super().__init__()
        self.activate = activate
        with self.init_scope():
            self.plain = Linear(in_out_size, in_out_size, nobias, init_Wh, init_bh)
            self.transform = Linear(in_out_size, in_out_size, nobias, init_Wt, init_bt)

    def forward(self, x: Any) -> Any:
        """Apply the layer to ``x`` of shape (batch, in_out_size)."""
        through = F.sigmoid(self.transform(x))
        return self.activate(self.plain(x)) * through + x * (1 - through)
