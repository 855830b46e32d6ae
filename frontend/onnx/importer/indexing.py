"""Operators that pick elements by indices."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...variable import Variable, as_variable
from .elementwise import pointwise
from .program import Step
from .registry import Table, is_float

TABLE = Table()


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Variable) else x


@TABLE.add("Gather")
def _gather(step: Step, x: Any, indices: Any) -> Any:
    axis = step("axis", 0) % max(x.ndim, 1)
    if not is_float(x):
        return NotImplemented
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        return as_variable(x)[(*(slice(None),) * axis, int(indices))]
    if axis == 0 and x.ndim == 2 and isinstance(indices, Variable):
        return F.embed_id(indices, x)
    return as_variable(x)[(*(slice(None),) * axis, _array(indices))]


@TABLE.add("GatherElements")
def _gather_elements(step: Step, x: Any, indices: Any) -> Any:
    if not is_float(x):
        return NotImplemented
    axis = step("axis", 0) % x.ndim
    key = list(np.indices(indices.shape, sparse=True))
    key[axis] = _array(indices)
    return as_variable(x)[tuple(key)]


@TABLE.add("GatherND")
def _gather_nd(step: Step, x: Any, indices: Any) -> Any:
    if not is_float(x) or step("batch_dims", 0):
        return NotImplemented
    return as_variable(x)[tuple(np.moveaxis(_array(indices), -1, 0))]


@TABLE.add("ArgMax", "ArgMin")
def _arg(step: Step, x: Any) -> Any:
    if not is_float(x) or step("select_last_index", 0) or x.dtype == np.float16:
        return NotImplemented
    axis = step("axis", 0) % x.ndim
    found = (F.argmax if step.operator == "ArgMax" else F.argmin)(x, axis)
    shape = tuple([1 if i == axis else n for i, n in enumerate(x.shape)])
    y = F.reshape(found, shape) if step("keepdims", 1) else found
    return pointwise("Cast", y, constants=("int64",))
