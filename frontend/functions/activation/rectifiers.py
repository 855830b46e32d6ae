"""Rectifiers and their smooth relatives."""
from __future__ import annotations

from typing import Any

from ...elementwise import elementwise


@elementwise("ReLU", onnx="Relu", kind="f")
def relu(xp: Any, x: Any) -> Any:
    """Rectified linear unit, ``max(x, 0)``.

    Args:
        x: Floating-point input.

    Raises:
        InvalidType: ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.relu(np.array([-1.0, 2.0], "f")).array.tolist()
    [0.0, 2.0]
    """
    return xp.maximum(x, 0)


@relu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return xp.where(y > 0, gy, 0),
