"""How far arrays differ, and whether rounding alone may do that."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir import TensorType

from ..trace.recording import Recording

_RELATIVE_ULPS = 5000  # units in the last place of the largest number of an array that it may differ by
_CANCELLED_ULPS = 100  # the same of the largest number around


def largest(*arrays: Any) -> float:
    """Return the largest finite magnitude of floating point numbers in arrays."""
    found = 0.0
    for x in arrays:
        if x is not None and x.dtype.kind in "fc" and x.size:
            finite = abs(x[np.isfinite(x)])
            found = max(found, float(finite.max(initial=0)))
    return found


def coarsest(recorded: Recording) -> float:
    """Return the unit of the last place of the least precise numbers that a graph computes with, relative to them."""
    kinds = {v.type.dtype for n in recorded.graph.nodes for v in n.outputs if isinstance(v.type, TensorType)}
    return max((float(np.finfo(d).eps) for d in kinds if d.kind in "fc"), default=0.0)


def difference(expected: Any, found: Any, unit: float, scale: float) -> str | None:
    """Return a text of how two arrays (or Nones) differ by more than rounding; None when they do not.

    ``unit`` is the precision of the numbers they may have been computed from, ``scale`` the magnitude of those: where
    large numbers cancel, their rounding remains.
    """
    if expected is None or found is None:
        return None if expected is found else f"{_brief(expected)} became {_brief(found)}"
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return f"{_brief(expected)} became {_brief(found)}"
    if expected.dtype.kind not in "fc":
        return None if np.array_equal(expected, found) else f"{_brief(expected)} became {_brief(found)}"
    unit = max(unit, float(np.finfo(expected.dtype).eps))
    allowed = min(_RELATIVE_ULPS * unit, 0.05) * largest(expected) + _CANCELLED_ULPS * unit * max(scale, 1e-3)
    if np.allclose(found, expected, rtol=0, atol=allowed, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        off = float(np.nanmax(abs(found - expected)))
    return f"{_brief(expected)} became {_brief(found)}, off by {off:.3g}"


def _brief(x: Any) -> str:
    if x is None:
        return "None"
    return f"{x.dtype}{list(x.shape)} {np.array2string(x.ravel()[:3], precision=6)}"
