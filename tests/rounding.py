"""Floats as tensor cores take them: bfloat16 by the nearest, of two the even one, TF32 by the one further from zero."""
from __future__ import annotations

import numpy as np

#: Bits of a float that are dropped.
DROPPED = {"bf16": 16, "tf32": 13}


def rounded(x: np.ndarray, kind: str) -> np.ndarray:
    """The floats that ``x`` is rounded to; for no kind these themselves."""
    if not kind:
        return x
    bits, drop = np.ascontiguousarray(x, np.float32).view(np.uint32), np.uint32(DROPPED[kind])
    half = np.uint32(1 << drop - 1)
    up = half if kind == "tf32" else half - 1 + (bits >> drop & 1)
    return np.where(np.isnan(x), x, (bits + up & ~np.uint32((1 << drop) - 1)).view(np.float32)).astype(np.float32)
