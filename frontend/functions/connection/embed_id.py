"""Embedding of identifiers."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import where

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.ranges import check_range
from ...variable import Variable
from ..array.indexing import add_at


class EmbedID(FunctionNode):
    """Rows ``W[x]``: inputs ``x, W``."""

    def __init__(self, ignore_label: int | None) -> None:
        super().__init__()
        self.ignore_label = ignore_label

    @property
    def label(self) -> str:
        return "EmbedIDFunction"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "W"))
        x_type, w_type = in_types
        type_check.expect(x_type.dtype.kind == "i", x_type.ndim >= 1, w_type.dtype.kind == "f", w_type.ndim == 2)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, W = inputs
        self.retain_inputs((0,))
        xp = backend.get_array_module(x)
        check_range("x", x, len(W), self.ignore_label)
        if self.ignore_label is None:
            return W[x],
        used = x != self.ignore_label
        return xp.where(used[..., None], W[xp.where(used, x, 0)], W.dtype.type(0)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = self.get_retained_inputs()
        gW = EmbedIDGrad(self.ignore_label, self.inputs[1].shape).apply((x, grad_outputs[0]))[0]
        return tuple(gW if i == 1 else None for i in indexes)

    def lower(self, b: Any, x: Any, W: Any) -> tuple[Any, ...]:
        if self.ignore_label is None:
            return b.take(W, x),
        return _ignored(b, self.ignore_label, x, b.take(W, _safe(b, self.ignore_label, x))),

    def onnx(self, g: Any, x: str, W: str) -> Any:
        return g.Gather(W, x, axis=0) if self.ignore_label is None else NotImplemented


def _safe(b: Any, ignore: int, x: Any) -> Any:
    return b.map(lambda x: where(x == ignore, 0, x), x)


def _ignored(b: Any, ignore: int, x: Any, rows: Any) -> Any:
    return b.map(lambda x, row: where(x == ignore, 0.0, row), b.reshape(x, (*x.shape, 1)), rows)


class EmbedIDGrad(FunctionNode):
    """Rows of the gradient added up by identifier: inputs ``x, gy``."""

    def __init__(self, ignore_label: int | None, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.shape = shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gy = inputs
        self.retain_inputs((0,))
        xp = backend.get_array_module(x)
        gW = xp.zeros(self.shape, gy.dtype)
        if self.ignore_label is not None:
            used = x != self.ignore_label
            if xp is np:
                x, gy = x[used], gy[used]
            else:  # how many are used is not known on the host
                x, gy = xp.where(used, x, 0), xp.where(used[..., None], gy, gy.dtype.type(0))
        if xp is np and x.size > 64 and x.size * 2 > self.shape[0]:
            # A product with an indicator matrix is out of the question for large vocabularies: sort and add runs.
            flat = x.reshape(-1) % self.shape[0]
            order = np.argsort(flat, kind="stable")
            rows, starts = np.unique(flat[order], return_index=True)
            gW[rows] = np.add.reduceat(gy.reshape(len(order), self.shape[1])[order], starts, axis=0)
        else:
            add_at(gW, x, gy)
        return gW,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = self.get_retained_inputs()
        g = EmbedID(self.ignore_label).apply((x, grad_outputs[0]))[0]
        return tuple(g if i == 1 else None for i in indexes)

    def lower(self, b: Any, x: Any, gy: Any) -> tuple[Any, ...]:
        if self.ignore_label is not None:
            gy = _ignored(b, self.ignore_label, x, gy)
            x = _safe(b, self.ignore_label, x)
        return b.scatter_add(x, gy, self.shape),


def embed_id(x: Any, W: Any, ignore_label: int | None = None) -> Variable:
    """Look up a row of ``W`` for every identifier.

    Args:
        x: Integer identifiers of any shape with at least one axis.
        W: Embeddings of shape (number of identifiers, size).
        ignore_label: An identifier that stands for zeros.

    Raises:
        InvalidType: The dtypes or shapes do not fit.
        IndexError: An identifier is out of range.
    """
    return EmbedID(None if ignore_label is None else int(ignore_label)).apply((x, W))[0]
