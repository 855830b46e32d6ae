"""The parts of a CuPy ``ElementwiseKernel``: parameters, and the operation on one element."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kusari.ir import Arg, DType, Expr, Lit, walk

from ..promotion import loop_types
from .helpers import Helpers
from .nest import constant
from .scalars import literal, spell, type_name


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

    >>> from kusari.ir import Call
    >>> text = elementwise_text([Call("maximum", (Arg(0), Lit(0)))], [np.dtype("float32")])
    >>> print(text.inputs, "->", text.outputs)
    float32 a0 -> float32 y0
    >>> print(text.operation)
    const float v0 = a0;
    const float v1 = (v0 >= 0.0f || v0 != v0 ? v0 : 0.0f);
    y0 = v1;
    """
    helpers = Helpers()
    lines: list[str] = []
    done: dict[Expr, tuple[str | Lit, DType | type]] = {}

    def name(text: str, dtype: DType) -> str:
        found = f"v{len(lines)}"
        lines.append(f"const {type_name(dtype)} {found} = {text};")
        return found

    outputs: list[str] = []
    stores: list[str] = []
    for o, expr in enumerate(exprs):
        for e in walk(expr):
            if e in done:
                continue
            if isinstance(e, Arg):
                dtype = np.dtype(dtypes[e.index])
                done[e] = name(f"a{e.index}", dtype), dtype
            elif isinstance(e, Lit):
                done[e] = e, type(e.value)
            else:
                operands = [done[a] for a in e.args]
                literals = [a for a, _ in operands if isinstance(a, Lit)]
                if len(literals) == len(operands):
                    text, dtype = constant(e.fn, literals)
                else:
                    kinds = tuple(k for _, k in operands)
                    dtype = loop_types(e.fn, kinds)[-1]
                    text = spell(e.fn, [a for a, _ in operands], kinds, helpers)
                done[e] = name(text, dtype), dtype
        value, kind = done[expr]
        if isinstance(value, Lit):
            kind = np.asarray(value.value).dtype
            value = literal(value.value, kind)
        stores.append(f"y{o} = {value};")
        outputs.append(f"{np.dtype(kind).name} y{o}")
    inputs = ", ".join(f"{np.dtype(d).name} a{i}" for i, d in enumerate(dtypes))
    return Elementwise(inputs, ", ".join(outputs), "\n".join(lines + stores), helpers.text())
