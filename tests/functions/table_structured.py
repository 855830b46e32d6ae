"""The rows of functions that move, join, multiply, normalize and judge arrays."""
from __future__ import annotations

from typing import Any

import numpy as np
from functions.table import (
    CUBE,
    IMAGE,
    POSITIVE,
    Row,
    X,
    Y,
    cross_entropy,
    draw,
    ints,
    log_softmax,
    sigmoid,
    standardized,
)

import kusari.functions as F

SELECTED = np.array([0, 3, -1])
RUNNING = np.zeros(4, "f"), np.ones(4, "f")
# Batched and permuted, nothing to sum, sums of one operand's own, rows of two, three operands.
EQUATIONS = ("bihk,bjhk->bhij", "hik,hkj->ihj", "bi,jb->jbi", "ih,ij->j", "bi,bi->b", "i,j,ij->", "ihk,ib,jb->kj",
             "ihj->ji")


def _spread(x: Any) -> Any:
    """Depth to space with blocks of 3, pixel by pixel."""
    y = np.empty((2, 1, 3, 6), x.dtype)
    for i in range(3):
        for j in range(3):
            y[:, :, i::3, j::3] = x[:, 3 * i + j:3 * i + j + 1]
    return y


def _shifted(x: Any, kh: int, kw: int, dilate: int) -> Any:
    """Every channel read at its offset, pixel by pixel."""
    places = [((i - kh // 2) * dilate, (j - kw // 2) * dilate) for i in range(kh) for j in range(kw)]
    middle = len(places) // 2
    places[middle], places[-1] = places[-1], places[middle]
    group, y = x.shape[1] // len(places), np.zeros_like(x)
    for c, h, w in np.ndindex(*x.shape[1:]):
        down, right = places[min(c // group, len(places) - 1)]
        if 0 <= h - down < x.shape[2] and 0 <= w - right < x.shape[3]:
            y[:, c, h, w] = x[:, c, h - down, w - right]
    return y


def moves() -> list[Row]:
    """Functions that rearrange elements."""
    i, j = np.array([2, 0, 2]), np.array([1, -1, 1])
    rows: list[tuple[str, Any, Any, Any]] = [
        ("reshape", CUBE, lambda x: F.reshape(x, (4, -1)), lambda x: x.reshape(4, 6)),
        ("flatten", CUBE, F.flatten, np.ravel), ("ravel", CUBE, F.ravel, np.ravel),
        ("expand_dims", X, lambda x: F.expand_dims(x, -1), lambda x: x[..., None]),
        ("squeeze", draw(1, 3, 1), F.squeeze, np.squeeze),
        ("squeeze axis", draw(1, 3, 1), lambda x: F.squeeze(x, -1), lambda x: x[..., 0]),
        ("transpose", CUBE, F.transpose, np.transpose),
        ("transpose axes", CUBE, lambda x: F.transpose(x, (1, -1, 0)), lambda x: x.transpose(1, 2, 0)),
        ("swapaxes", CUBE, lambda x: F.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, 2)),
        ("moveaxis", IMAGE, lambda x: F.moveaxis(x, (0, 2), (-1, 0)), lambda x: np.moveaxis(x, (0, 2), (-1, 0))),
        ("moveaxis one", CUBE, lambda x: F.moveaxis(x, 0, 1), lambda x: np.moveaxis(x, 0, 1)),
        ("rollaxis", IMAGE, lambda x: F.rollaxis(x, 3, 1), lambda x: np.rollaxis(x, 3, 1)),
        ("broadcast_to", draw(3, 1), lambda x: F.broadcast_to(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4))),
        ("flip", CUBE, lambda x: F.flip(x, -2), lambda x: x[:, ::-1]), ("flipud", X, F.flipud, np.flipud),
        ("fliplr", X, F.fliplr, np.fliplr),
        ("tile", X, lambda x: F.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
        ("tile one", CUBE, lambda x: F.tile(x, 2), lambda x: np.tile(x, 2)),
        ("repeat", X, lambda x: F.repeat(x, 2), lambda x: np.repeat(x, 2)),
        ("repeat axis", CUBE, lambda x: F.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1)),
        ("repeat each", X, lambda x: F.repeat(x, (1, 0, 2), 0), lambda x: np.repeat(x, (1, 0, 2), 0)),
        ("space2depth", draw(2, 3, 4, 6), lambda x: F.space2depth(x, 2),
         lambda x: np.concatenate([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)),
        ("depth2space", draw(2, 9, 1, 2), lambda x: F.depth2space(x, 3), _spread),
        ("shift", draw(2, 11, 4, 3), lambda x: F.shift(x), lambda x: _shifted(x, 3, 3, 1)),
        ("shift dilate", draw(2, 4, 3, 5), lambda x: F.shift(x, (1, 3), 2), lambda x: _shifted(x, 1, 3, 2)),
        ("pad", X, lambda x: F.pad(x, 1, "constant"), lambda x: np.pad(x, 1)),
        ("pad value", X, lambda x: F.pad(x, ((0, 1), (2, 0)), "constant", constant_values=3),
         lambda x: np.pad(x, ((0, 1), (2, 0)), constant_values=3)),
        ("pad reflect", X, lambda x: F.pad(x, 1, "reflect"), lambda x: np.pad(x, 1, "reflect")),
        ("item", CUBE, lambda x: x[1], lambda x: x[1]), ("item point", X, lambda x: x[1, -1], lambda x: x[1, -1]),
        ("item slices", CUBE, lambda x: x[:, ::-2, 1:3], lambda x: x[:, ::-2, 1:3]),
        ("item dots", CUBE, lambda x: x[..., None, -1], lambda x: x[..., None, -1]),
        ("item full", X, lambda x: x[:], lambda x: x[:]), ("item empty", X, lambda x: x[2:1], lambda x: x[2:1]),
        ("item list", X, lambda x: x[[1, 1, 0]], lambda x: x[[1, 1, 0]]),
        ("item rows", CUBE, lambda x: x[j], lambda x: x[j]), ("item axis", CUBE, lambda x: x[:, i], lambda x: x[:, i]),
        ("item pairs", CUBE, lambda x: x[:, i, j], lambda x: x[:, i, j]),
        ("item mixed", CUBE, lambda x: x[0, i, 1:], lambda x: x[0, i, 1:]),
        ("item mask", X, lambda x: x[np.array([True, False, True])], lambda x: x[[0, 2]]),
        ("item table", X, lambda x: x[np.array([[0, 2], [1, -1]])], lambda x: x[[[0, 2], [1, 2]]]),
        ("permutate", X, lambda x: F.permutate(x, np.array([2, 0, 1])), lambda x: x[[2, 0, 1]]),
        ("permutate inv", X, lambda x: F.permutate(x, np.array([1, 3, 0, 2]), axis=1, inv=True),
         lambda x: x[:, [2, 0, 3, 1]]),
        ("select_item", X, lambda x: F.select_item(x, SELECTED), lambda x: x[[0, 1, 2], [0, 3, 3]]),
        ("diagonal", X, lambda x: F.diagonal(x, 1), lambda x: np.diagonal(x, 1)),
        ("diagonal axes", CUBE, lambda x: F.diagonal(x, -1, -1, 0), lambda x: np.diagonal(x, -1, 2, 0)),
        ("copy", X, lambda x: F.copy(x, -1), np.copy),
        ("split_axis", CUBE, lambda x: F.split_axis(x, [1, 2], 1), lambda x: tuple(np.split(x, [1, 2], 1))),
        ("split_axis equal", X, lambda x: F.split_axis(x, 2, -1), lambda x: tuple(np.split(x, 2, -1))),
        ("split part", X, lambda x: F.split_axis(x, 2, 1)[1], lambda x: x[:, 2:]),
        ("separate", CUBE, lambda x: F.separate(x, 1), lambda x: (x[:, 0], x[:, 1], x[:, 2])),
        ("separate part", CUBE, lambda x: F.separate(x, -1)[2], lambda x: x[..., 2]),
        ("transpose_sequence", X, lambda x: F.transpose_sequence([x, x[:1]])[0], lambda x: x[[0, 0]]),
    ]
    return [Row(name, call, (x,), formula) for name, x, call, formula in rows] + [
        Row("concat", lambda *xs: F.concat(xs, axis=1), (X, draw(3, 1), Y), lambda *xs: np.concatenate(xs, 1)),
        Row("stack", lambda *xs: F.stack(iter(xs), axis=-1), (X, Y), lambda *xs: np.stack(xs, -1)),
        Row("hstack", lambda *xs: F.hstack(xs), (draw(3), draw(2)), lambda *xs: np.hstack(xs)),
        Row("vstack", lambda *xs: F.vstack(xs), (draw(2, 4), X), lambda *xs: np.vstack(xs)),
        Row("dstack", lambda *xs: F.dstack(iter(xs)), (X, Y), lambda *xs: np.dstack(xs)),
        Row("broadcast", lambda *xs: F.broadcast(*xs), (X, draw(4)), lambda x, y: tuple(np.broadcast_arrays(x, y))),
        Row("pad_sequence", lambda *xs: F.pad_sequence(xs, padding=1), (draw(3), draw(2)),
            lambda x, y: np.stack([x, np.pad(y, (0, 1), constant_values=1)])),
        Row("scatter_add", lambda a, b: F.scatter_add(a, np.array([1, 1]), b), (X, draw(2, 4)),
            lambda a, b: a + np.stack([0 * a[0], b.sum(0), 0 * a[0]])),
        Row("scatter_add slice", lambda a, b: F.scatter_add(a, slice(1, 3), b), (X, draw(2, 4)),
            lambda a, b: a + np.pad(b, ((1, 0), (0, 0)))),
    ]


def products() -> list[Row]:
    """Matrix products and layers."""
    a, b = draw(2, 3, 4), draw(2, 4, 5)
    ids = np.array([[1, 0], [-1, 1]], np.int32)
    wide = np.random.RandomState(0).randint(0, 5, 80).astype(np.int32)
    table = draw(5, 3)
    extents = dict(b=2, h=3, i=4, j=5, k=2)
    return [
        Row("matmul", F.matmul, (X, draw(4, 2)), np.matmul),
        Row("matmul aT", lambda x, y: F.matmul(x, y, transa=True), (X, draw(3, 2)), lambda x, y: x.T @ y),
        Row("matmul bT", lambda x, y: F.matmul(x, y, transb=True), (X, draw(2, 4)), lambda x, y: x @ y.T),
        Row("matmul aT bT", lambda x, y: F.matmul(x, y, True, True), (X, draw(2, 3)), lambda x, y: x.T @ y.T),
        Row("matmul batch", F.matmul, (a, b), np.matmul), Row("matmul broadcast", F.matmul, (a, b[0]), np.matmul),
        Row("matmul vector", F.matmul, (X, draw(4)), np.matmul), Row("matmul row", F.matmul, (draw(3), X), np.matmul),
        Row("matmul dot", F.matmul, (draw(3), draw(3, seed=1)), np.matmul),
        Row("batch_matmul", lambda x, y: F.batch_matmul(x, y, transa=True), (a, draw(2, 3)),
            lambda x, y: np.einsum("nij,ni->nj", x, y)[..., None]),
        Row("tensordot", F.tensordot, (CUBE, draw(3, 4, 2)), np.tensordot),
        Row("tensordot axes", lambda x, y: F.tensordot(x, y, ([0, 2], [1, 0])), (CUBE, draw(4, 2, 5)),
            lambda x, y: np.tensordot(x, y, ([0, 2], [1, 0]))),
        Row("einsum", lambda x, y: F.einsum("ij,kj->ik", x, y), (X, draw(2, 4)), lambda x, y: x @ y.T),
        Row("einsum sum", lambda x, y: F.einsum("ij,jk->k", x, y), (X, draw(4, 2)), lambda x, y: (x @ y).sum(0)),
        Row("einsum dots", lambda x, y: F.einsum("...ij,jk->...k", x, y), (CUBE, draw(4, 2)),
            lambda x, y: (x @ y).sum(1)),
        *(Row(f"einsum {equation}", lambda *xs, e=equation: F.einsum(e, *xs),
              tuple(draw(*(extents[c] for c in t), seed=i) for i, t in enumerate(equation.split("->")[0].split(","))),
              lambda *xs, e=equation: np.einsum(e, *xs)) for equation in EQUATIONS),
        Row("linear", F.linear, (X, draw(5, 4), draw(5)), lambda x, w, b: x @ w.T + b),
        Row("linear no bias", F.linear, (CUBE, draw(5, 12)), lambda x, w: x.reshape(2, 12) @ w.T),
        Row("linear batch axes", lambda x, w: F.linear(x, w, n_batch_axes=2), (CUBE, draw(5, 4)),
            lambda x, w: x @ w.T),
        Row("bilinear", F.bilinear, (draw(2, 3), draw(2, 4), draw(3, 4, 5), draw(3, 5), draw(4, 5), draw(5)),
            lambda x, y, w, v1, v2, b: np.einsum("ni,nj,ijk->nk", x, y, w) + x @ v1 + y @ v2 + b, tolerance=1e-4),
        Row("embed_id", F.embed_id, (ids, table), lambda i, w: w[i]),
        Row("embed_id ignore", lambda i, w: F.embed_id(i, w, ignore_label=-1), (ids, table),
            lambda i, w: np.where(i[..., None] == -1, 0, w[i])),
        Row("embed_id many", F.embed_id, (wide, table), lambda i, w: w[i]),
    ]


def _clusters(x: Any, t: Any, norm: int, v: float, d: float) -> tuple[float, float, float]:
    """The three sums of the clustering loss, instance by instance."""
    (n, k), x = x.shape[:2], x.astype("d")
    images = range(n)
    centres = [[x[i][:, t[i] == c].mean(1) if (t[i] == c).any() else np.zeros(k) for i in images]
               for c in range(1, k + 1)]

    def length(vector: Any) -> float:
        return np.linalg.norm(np.ravel(vector), norm)

    pull = [np.mean([max(length(x[i, :, h, w] - centres[c][i]) - v, 0) ** 2
                     for i, h, w in np.argwhere(t == c + 1)] or [0]) for c in range(k)]
    push = [max(2 * d - length(centres[a][i] - centres[b][i]), 0) ** 2
            for i in images for b in range(k) for a in range(b)]
    return np.mean(pull), np.mean(push), sum(map(length, centres)) / (n * k)


def losses() -> list[Row]:
    """Losses and scores."""
    t, ti, weight = np.array([0, 3, -1], np.int32), ints(4, 2, 3, 2, low=-1), np.array([1, 2, 0.5, 3], "f")
    soft = np.exp(log_softmax(draw(3, 4, seed=3))).astype("f")
    binary = ints(2, 3, 4, low=-1)
    used = binary != -1
    bce = np.where(used, np.log(1 + np.exp(-X.astype("d"))) + X * (1 - binary), 0)
    sce = F.softmax_cross_entropy
    signs = np.where(np.arange(4) == np.array([[0], [2], [1]]), -1, 1)
    labels = np.array([0, 2, 1])
    pairs = np.array([1, 0, 0])
    far = Y * 0.3
    return [
        Row("softmax_cross_entropy", sce, (X, t), lambda x, t: cross_entropy(x, t).sum() / 2),
        Row("sce all ignored", sce, (X, np.full(3, -1)), lambda x, t: 0.0),
        Row("sce image", sce, (IMAGE, ti), lambda x, t: cross_entropy(x, t).sum() / (t != -1).sum()),
        Row("sce not normalized", lambda x, t: sce(x, t, normalize=False), (IMAGE, ti),
            lambda x, t: cross_entropy(x, t).sum() / 2),
        Row("sce no", lambda x, t: sce(x, t, reduce="no"), (IMAGE, ti), cross_entropy),
        Row("sce weight", lambda x, t: sce(x, t, class_weight=weight), (X, t),
            lambda x, t: cross_entropy(x, t, weight).sum() / 2),
        Row("sce weight image", lambda x, t: sce(x, t, class_weight=weight, reduce="no", ignore_label=2),
            (IMAGE, abs(ti)),
            lambda x, t: cross_entropy(x, t, weight, 2)),
        Row("sce soft", sce, (X, soft), lambda x, t: -(t * log_softmax(x)).sum(1).mean(), fixed=(1,)),
        Row("sce kl", lambda x, t: sce(x, t, soft_target_loss="kl-divergence", reduce="no"), (X, soft),
            lambda x, t: (t * (np.log(t) - log_softmax(x))).sum(1), fixed=(1,)),
        Row("sigmoid_cross_entropy", F.sigmoid_cross_entropy, (X, binary), lambda x, t: bce.sum() / used.sum()),
        Row("sigmoid_ce not normalized", lambda x, t: F.sigmoid_cross_entropy(x, t, normalize=False), (X, binary),
            lambda x, t: bce.sum() / 3),
        Row("sigmoid_ce no", lambda x, t: F.sigmoid_cross_entropy(x, t, reduce="no"), (X, binary), lambda x, t: bce),
        Row("mean_squared_error", F.mean_squared_error, (X, Y), lambda x, y: ((x - y) ** 2).mean()),
        Row("mean_absolute_error", F.mean_absolute_error, (X, Y), lambda x, y: abs(x - y).mean()),
        Row("huber_loss", lambda x, y: F.huber_loss(x, y, 0.7), (X, Y), lambda x, y: np.where(
            abs(x - y) < 0.7, (x - y) ** 2 / 2, 0.7 * (abs(x - y) - 0.35)).sum(1)),
        Row("hinge", lambda x, t: F.hinge(x, t), (X, labels), lambda x, t: np.maximum(0, 1 + signs * x).sum() / 3),
        Row("hinge L2", lambda x, t: F.hinge(x, t, "L2", "no"), (X, labels),
            lambda x, t: np.maximum(0, 1 + signs * x) ** 2),
        Row("contrastive", lambda x, y: F.contrastive(x, y, pairs, margin=2), (X * 0.3, far), lambda x, y: np.where(
            pairs, ((x - y) ** 2).sum(1), np.maximum(2 - np.sqrt(((x - y) ** 2).sum(1)), 0) ** 2).mean() / 2),
        Row("triplet", lambda a, p, n: F.triplet(a, p, n, margin=1.5), (X, Y, POSITIVE), lambda a, p, n: np.maximum(
            ((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1) + 1.5, 0).mean()),
        Row("decov", F.decov, (X,), lambda x: 0.5 * (np.cov(x.T, bias=True)[~np.eye(4, dtype=bool)] ** 2).sum()),
        Row("cross_covariance", F.cross_covariance, (X, draw(3, 2)), lambda x, y: 0.5 * (
            ((x - x.mean(0)).T @ (y - y.mean(0)) / 3) ** 2).sum()),
        Row("gaussian_kl_divergence", F.gaussian_kl_divergence, (X, Y), lambda m, v: (
            m * m + np.exp(v) - v - 1).sum() / 2),
        Row("bernoulli_nll", lambda x, y: F.bernoulli_nll(x, y, "mean"), (soft, Y), lambda x, y: -(
            x * np.log(sigmoid(y)) + (1 - x) * np.log(sigmoid(-y))).mean()),
        Row("gaussian_nll", lambda *xs: F.gaussian_nll(*xs, "no"), (X, Y, UNITS), lambda x, m, v: (
            np.log(2 * np.pi) + v + (x - m) ** 2 / np.exp(v)) / 2),
        *(Row(f"clustering L{norm}", lambda x, t, norm=norm: F.discriminative_margin_based_clustering_loss(
            x, t, 0.4, 1.5, 3, norm, gamma=1), (draw(3, 3, 4, 2), ints(4, 3, 4, 2)),
            lambda x, t, norm=norm: _clusters(x, t, norm, 0.4, 1.5)) for norm in (1, 2)),
        Row("accuracy", F.accuracy, (X, labels), lambda x, t: (x.argmax(1) == t).mean(), False),
        Row("accuracy ignore", lambda x, t: F.accuracy(x, t, ignore_label=-1), (IMAGE, ti),
            lambda x, t: (x.argmax(1) == t)[t != -1].mean(), False),
        Row("binary_accuracy", F.binary_accuracy, (X, binary), lambda x, t: ((x >= 0) == t)[used].mean(), False),
        Row("r2_score", F.r2_score, (X, Y), lambda p, t: (
            1 - ((p - t) ** 2).sum(0) / ((t - t.mean(0)) ** 2).sum(0)).mean(), False),
    ]


UNITS = draw(3, 4, seed=11, low=-1, high=1)


def normalizations() -> list[Row]:
    """Normalizations."""
    gamma, beta = draw(4, low=0.5), draw(4, seed=1)
    sample = draw(3, 2, low=0.5), draw(3, 2, seed=1)
    mean, var = draw(4, seed=2), draw(4, low=0.5, high=2, seed=3)

    def wide(v: Any) -> Any:
        return v[:, None, None]
    return [
        Row("batch_normalization", F.batch_normalization, (draw(5, 4), gamma, beta),
            lambda x, g, b: standardized(x, 0, 2e-5) * g + b, tolerance=1e-4),
        Row("batch_normalization image", lambda *xs: F.batch_normalization(*xs, eps=0.01), (IMAGE, gamma, beta),
            lambda x, g, b: standardized(x, (0, 2, 3), 0.01) * wide(g) + wide(b), tolerance=1e-4),
        Row("batch_normalization axis", lambda *xs: F.batch_normalization(*xs, eps=0.01, axis=(0, 1)), (IMAGE, *sample),
            lambda x, g, b: standardized(x, (0, 1), 0.01) * g + b, tolerance=1e-4),
        Row("batch_normalization running", lambda *xs: F.batch_normalization(
            *xs, eps=0.01, running_mean=RUNNING[0].copy(), running_var=RUNNING[1].copy()), (IMAGE, gamma, beta),
            lambda x, g, b: standardized(x, (0, 2, 3), 0.01) * wide(g) + wide(b), tolerance=1e-4),
        Row("fixed_batch_normalization", F.fixed_batch_normalization, (IMAGE, gamma, beta, mean, var),
            lambda x, g, b, m, v: (x - wide(m)) / np.sqrt(wide(v) + 2e-5) * wide(g) + wide(b), tolerance=1e-4),
        Row("layer_normalization", F.layer_normalization, (X, gamma, beta),
            lambda x, g, b: standardized(x, 1, 1e-5) * g + b, tolerance=1e-4),
        Row("group_normalization", lambda *xs: F.group_normalization(xs[0], 2, *xs[1:]), (IMAGE, gamma, beta),
            lambda x, g, b: wide(b) + wide(g) * standardized(
                x.reshape(2, 2, 2, 3, 2), (2, 3, 4), 1e-5).reshape(x.shape), tolerance=1e-4),
        Row("local_response_normalization", lambda x: F.local_response_normalization(x, n=3, k=1, alpha=0.5), (IMAGE,),
            lambda x: x / (1 + 0.5 * sum(np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, i:i + 4]
                                         for i in range(3))) ** 0.75),
    ]
