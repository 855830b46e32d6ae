"""The parts of a CuPy ``ElementwiseKernel``: parameters, and the operation on one element."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kusari.ir import DType, Expr

from ..text.dialect import cuda_source
from ..text.helpers import Helpers
from .expressions import Expressions


@dataclass(frozen=True)
class Elementwise:
    """Arguments of ``cupy.ElementwiseKernel(inputs, outputs, operation, name, preamble=preamble)``.

    Inputs are ``a0``, ``a1`` … and outputs ``y0``, ``y1`` …; CuPy broadcasts and walks over any strides.
    """

    inputs: str
    outputs: str
    operation: str
    preamble: str
    name: str = "kusari_map"


def elementwise_text(exprs: Sequence[Expr], dtypes: Sequence[DType]) -> Elementwise:
    """The kernel that computes ``exprs`` of inputs of ``dtypes``; a subtree they share is computed once.

    >>> from kusari.ir import Arg, Call, Lit
    >>> text = elementwise_text([Call("maximum", (Arg(0), Lit(0)))], [np.dtype("float32")])
    >>> print(text.inputs, "->", text.outputs)
    float32 a0 -> float32 y0
    >>> print(text.operation)
    const f32 v0 = a0;
    const f32 v1 = (v0 >= 0.0f || v0 != v0 ? v0 : 0.0f);
    y0 = v1;
    """
    helpers = Helpers()
    lines: list[str] = []
    writer = Expressions(lines.append, [(f"a{i}", np.dtype(d)) for i, d in enumerate(dtypes)], helpers)
    found = [writer.write(e) for e in exprs]
    stores = [f"y{o} = {value};" for o, (value, _) in enumerate(found)]
    inputs = ", ".join(f"{np.dtype(d).name} a{i}" for i, d in enumerate(dtypes))
    outputs = ", ".join(f"{kind.name} y{o}" for o, (_, kind) in enumerate(found))
    return Elementwise(inputs, outputs, "\n".join(lines + stores), cuda_source(helpers.text()))
