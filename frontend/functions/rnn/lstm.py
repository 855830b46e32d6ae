"""Cells of long short-term memory: `lstm`, `slstm` and `tree_lstm`."""
from __future__ import annotations

from typing import Any

from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..array.join import concat, split_axis
from .gates import Cell, Layout


class LSTM(Cell):
    """One cell, one input with the gates a, i, f, o unit by unit."""

    layout = Layout(1, ("aifo",), True)

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("c", "x"))
        c_type, x_type = in_types
        type_check.expect(c_type.dtype.kind == "f", x_type.dtype == c_type.dtype, c_type.ndim >= 2, x_type.ndim >= 2,
                          c_type.ndim == x_type.ndim, x_type.shape[0] <= c_type.shape[0],
                          x_type.shape[1] == 4 * c_type.shape[1])
        for i in range(2, type_check.eval(c_type.ndim)):
            type_check.expect(x_type.shape[i] == c_type.shape[i])


class SLSTM(Cell):
    """Two cells, and the gates of each."""

    layout = Layout(2, ("aifo", "aifo"), True)

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("c_prev1", "c_prev2", "x1", "x2"))
        c1_type, c2_type, x1_type, x2_type = in_types
        type_check.expect(c1_type.dtype.kind == "f", c2_type.dtype == c1_type.dtype, x1_type.dtype == c1_type.dtype,
                          x2_type.dtype == c1_type.dtype, c1_type.ndim >= 2, c2_type.ndim >= 2,
                          c1_type.ndim == x1_type.ndim, c1_type.ndim == c2_type.ndim, c1_type.ndim == x2_type.ndim,
                          c1_type.shape[0] == x1_type.shape[0], c1_type.shape[0] == c2_type.shape[0],
                          c1_type.shape[0] == x2_type.shape[0], x1_type.shape[1] == 4 * c1_type.shape[1],
                          x2_type.shape[1] == 4 * c2_type.shape[1])
        for i in range(2, type_check.eval(c1_type.ndim)):
            type_check.expect(x1_type.shape[i] == c1_type.shape[i], c2_type.shape[i] == c1_type.shape[i],
                              x2_type.shape[i] == c1_type.shape[i])


class TreeLSTM(Cell):
    """The cells of all children, and one input with the gates a, i, o and an f per child, block after block."""

    def __init__(self, children: int) -> None:
        super().__init__()
        self.layout = Layout(children, ("aio" + "f" * children,), False)

    def check_type_forward(self, in_types: Any) -> None:
        type_check.expect(in_types.size() >= 2)
        cells = in_types[:-1]
        x_type, c_type = in_types[-1], in_types[0]
        width = 3 + len(cells)
        type_check.expect(c_type.dtype.kind == "f", x_type.ndim == 2, x_type.dtype == c_type.dtype,
                          x_type.shape[1] == width * c_type.shape[1])
        for other in cells:
            type_check.expect(other.ndim == 2, other.dtype == x_type.dtype, other.shape[0] == x_type.shape[0],
                              other.shape[1] == c_type.shape[1])


@for_arrays
def lstm(c_prev: Any, x: Any) -> tuple[Variable, Variable]:
    """Long short-term memory: the next cell and output of one step.

    ``c = tanh(a) sigmoid(i) + c_prev sigmoid(f)`` and ``h = tanh(c) sigmoid(o)``, after Hochreiter & Schmidhuber,
    `Long Short-Term Memory <https://www.bioinf.jku.at/publications/older/2604.pdf>`_ (1997), with forget gates.

    Args:
        c_prev: Cell of the step before, ``(batch, units, …)``, floating-point. Where it has more rows than ``x``, the
            others are handed through: sequences that have ended.
        x: ``(batch, 4 units, …)``, the gates ``a, i, f, o`` of the first unit, then those of the second …

    Returns:
        tuple of Variable: ``c``, of the shape of ``c_prev``, and ``h``, with as many rows as ``x``.

    Raises:
        InvalidType: Shapes or dtypes do not fit.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.lstm.html

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> c, h = F.lstm(np.ones((2, 1), "f"), np.zeros((2, 4), "f"))
    >>> c.array.tolist()
    [[0.5], [0.5]]
    """
    n = x.shape[0] if x.shape else 0
    if c_prev.ndim == len(x.shape) > 1 and c_prev.shape[0] > n:
        c_prev, rest = split_axis(as_variable(c_prev), [n], 0)
        c, h = LSTM().apply((c_prev, x))
        return concat([c, rest], 0), h
    c, h = LSTM().apply((c_prev, x))
    return c, h


def slstm(c_prev1: Any, c_prev2: Any, x1: Any, x2: Any) -> tuple[Variable, Variable]:
    """LSTM with two cells that come together, a step up a binary tree.

    ``c`` is the sum of what `lstm` makes of both, ``h = tanh(c) sigmoid(o1 + o2)``: Zhu et al., `Long Short-Term Memory
    Over Tree Structures <https://arxiv.org/abs/1503.04881>`_ (2015).

    Args:
        c_prev1: Cell of the first child, ``(batch, units, …)``, floating-point.
        c_prev2: Cell of the second child.
        x1: Gates of the first child, ``(batch, 4 units, …)``, as for `lstm`.
        x2: Gates of the second child.

    Returns:
        tuple of Variable: ``c`` and ``h``, of the shape of ``c_prev1``.

    Raises:
        InvalidType: Shapes or dtypes do not fit.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.slstm.html
    """
    c, h = SLSTM().apply((c_prev1, c_prev2, x1, x2))
    return c, h


def tree_lstm(*inputs: Any) -> tuple[Variable, Variable]:
    """LSTM with a forget gate for each of any number of children.

    ``c = tanh(a) sigmoid(i) + sum(c_k sigmoid(f_k))`` and ``h = tanh(c) sigmoid(o)``: Tai et al., `Improved Semantic
    Representations From Tree-Structured Long Short-Term Memory Networks <https://arxiv.org/abs/1503.00075>`_ (2015).

    Args:
        inputs: The cells of the children, each ``(batch, units)``, then ``x`` of shape ``(batch, (3 + children)
            units)``, with all ``a``, then ``i``, ``o``, and the ``f`` of the first child, of the second …

    Returns:
        tuple of Variable: ``c`` and ``h``, of shape ``(batch, units)``.

    Raises:
        InvalidType: There are fewer than two inputs, or shapes or dtypes do not fit.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.tree_lstm.html
    """
    c, h = TreeLSTM(len(inputs) - 1).apply(inputs)
    return c, h
