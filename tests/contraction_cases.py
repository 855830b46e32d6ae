"""Convolutions in many shapes, with arrays and results, for the tests of all machines' kernels."""
from __future__ import annotations

from typing import Any

import numpy as np
from rounding import rounded

from kusari.codegen.contractions import ConvSpec
from kusari.ir import PRIMITIVES

OPS = {"forward": "conv", "input": "conv_input", "weight": "conv_weight"}


def spec_of(direction, n, c, k, size, kernel, stride=1, pad=0, dilate=1, groups=1, extra=0, **more) -> ConvSpec:
    rank = len(size)
    stride, pad, dilate = ((v,) * rank if isinstance(v, int) else v for v in (stride, pad, dilate))
    out = tuple((m + 2 * p - (w - 1) * d - 1) // s + 1 + extra
                for m, w, s, p, d in zip(size, kernel, stride, pad, dilate, strict=True))
    return ConvSpec(direction, n, c, k, size, out, kernel, stride, pad, dilate, groups, **more)


def arrays_of(spec: ConvSpec, rng) -> tuple[list[np.ndarray], np.ndarray]:
    x = rng.normal(size=(spec.n, spec.c, *spec.size)).astype(spec.factor_dtype)
    w = rng.normal(size=(spec.k, spec.channels, *spec.kernel)).astype(spec.factor_dtype)
    y = rng.normal(size=(spec.n, spec.k, *spec.out)).astype(spec.factor_dtype)
    inputs, open_ = {"forward": ([x, w], spec.out), "input": ([y, w], spec.size),
                     "weight": ([x, y], spec.kernel)}[spec.direction]
    attrs = {"stride": spec.stride, "pad": spec.pad, "dilate": spec.dilate, "groups": spec.groups, "size": open_}
    wide, = PRIMITIVES[OPS[spec.direction]].call(attrs, *(rounded(a, spec.rounded).astype("d") for a in inputs))
    return inputs, wide


def terms(spec: ConvSpec) -> int:
    """How many products are added to one result at most."""
    return {"forward": spec.channels * spec.taps, "input": spec.features * spec.taps,
            "weight": spec.n * spec.positions}[spec.direction]


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": dict(n=2, c=3, k=5, size=(7, 9), kernel=(3, 3)),
    "same": dict(n=1, c=16, k=24, size=(14, 14), kernel=(3, 3), pad=1),
    "one": dict(n=1, c=1, k=1, size=(1, 1), kernel=(1, 1)),
    "lenet 1": dict(n=3, c=1, k=20, size=(28, 28), kernel=(5, 5)),
    "lenet 2": dict(n=3, c=20, k=50, size=(12, 12), kernel=(5, 5)),
    "stem": dict(n=1, c=3, k=16, size=(23, 23), kernel=(7, 7), stride=2, pad=3),
    "strided": dict(n=2, c=6, k=7, size=(13, 17), kernel=(3, 3), stride=2, pad=1),
    "shortcut": dict(n=2, c=8, k=12, size=(8, 8), kernel=(1, 1), stride=2),
    "1x1": dict(n=2, c=33, k=20, size=(7, 11), kernel=(1, 1)),
    "tiny maps": dict(n=9, c=20, k=18, size=(2, 2), kernel=(3, 3), pad=1),
    "dilated": dict(n=2, c=4, k=4, size=(15, 15), kernel=(3, 3), dilate=3, pad=2),
    "dilated and strided": dict(n=1, c=2, k=3, size=(15, 16), kernel=(3, 2), dilate=(2, 3), stride=(3, 2), pad=(1, 0)),
    "groups": dict(n=2, c=8, k=12, size=(9, 9), kernel=(3, 3), groups=4, pad=1),
    "depthwise": dict(n=2, c=9, k=9, size=(10, 19), kernel=(3, 3), groups=9, pad=1),
    "multiplier": dict(n=1, c=3, k=6, size=(8, 8), kernel=(3, 3), groups=3, stride=2),
    "1-d": dict(n=3, c=5, k=6, size=(40,), kernel=(9,), stride=2, pad=4),
    "3-d": dict(n=2, c=3, k=4, size=(5, 6, 7), kernel=(2, 3, 3), stride=(1, 2, 1), pad=(1, 0, 1)),
    "long window": dict(n=1, c=2, k=3, size=(60,), kernel=(50,), pad=3),
    "long steps": dict(n=1, c=2, k=40, size=(90,), kernel=(50,), stride=2, pad=3),
    "strided stem": dict(n=1, c=1, k=64, size=(17, 17), kernel=(7, 7), stride=2, pad=3),
    "wide window": dict(n=1, c=2, k=3, size=(11, 12), kernel=(11, 11), pad=5),
    "cover all": dict(n=2, c=3, k=4, size=(8, 8), kernel=(3, 3), stride=2, extra=1),
    "stride over window": dict(n=2, c=3, k=4, size=(11, 10), kernel=(2, 2), stride=3),
}
