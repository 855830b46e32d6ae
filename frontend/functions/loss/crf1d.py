"""Linear-chain conditional random fields."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import backend
from ...broadcasting import broadcast_to
from ...tape import composed
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.indexing import get_item, select_item
from ..array.join import concat, split_axis
from ..array.shape import reshape
from ..math.extrema import argmax
from ..math.extrema import max as max_
from ..math.reduction import sum as sum_
from ..math.statistics import logsumexp
from .errors import check_reduce


def _checked(cost: Any, xs: Sequence[Any], name: str) -> tuple[Variable, list[Variable]]:
    cost, xs = as_variable(cost), [as_variable(x) for x in xs]
    where = f"\nInvalid operation is performed in: {name} (Forward)"
    if not xs:
        raise ValueError(f"{name} needs the scores of at least one step")
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise type_check.InvalidType("cost: a square matrix", f"{cost.shape}", where)
    for before, x in zip([xs[0], *xs], xs, strict=False):
        if x.ndim != 2 or x.shape[1] != cost.shape[0] or len(x) > len(before):
            raise type_check.InvalidType(f"xs: scores of {cost.shape[0]} labels, of no more sequences at each step",
                                         f"{before.shape}, then {x.shape}", where)
    return cost, xs


def _between(alpha: Variable, cost: Variable) -> Variable:
    """The sum of the score of each label and the cost of a transition to each other: (B, from, to)."""
    n, k = alpha.shape
    return broadcast_to(reshape(alpha, (n, k, 1)), (n, k, k)) + broadcast_to(cost, (n, k, k))


def _kept(alpha: Variable, n: int, done: list[Variable]) -> Variable:
    """Set sequences aside that have come to their end."""
    if len(alpha) > n:
        alpha, rest = split_axis(alpha, [n], 0)
        done.append(rest)
    return alpha


def _all(alpha: Variable, done: list[Variable]) -> Variable:
    return concat([alpha, *reversed(done)], 0) if done else alpha


@composed()
def crf1d(cost: Any, xs: Sequence[Any], ys: Sequence[Any], reduce: str = "mean") -> Variable:
    """Minus the logarithm of the probability of labels under a chain whose neighbours depend on each other.

    Args:
        cost: How well each label goes before each other one, (K, K).
        xs: Scores (B, K) of each step; sequences are in the order of falling length, so that B falls.
        ys: Labels (B,) of each step, int32.
        reduce: ``"mean"`` over the sequences, or ``"no"``.

    Returns:
        Variable: Without dimensions, or (B,) of the first step.

    Raises:
        ValueError: There are no steps, as many labels as scores are not given, or ``reduce`` is something else.
        InvalidType: The shapes or dtypes do not fit.

    See: Lafferty et al., `Conditional Random Fields
    <https://repository.upenn.edu/handle/20.500.14332/6188>`_, 2001; Lample et al., `Neural Architectures for Named
    Entity Recognition <https://arxiv.org/abs/1603.01360>`_, 2016.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> steps, labels = [np.zeros((1, 2), "f")] * 2, [np.array([0], "i")] * 2  # one of four equal pairs
    >>> F.crf1d(np.zeros((2, 2), "f"), steps, labels).array.round(4)
    np.float32(1.3863)
    """
    check_reduce(reduce)
    cost, steps = _checked(cost, xs, "CRF1d")
    labels = [as_variable(y) for y in ys]
    if len(labels) != len(steps):
        raise ValueError(f"crf1d needs labels for each of {len(steps)} steps, got {len(labels)}")
    done: list[Variable] = []
    alpha = steps[0]
    for x in steps[1:]:
        alpha = logsumexp(_between(_kept(alpha, len(x), done), cost), axis=1) + x
    total = logsumexp(_all(alpha, done), axis=1)
    done = []
    score = select_item(steps[0], labels[0])
    for before, y, x in zip(labels, labels[1:], steps[1:], strict=False):
        n = len(x)
        score = _kept(score, n, done) + select_item(x, y) + get_item(cost, (before[:n], y))
    loss = total - _all(score, done)
    return loss if reduce == "no" else sum_(loss) / loss.size


def argmax_crf1d(cost: Any, xs: Sequence[Any]) -> tuple[Variable, list[Any]]:
    """The labels that are most probable under a chain whose neighbours depend on each other.

    Args:
        cost: How well each label goes before each other one, (K, K).
        xs: Scores (B, K) of each step; sequences are in the order of falling length, so that B falls.

    Returns:
        tuple: The best score of each sequence, (B,) of the first step, a Variable; and the labels (B,) of each step, a
        list of int32 arrays.

    Raises:
        ValueError: There are no steps.
        InvalidType: The shapes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> score, labels = F.argmax_crf1d(np.array([[0, 5], [0, 0]], "f"), [np.zeros((1, 2), "f")] * 2)
    >>> score.array, labels
    (array([5.], dtype=float32), [array([0], dtype=int32), array([1], dtype=int32)])
    """
    cost, steps = _checked(cost, xs, "ArgmaxCRF1d")
    done: list[Variable] = []
    alpha = steps[0]
    back: list[Any] = []
    for x in steps[1:]:
        pairs = _between(_kept(alpha, len(x), done), cost)
        back.append(argmax(pairs, axis=1).array)
        alpha = max_(pairs, axis=1) + x
    every = _all(alpha, done)
    best = argmax(every, axis=1).array
    xp = backend.get_array_module(best)
    path: list[Any] = []
    for before, n in zip(reversed(back), reversed([len(x) for x in steps[1:]]), strict=True):
        path.append(best[:n].copy())
        best = xp.concatenate([before[xp.arange(n), best[:n]], best[n:]])
    return max_(every, axis=1), [best, *reversed(path)]
