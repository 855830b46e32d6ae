"""How variables show themselves."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from . import tape
from .backends import cuda


def _statistics(array: Any) -> str:
    return f"mean={float(array.mean()):.8f}, std={float(array.std()):.8f}" if array.size else "empty"


class VariableText:
    """The texts of a `Variable`, which is the only class that derives from this one."""

    _array: Any
    _name: str | None
    grad: Any
    creator_node: Any
    item: Callable[[], Any]

    def summary(self) -> str:
        """Return ``<variable name>``, or the address where there is no name."""
        return f"<variable {self._name}>" if self._name is not None else f"<variable at {id(self):#x}>"

    def debug_print(self) -> str:
        """Return a text of the variable's place, type, mean and standard deviation."""
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "debug_print()")

        grad, array = self.grad, self._array
        if array is None:
            names = "device", "backend", "shape", "dtype", "statistics", "grad"
            return "\n".join([self.summary(), *[f"- {name}: None" for name in names]])
        where = "CPU" if isinstance(array, numpy.ndarray) else f"GPU {array.device.id}"
        return (
            f"{self.summary()}\n- device: {where}\n- backend: {type(array)}\n- shape: {array.shape}\n"
            f"- dtype: {array.dtype}\n- statistics: {_statistics(array)}\n"
            f"- grad: {'None' if grad is None else '0' if not grad.any() else _statistics(grad)}"
        )

    def _show(self, style: Callable[..., str], separator: str) -> str:
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "repr()")
        prefix = "variable" if self._name is None else f"variable {self._name}"
        if self._array is None:
            return f"{prefix}(None)"
        array = cuda.to_cpu(self._array)
        # Brackets alone do not tell (0, 3) from (2, 0).
        shape = f", shape={array.shape}" if separator == ", " and array.size == 0 and array.ndim > 1 else ""
        return f"{prefix}({style(array, separator=separator, prefix=prefix + '(')}{shape})"

    def _repr_html_(self) -> str:
        from .explanation import facts  # notebooks only

        text, array = repr(self), self._array
        if array is None:
            return facts(self.summary(), [("array", None)]).html
        rows = [("shape", array.shape), ("dtype", array.dtype), ("creator", getattr(self.creator_node, "label", "-")),
                ("gradient", "no" if self.grad is None else "yes")]
        return facts(self.summary(), rows, text).html

    def __format__(self, spec: str) -> str:
        """Format a variable of one element as its value, ``f"{loss:.3f}"``; without a format any as ``str`` does."""
        return format(self.item() if spec else str(self), spec)

    def __repr__(self) -> str:
        return self._show(numpy.array2string, ", ")

    def __str__(self) -> str:
        return self._show(numpy.array2string, " ")
