"""Connectionist temporal classification."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kusari.ir import SCALAR

from ...elementwise import elementwise
from ...structured import Structured
from ...tape import composed
from ...utils import type_check
from ...variable import Variable, as_variable
from ..activation.softmax import log_softmax
from ..array.axes import transpose
from ..array.cast import cast
from ..array.indexing import GetItemAdvanced
from ..array.join import separate, stack
from ..array.rearrange import pad, where
from ..array.shape import reshape
from ..math.reduction import sum as sum_
from ..math.statistics import logsumexp
from .errors import check_reduce

IMPOSSIBLE = -1e10  # the logarithm of the probability of what cannot be


class CTCPath(Structured):
    """Labels to the states of a path, blanks between all of them: inputs ``t, x``, labels (B, L) and scores (B, C).

    The outputs, for 2 L + 1 states: the place of each state's score in the flattened scores, int32; 0 where a path may
    come from two states before, else `IMPOSSIBLE`; and the state before the first step, with two more in front.
    """

    def __init__(self, blank: int) -> None:
        super().__init__()
        self.blank = blank

    @property
    def label(self) -> str:
        return "ConnectionistTemporalClassification"

    def check_type_forward(self, in_types: Any) -> None:
        t_type, x_type = in_types[:2]
        type_check.expect(x_type.dtype.kind == "f", x_type.ndim == 2, t_type.dtype.kind == "i", t_type.ndim == 2,
                          t_type.shape[0] == x_type.shape[0])
        for other in in_types[2:]:
            type_check.expect(other.dtype == x_type.dtype, other.shape == x_type.shape)

    def lower(self, b: Any, t: Any, x: Any, *rest: Any) -> tuple[Any, ...]:
        n, length = t.shape
        dtype = x.tensor.dtype
        wide = b.reshape(b.cast(t, np.int32), (n, length, 1))
        column, blanks = (b.full(shape, self.blank, np.int32) for shape in ((n, 1), wide.shape))
        path = b.reshape(b.concat([blanks, wide], 2), (n, 2 * length))
        path = b.concat([path, column], 1)
        before = b.concat([column, column, b.slice(path, (0, 0), (n, 2 * length - 1), (1, 1))], 1)
        row = b.reshape(b.arange(n), (n, 1))
        places = b.map(lambda path, row: path + row * x.shape[1], path, row)
        state = b.reshape(b.arange(2 * length + 3), (1, 2 * length + 3))
        start = b.cast(b.map(lambda state: SCALAR.where(state == 2, 0.0, IMPOSSIBLE), state), dtype)
        start = b.broadcast_to(start, (n, 2 * length + 3))
        penalty = b.map(lambda path, before: SCALAR.where(path != before, 0.0, IMPOSSIBLE), path, before)
        return places, b.cast(penalty, dtype), start


class Running(Structured):
    """Lengths (B,) to whether each of ``n`` steps is within them, (n, B, 1)."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("input_length",))
        type_check.expect(in_types[0].dtype.kind == "i", in_types[0].ndim == 1)

    def lower(self, b: Any, length: Any) -> tuple[Any, ...]:
        steps = b.reshape(b.arange(self.n), (self.n, 1, 1))
        return b.call("less", steps, b.reshape(length, (1, length.shape[0], 1))),


class Ends(Structured):
    """Lengths of labels (B,) to 0 for the two states that paths end in, else `IMPOSSIBLE`: (B, states)."""

    def __init__(self, states: int, dtype: str) -> None:
        super().__init__()
        self.states = states
        self.dtype = dtype

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("label_length",))
        type_check.expect(in_types[0].dtype.kind == "i", in_types[0].ndim == 1)

    def lower(self, b: Any, length: Any) -> tuple[Any, ...]:
        def penalty(state: Any, length: Any) -> Any:
            last = length * 2
            return SCALAR.where(SCALAR.logical_or(state == last, state == last - 1), 0.0, IMPOSSIBLE)
        state = b.reshape(b.arange(self.states), (1, self.states))
        return b.cast(b.map(penalty, state, b.reshape(length, (length.shape[0], 1))), self.dtype),


