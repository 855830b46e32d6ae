"""The rows of batch renormalization and of decorrelated normalization."""
from __future__ import annotations

from typing import Any

import numpy as np
from functions.table import POSITIVE, Row, draw, standardized

import kusari.functions as F

CUBE = draw(5, 4, 2)
GAMMA, BETA, MEAN, VAR = draw(4, seed=3), draw(4, seed=4), draw(4, seed=5) * np.float32(0.1), POSITIVE[0]


def renormalized(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    """Corrected by at most 1.3 and 0.2."""
    deviation = np.sqrt(var.astype(float) + 2e-5)
    r = np.clip(np.sqrt(x.astype(float).var((0, 2)) + 2e-5) / deviation, 1 / 1.3, 1.3)
    d = np.clip((x.mean((0, 2)) - mean) / deviation, -0.2, 0.2)
    y = standardized(x, (0, 2), 2e-5) * r[:, None] + d[:, None]
    return y * gamma[:, None] + beta[:, None]


def decorrelated(x: Any) -> Any:
    """Two groups of two channels, with the inverse root found by Denman and Beavers' iteration."""
    y = np.zeros(x.shape)
    for g in (slice(0, 2), slice(2, 4)):
        flat = x[:, g].astype(float).transpose(1, 0, 2).reshape(2, -1)
        flat -= flat.mean(1, keepdims=True)
        root, inverse = flat @ flat.T / flat.shape[1] + 0.01 * np.eye(2), np.eye(2)
        for _ in range(50):
            root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
        y[:, g] = (inverse @ flat).reshape(2, 5, 2).transpose(1, 0, 2)
    return y


def statistics() -> list[Row]:
    """Normalizations by more than mean and variance."""
    projection = draw(2, 2, 2)
    return [
        Row("fixed_batch_renormalization", F.fixed_batch_renormalization, (CUBE, GAMMA, BETA, MEAN, VAR),
            lambda x, g, b, m, v: ((x - m[:, None]) / np.sqrt(v + 2e-5)[:, None]) * g[:, None] + b[:, None]),
        Row("decorrelated_batch_normalization", lambda x: F.decorrelated_batch_normalization(x, groups=2, eps=0.01),
            (CUBE,), decorrelated, tolerance=1e-4),
        Row("fixed_decorrelated_batch_normalization",
            lambda x, m, p: F.fixed_decorrelated_batch_normalization(x, m, p, groups=2),
            (CUBE, draw(2, 2), projection), lambda x, m, p: np.einsum(
                "gij,ngjk->ngik", p, x.reshape(5, 2, 2, 2) - m[..., None]).reshape(5, 4, 2)),
        # Its corrections are functions of x whose gradient does not flow.
        Row("batch_renormalization", lambda x, g, b, m, v: F.batch_renormalization(
            x, g, b, 1.3, 0.2, running_mean=m, running_var=v), (CUBE, GAMMA, BETA, MEAN, VAR), renormalized,
            gradient=False),
    ]
