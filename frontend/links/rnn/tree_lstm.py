"""LSTM units over trees."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...link import Chain
from ...variable import Variable
from ..connection.linear import Linear
from .state import zeros

__all__ = ["ChildSumTreeLSTM", "NaryTreeLSTM"]


def _taken_apart(link: Any, inputs: tuple[Any, ...]) -> tuple[list[Any], list[Any], Any]:
    """Cells and outputs of the children and the input; None stands for zeros."""
    *states, x = inputs
    known = next((v for v in (x, *states) if v is not None), None)
    if known is None:
        raise ValueError(f"{type(link).__name__}: all of cells, outputs and input are None; at least one must be given")
    n, dtype = known.shape[0], known.dtype
    if x is None:
        x = zeros(link, (n, link.in_size), dtype)
    half = len(states) // 2
    full = [Variable(zeros(link, (n, link.state_size), dtype)) if s is None else s for s in states]
    return full[:half], full[half:], x


class ChildSumTreeLSTM(Chain):
    """An LSTM unit that sums the outputs of any number of children, with a forget gate for each.

    Tai et al., `Improved Semantic Representations From Tree-Structured Long Short-Term Memory Networks
    <https://arxiv.org/abs/1503.00075>`_ (2015).

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.

    Attributes:
        W_x (Linear): The layer of the input, with bias.
        W_h_aio (Linear): The layer of the summed outputs, for all gates but the forget gates.
        W_h_f (Linear): The layer of each child's output, for its forget gate.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.ChildSumTreeLSTM.html
    """

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.in_size = in_size
        self.state_size = out_size
        with self.init_scope():
            self.W_x = Linear(in_size, 4 * out_size)
            self.W_h_aio = Linear(out_size, 3 * out_size, nobias=True)
            self.W_h_f = Linear(out_size, out_size, nobias=True)

    def forward(self, *cshsx: Any) -> tuple[Any, Any]:
        """Go one step up.

        Args:
            cshsx: The cells of all children, their outputs, the input. What is None is taken for zeros.

        Returns:
            Cell and output.

        Raises:
            ValueError: There are not as many cells as outputs, or all is None.
        """
        if len(cshsx) % 2 == 0:
            raise ValueError(f"ChildSumTreeLSTM expects as many cells as outputs and then the input, got {len(cshsx)}")
        cs, hs, x = _taken_apart(self, cshsx)
        aio, f = F.split_axis(self.W_x(x), [3 * self.state_size], 1)
        if not cs:
            a, i, o = F.split_axis(aio, 3, 1)
            c = F.tanh(a) * F.sigmoid(i)
            return c, F.sigmoid(o) * F.tanh(c)
        total = hs[0]
        for h in hs[1:]:
            total = total + h
        aio = aio + self.W_h_aio(total)
        return F.tree_lstm(*cs, F.concat([aio, *[f + self.W_h_f(h) for h in hs]], 1))


class NaryTreeLSTM(Chain):
    """An LSTM unit with a fixed number of children, each with weights of its own.

    Tai et al., `Improved Semantic Representations From Tree-Structured Long Short-Term Memory Networks
    <https://arxiv.org/abs/1503.00075>`_ (2015).

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.
        n_ary: Number of children.

    Attributes:
        W_x (Linear): The layer of the input, with bias.
        W_h1 … (Linear): The layer of each child's output.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NaryTreeLSTM.html
    """

    def __init__(self, in_size: int, out_size: int, n_ary: int = 2) -> None:
        super().__init__()
        if n_ary < 1:
            raise ValueError(f"NaryTreeLSTM: n_ary must be at least 1, got {n_ary}")
        self.in_size = in_size
        self.state_size = out_size
        self.n_ary = n_ary
        with self.init_scope():
            self.W_x = Linear(in_size, (3 + n_ary) * out_size)
            for i in range(1, n_ary + 1):
                setattr(self, f"W_h{i}", Linear(out_size, (3 + n_ary) * out_size, nobias=True))

    def forward(self, *cshsx: Any) -> tuple[Any, Any]:
        """Go one step up.

        Args:
            cshsx: The cells of all children, their outputs, the input. What is None is taken for zeros.

        Returns:
            Cell and output.

        Raises:
            ValueError: The number of inputs is not ``2 * n_ary + 1``, or all is None.
        """
        if len(cshsx) != 2 * self.n_ary + 1:
            raise ValueError(f"NaryTreeLSTM expects {self.n_ary} cells, as many outputs, and the input, "
                             f"got {len(cshsx)} inputs")
        given = cshsx[self.n_ary:-1]
        cs, hs, x = _taken_apart(self, cshsx)
        gates = self.W_x(x)
        for i, h in enumerate(hs, 1):
            if given[i - 1] is not None:
                gates = gates + self[f"W_h{i}"](h)
        return F.tree_lstm(*cs, gates)
