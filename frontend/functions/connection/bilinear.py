"""The bilinear layer."""
from __future__ import annotations

from math import prod
from typing import Any

from ...broadcasting import broadcast_to
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.shape import reshape
from ..math.matmul import matmul


def bilinear(e1: Any, e2: Any, W: Any, V1: Any = None, V2: Any = None, b: Any = None) -> Variable:
    """Bilinear form of two batches of vectors, ``e1 W e2 (+ e1 V1 + e2 V2 + b)``.

    Args:
        e1: Left vectors, (N, J) after flattening.
        e2: Right vectors, (N, K) after flattening.
        W: Weights, (J, K, L).
        V1: Weights of the left vectors, (J, L).
        V2: Weights of the right vectors, (K, L).
        b: Bias, (L,).

    Returns:
        Variable: Of shape (N, L).

    Raises:
        ValueError: Some of ``V1``, ``V2`` and ``b`` are given, but not all.
        InvalidType: The shapes do not fit.
    """
    given = [v is not None for v in (V1, V2, b)]
    if any(given) and not all(given):
        raise ValueError("V1, V2 and b must be given all together or not at all")
    e1, e2, W = as_variable(e1), as_variable(e2), as_variable(W)
    n = len(e1)
    e1, e2 = (reshape(e, (n, prod(e.shape[1:]))) for e in (e1, e2))
    if W.ndim != 3 or W.shape[:2] != (e1.shape[1], e2.shape[1]):
        raise type_check.InvalidType("W.shape == (e1.shape[1], e2.shape[1], out_size)",
                                     f"{W.shape}, e1: {e1.shape}, e2: {e2.shape}")
    j, k, out = W.shape
    for name, v, shape in (("V1", V1, (j, out)), ("V2", V2, (k, out)), ("b", b, (out,))):
        if v is not None and v.shape != shape:
            raise type_check.InvalidType(f"{name}.shape == {shape}", f"{v.shape}",
                                         "\nInvalid operation is performed in: Bilinear (Forward)")
    left = reshape(matmul(e1, reshape(W, (j, k * out))), (n, k, out))
    y = reshape(matmul(reshape(e2, (n, 1, k)), left), (n, out))
    if V1 is not None:
        y = y + matmul(e1, as_variable(V1)) + matmul(e2, as_variable(V2)) + broadcast_to(as_variable(b), (n, out))
    return y
