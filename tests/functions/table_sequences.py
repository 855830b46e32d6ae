"""The rows of losses over whole paths, with formulas that try every path."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from functions.table import Row, draw, ints, log_softmax

import kusari.functions as F

SCORES = draw(3, 2, 3)
LABELS = np.array([[1, 2], [2, 2]], np.int32)


def _said(path: tuple[int, ...]) -> list[int]:
    """What a path says: repetitions are one label, zeros are none."""
    return [label for label, _ in itertools.groupby(path) if label]


def ctc(x: Any, t: Any, steps: Any, lengths: Any) -> Any:
    """The probabilities of all paths that say the labels, added."""
    p, total = log_softmax(x, 2), np.zeros(len(t))
    for b in range(len(t)):
        for path in itertools.product(range(x.shape[2]), repeat=int(steps[b])):
            if _said(path) == t[b][:lengths[b]].tolist():
                total[b] += np.exp(sum(p[i, b, label] for i, label in enumerate(path)))
    return -np.log(total)


def crf(cost: Any, *arrays: Any) -> Any:
    """Every assignment of labels, tried."""
    xs, ys = arrays[:len(arrays) // 2], arrays[len(arrays) // 2:]
    losses: list[float] = []
    for b in range(len(xs[0])):
        scores = np.array([x[b] for x in xs if b < len(x)], float)

        def value(path: Any, scores: Any = scores) -> float:
            return sum(s[y] for s, y in zip(scores, path, strict=True)) + sum(
                cost[i, j] for i, j in itertools.pairwise(path))
        every = [value(path) for path in itertools.product(range(len(cost)), repeat=len(scores))]
        losses.append(np.log(np.sum(np.exp(every))) - value([y[b] for y in ys if b < len(y)]))
    return np.array(losses)


def paths() -> list[Row]:
    """Losses of sequences."""
    lengths, steps = np.array([1, 2], np.int32), np.array([2, 3], np.int32)
    everything = np.array([3, 3]), np.array([2, 2])
    xs = draw(3, 3), draw(2, 3), draw(1, 3)
    ys = ints(3, 3), ints(3, 2), ints(3, 1)
    return [
        Row("connectionist_temporal_classification",
            lambda x, t: F.connectionist_temporal_classification(F.separate(x), t, 0), (SCORES, LABELS),
            lambda x, t: ctc(x, t, *everything).mean()),
        Row("connectionist_temporal_classification lengths",
            lambda x, t, s, n: F.connectionist_temporal_classification(list(F.separate(x)), t, 0, s, n, "no"),
            (SCORES, LABELS, steps, lengths), ctc),
        Row("crf1d", lambda c, *v: F.crf1d(c, v[:3], v[3:]), (draw(3, 3, seed=2), *xs, *ys),
            lambda *v: crf(*v).mean()),
        Row("crf1d no", lambda c, *v: F.crf1d(c, v[:3], v[3:], "no"), (draw(3, 3, seed=2), *xs, *ys), crf),
    ]
