"""Losses over huge vocabularies that look at a few words only: negative sampling and BlackOut."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import backend
from ...broadcasting import broadcast_to
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable, as_variable
from ..activation.sigmoids import softplus
from ..array.cast import cast
from ..array.join import concat
from ..array.rearrange import where
from ..array.shape import expand_dims, reshape
from ..connection.embed_id import embed_id
from ..math.exponential import exp, log1p
from ..math.reduction import sum as sum_
from ..math.statistics import logsumexp, mean
from ..noise.dropout import reject


class DrawSamples(FunctionNode):
    """The draws of a sampler for every label, (N, count), and whether the label counts, (N,); no gradient.

    It has no facets, so a replay draws anew: the sampler may be anything.
    """

    def __init__(self, sampler: Callable[[tuple[int, ...]], Any], count: int) -> None:
        super().__init__()
        self.sampler = sampler
        self.count = count

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("t",))
        t_type, = in_types
        type_check.expect(t_type.dtype.kind == "i", t_type.ndim == 1)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        t, = inputs
        xp = backend.get_array_module(t)
        samples = xp.asarray(self.sampler((t.shape[0], self.count)))
        return samples.astype(np.int32), t >= 0

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None for _ in indexes)


def _check(name: str, x: Variable, t: Variable, W: Variable) -> None:
    place = f"\nInvalid operation is performed in: {name} (Forward)"
    if t.dtype.kind != "i" or t.ndim != 1:
        raise type_check.InvalidType("t: integers of shape (N,)", f"{t.dtype}{t.shape}", place)
    if x.dtype.kind != "f" or x.ndim != 2 or W.ndim != 2 or x.shape[1] != W.shape[1] or x.shape[0] != t.shape[0]:
        raise type_check.InvalidType("x: (N, D), t: (N,), W: (words, D)", f"{x.dtype}{x.shape}, {t.shape}, {W.shape}",
                                     place)


def _beside(t: Variable, samples: Variable) -> Variable:
    """Return the labels with their samples, (N, 1 + samples)."""
    return concat([reshape(cast(t, samples.dtype), (len(t), 1)), samples], axis=1)


def _scores(x: Variable, W: Variable, rows: Variable) -> Variable:
    """Return the products of every ``x`` with its rows of ``W``, (N, rows)."""
    picked = embed_id(rows, W, ignore_label=-1)
    return sum_(picked * broadcast_to(expand_dims(x, 1), picked.shape), axis=2)


def negative_sampling(x: Any, t: Any, W: Any, sampler: Callable[[tuple[int, ...]], Any], sample_size: int,
                      reduce: str = "sum", **kwargs: Any) -> Any:
    """Logistic loss of the labelled word against sampled ones.

    ``softplus(-x W[t]) + sum of softplus(x W[s])`` over the samples ``s``.

    Args:
        x: Vectors, (N, D).
        t: Labels, integers of shape (N,); -1 is left out.
        W: One vector for every word, (words, D).
        sampler: ``sampler(shape)`` returns an integer array of words, as `kusari.utils.WalkerAlias.sample` does.
        sample_size: Number of samples for each label.
        reduce: ``"sum"``, or ``"no"`` for one loss per label.
        return_samples (bool): Keyword only. Also return the labels with their samples, (N, 1 + sample_size).

    Raises:
        ValueError: ``reduce`` is neither of the two.
        InvalidType: The shapes or dtypes do not fit.

    See: Mikolov et al., `Distributed Representations of Words and Phrases and their Compositionality
    <https://arxiv.org/abs/1310.4546>`_, 2013.
    """
    return_samples = kwargs.pop("return_samples", False)
    reject(kwargs)
    if reduce not in ("sum", "no"):
        raise ValueError(f"only 'sum' and 'no' are valid for 'reduce', but {reduce!r} is given")
    x, t, W = as_variable(x), as_variable(t), as_variable(W)
    _check("NegativeSampling", x, t, W)
    drawn, counts = DrawSamples(sampler, int(sample_size) + 1).apply((t,))
    words = _beside(t, drawn[:, 1:])
    scores = _scores(x, W, words)
    each = softplus(-scores[:, 0]) + sum_(softplus(scores[:, 1:]), axis=1)
    each = where(counts, each, each * 0)
    loss = each if reduce == "no" else sum_(each)
    return (loss, words.array) if return_samples else loss


def black_out(x: Any, t: Any, W: Any, samples: Any, reduce: str = "mean") -> Variable:
    """Cross entropy of the labelled word among sampled ones, and of each sample against the others.

    Args:
        x: Vectors, (N, D).
        t: Labels, integers of shape (N,).
        W: One vector for every word, (words, D).
        samples: Words that are not the labels, integers of shape (N, S).
        reduce: ``"mean"``, or ``"no"`` for one loss per label.

    Raises:
        ValueError: ``reduce`` is neither of the two.
        InvalidType: The shapes or dtypes do not fit.

    See: Ji et al., `BlackOut: Speeding up Recurrent Neural Network Language Models With Very Large Vocabularies
    <https://arxiv.org/abs/1511.06909>`_, 2016.
    """
    if reduce not in ("mean", "no"):
        raise ValueError(f"only 'mean' and 'no' are valid for 'reduce', but {reduce!r} is given")
    x, t, W, samples = as_variable(x), as_variable(t), as_variable(W), as_variable(samples)
    _check("BlackOut", x, t, W)
    if samples.dtype.kind != "i" or samples.ndim != 2 or samples.shape[0] != t.shape[0]:
        raise type_check.InvalidType("samples: integers of shape (N, S)",
                                     f"{samples.dtype}{samples.shape}, N = {len(t)}",
                                     "\nInvalid operation is performed in: BlackOut (Forward)")
    scores = _scores(x, W, _beside(t, samples))
    total = broadcast_to(expand_dims(logsumexp(scores, axis=1), 1), scores.shape)
    logs = scores - total
    others = log1p(-exp(logs[:, 1:]))
    each = -(logs[:, 0] + sum_(others, axis=1))
    return each if reduce == "no" else mean(each)