@elementwise("CTCStep")
def ctc_step(xp: Any, stay: Any, one: Any, two: Any, penalty: Any, score: Any) -> Any:
    """The logarithm of the probability of all paths that come to a state: from it, from one and from two before."""
    two = two + penalty
    most = xp.maximum(xp.maximum(stay, one), two)
    return most + xp.log(xp.exp(stay - most) + xp.exp(one - most) + xp.exp(two - most)) + score


@ctc_step.gradient
def _(xp: Any, gy: Any, y: Any, stay: Any, one: Any, two: Any, penalty: Any, score: Any) -> Any:
    total = y - score
    return (gy * xp.exp(stay - total), gy * xp.exp(one - total), gy * xp.exp(two + penalty - total), None, gy)


@composed()
def connectionist_temporal_classification(x: Sequence[Any], t: Any, blank_symbol: int, input_length: Any = None,
                                          label_length: Any = None, reduce: str = "mean") -> Variable:
    """Minus the logarithm of the probability that steps say the labels, with blanks and repetitions anywhere.

    Args:
        x: One array of scores (B, C) per step, before softmax.
        t: Labels (B, L), int32; what comes after the label's length is not read.
        blank_symbol: The class that stands for no label.
        input_length: Number of steps of each sequence, int32 (B,); None: all.
        label_length: Number of labels of each sequence, int32 (B,); None: L.
        reduce: ``"mean"`` over the batch, or ``"no"``.

    Returns:
        Variable: Without dimensions, or (B,). It is about 1e10 where there are fewer steps than the labels need.

    Raises:
        TypeError: ``x`` is no list or tuple, or the blank is no number of at least 0.
        ValueError: There are no steps, the blank is no class, or ``reduce`` is something else.
        InvalidType: The shapes or dtypes do not fit.

    See: Graves et al., `Connectionist Temporal Classification
    <https://www.cs.toronto.edu/~graves/icml_2006.pdf>`_, 2006.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> steps = [np.zeros((1, 2), "f")] * 2  # of four equally probable paths three say 1: 01, 10, 11
    >>> F.connectionist_temporal_classification(steps, np.array([[1]], "i"), 0).array.round(4)
    np.float32(0.2877)
    """
    if not isinstance(x, (list, tuple)):
        raise TypeError(f"x must be a list of scores, one array per step, got {type(x).__name__}")
    if not isinstance(blank_symbol, (int, np.integer)) or blank_symbol < 0:
        raise TypeError(f"blank_symbol must be an integer of at least 0, got {blank_symbol!r}")
    check_reduce(reduce)
    if not x:
        raise ValueError("x must have one array of scores per step, got none")
    if x[0].ndim == 2 and blank_symbol >= x[0].shape[1]:
        raise ValueError(f"blank_symbol must be one of {x[0].shape[1]} classes, got {blank_symbol}")
    xs = [as_variable(v) for v in x]
    dtype = xs[0].dtype
    if dtype == np.float16:
        xs = [cast(v, np.float32) for v in xs]
    places, penalty, state = CTCPath(int(blank_symbol)).apply((t, *xs))
    steps, (n, classes), states = len(xs), xs[0].shape, penalty.shape[1]
    scores = log_softmax(stack(xs, 0), axis=2)
    scores = reshape(transpose(scores, (1, 2, 0)), (n * classes, steps))
    scores = GetItemAdvanced(("@",)).apply((scores, places))[0]
    running = None if input_length is None else separate(Running(steps).apply((input_length,))[0], 0)
    for i, score in enumerate(separate(scores, 2)):
        stay = state[:, 2:]
        new = ctc_step(stay, state[:, 1:-1], state[:, :-2], penalty, score)
        if running is not None:
            new = where(running[i], new, stay)
        state = pad(new, ((0, 0), (2, 0)), "constant", constant_values=IMPOSSIBLE)
    state = state[:, 2:]
    if label_length is None:
        state = state[:, -2:]
    else:
        state = state + Ends(states, state.dtype.name).apply((label_length,))[0]
    loss = -cast(logsumexp(state, axis=1), dtype)
    return loss if reduce == "no" else sum_(loss) / n
