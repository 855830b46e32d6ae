"""Reductions, softmax and normalizations along axes."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...variable import as_variable
from .elementwise import pointwise
from .program import Step
from .registry import Table, axes_of, is_float

TABLE = Table()


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    count = np.prod([x.shape[a] for a in axis])
    return F.sum(x, axis, keepdims) / float(count)


_REDUCTIONS = {
    "ReduceSum": F.sum, "ReduceMean": _mean, "ReduceProd": F.prod,
    "ReduceL1": lambda x, axis, keepdims: F.sum(F.absolute(x), axis, keepdims),
    "ReduceL2": lambda x, axis, keepdims: F.sqrt(F.sum(x * x, axis, keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: F.sum(x * x, axis, keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: F.log(F.sum(x, axis, keepdims)),
    "ReduceMax": F.max, "ReduceMin": F.min,
    "ReduceLogSumExp": lambda x, axis, keepdims: _kept(F.logsumexp(x, axis), x, axis, keepdims),
}


def _kept(y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    shape = tuple([1 if i in axis else n for i, n in enumerate(x.shape)])
    return F.reshape(y, shape) if keepdims else y


@TABLE.add(*_REDUCTIONS)
def _reduce(step: Step, x: Any, axes: Any = None) -> Any:
    if not is_float(x) or not x.size:
        return NotImplemented
    given = axes_of(step, x, axes)
    if not given:
        if step("noop_with_empty_axes", 0):
            return NotImplemented
        given = tuple(range(x.ndim))
    return _REDUCTIONS[step.operator](as_variable(x), tuple(sorted(set(given))), bool(step("keepdims", 1)))


@TABLE.add("Softmax", "LogSoftmax")
def _softmax(step: Step, x: Any) -> Any:
    function = F.softmax if step.operator == "Softmax" else F.log_softmax
    if step.version >= 13:
        return function(x, axis=step("axis", -1))
    axis = step("axis", 1) % x.ndim
    rows = F.reshape(x, (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))))
    return F.reshape(function(rows), x.shape)


@TABLE.add("CumSum")
def _cumsum(step: Step, x: Any, axis: Any) -> Any:
    if not is_float(x) or step("exclusive", 0):
        return NotImplemented
    along = int(np.ravel(axis)[0]) % x.ndim if isinstance(axis, np.ndarray) else None
    if along is None:
        return NotImplemented
    y = F.cumsum(F.flip(x, along) if step("reverse", 0) else x, along)
    return F.flip(y, along) if step("reverse", 0) else y


@TABLE.add("LayerNormalization")
def _layer_normalization(step: Step, x: Any, scale: Any, bias: Any = None) -> Any:
    if len([name for name in step.outputs if name]) > 1 or not is_float(x):
        return NotImplemented
    axis = step("axis", -1) % x.ndim
    shape = x.shape[axis:]
    size = int(np.prod(shape))
    rows = F.reshape(x, (-1, size))
    gamma = F.reshape(F.broadcast_to(scale, shape), (size,))
    beta = np.zeros(size, x.dtype) if bias is None else F.reshape(F.broadcast_to(bias, shape), (size,))
    return F.reshape(F.layer_normalization(rows, gamma, beta, step("epsilon", 1e-5)), x.shape)


@TABLE.add("RMSNormalization")
def _rms_normalization(step: Step, x: Any, scale: Any) -> Any:
    if not is_float(x) or x.dtype == np.float16:
        return NotImplemented
    axes = tuple(range(step("axis", -1) % x.ndim, x.ndim))
    x = as_variable(x)
    return x / F.broadcast_to(F.sqrt(_mean(x * x, axes, True) + step("epsilon", 1e-5)), x.shape) * F.broadcast_to(
        scale, x.shape)


@TABLE.add("LpNormalization")
def _lp_normalization(step: Step, x: Any) -> Any:
    axis, p = step("axis", -1), step("p", 2)
    x = as_variable(x)
    norm = F.sqrt(F.sum(x * x, axis, True)) if p == 2 else F.sum(F.absolute(x), axis, True)
    return pointwise("Share", x, norm)


@TABLE.add("MeanVarianceNormalization")
def _mean_variance_normalization(step: Step, x: Any) -> Any:
    axes = tuple(step("axes") or (0, 2, 3))
    x = as_variable(x)
    y = x - F.broadcast_to(_mean(x, axes, True), x.shape)
    return y / (F.broadcast_to(F.sqrt(_mean(y * y, axes, True)), x.shape) + 1e-9)
