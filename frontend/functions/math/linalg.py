"""Contractions, and affine maps along axes."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...structured import Structured
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.axes import transpose
from ..array.rearrange import diagonal
from ..array.shape import reshape
from .contraction import contract
from .matmul import product


def tensordot(a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Variable:
    """Sum of products over axes, as ``numpy.tensordot``.

    Args:
        a: Floating-point input.
        b: Floating-point input.
        axes: Number of axes (the last of ``a``, the first of ``b``), or a pair of lists of axes.

    Raises:
        ValueError: The axes' extents or numbers differ.
    """
    a, b = as_variable(a), as_variable(b)
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([v] if isinstance(v, int) else list(v) for v in axes)
        left, right = [v % a.ndim for v in left], [v % b.ndim for v in right]
    if len(left) != len(right) or any(a.shape[i] != b.shape[j] for i, j in zip(left, right, strict=True)):
        raise ValueError(f"tensordot: axes {left} of {a.shape} do not fit axes {right} of {b.shape}")
    rest_a = [i for i in range(a.ndim) if i not in left]
    rest_b = [i for i in range(b.ndim) if i not in right]
    k = int(np.prod([a.shape[i] for i in left], dtype=int))
    x = reshape(_ordered(a, rest_a + left), (int(np.prod([a.shape[i] for i in rest_a], dtype=int)), k))
    y = reshape(_ordered(b, right + rest_b), (k, int(np.prod([b.shape[i] for i in rest_b], dtype=int))))
    return reshape(product(x, y), tuple([a.shape[i] for i in rest_a] + [b.shape[i] for i in rest_b]))


def _ordered(x: Any, order: list[int]) -> Any:
    return x if order == list(range(x.ndim)) else transpose(x, order)


class EinSum(Structured):
    """Sum of products in Einstein's notation: every label of an input is among those of the others or the output."""

    def __init__(self, inputs: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.terms = inputs
        self.output = output

    def check_type_forward(self, in_types: Any) -> None:
        for i, term in enumerate(self.terms):
            type_check.expect(in_types[i].dtype.kind == "f", in_types[i].ndim == len(term))
        first: dict[str, tuple[int, int]] = {}
        for i, term in enumerate(self.terms):
            for axis, label in enumerate(term):
                j, other = first.setdefault(label, (i, axis))
                type_check.expect(in_types[j].shape[other] == in_types[i].shape[axis])

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        dtypes = [x.tensor.dtype for x in inputs]
        wide = np.result_type(*dtypes)
        y = contract(b, self.terms, self.output, inputs, np.float32 if wide == np.float16 else wide)
        return b.cast(y, wide),

    def onnx(self, g: Any, *xs: str) -> Any:
        return g.Einsum(*xs, equation=f"{','.join(self.terms)}->{self.output}")


def einsum(*operands: Any) -> Variable:
    """Sum of products in Einstein's notation, as ``numpy.einsum``.

    Args:
        operands: The subscripts, such as ``"ij,jk->ik"``, and the floating-point inputs; or each input followed by a
            list of the numbers of its axes' labels, and at the end that of the result, if any. An ellipsis stands for
            axes of any number.

    Raises:
        ValueError: The subscripts do not fit the inputs, or the output repeats a label or has one of its own.
        TypeError: Lists of labels hold something else than integers and ellipses.
        InvalidType: An input is not floating-point, or has another number of axes.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.einsum("ij,kj->ik", np.ones((2, 3), "f"), np.ones((4, 3), "f")).shape
    (2, 4)
    """
    if not operands:
        raise ValueError("einsum takes subscripts and inputs: einsum('ij,jk->ik', a, b)")
    subscripts, *xs = operands if isinstance(operands[0], str) else _written(operands)
    left, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ValueError(f"einsum: {len(terms)} subscripts for {len(xs)} inputs: {subscripts!r}")
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in subscripts]
    widths = [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, xs, strict=True) if "..." in t]
    widest = max(widths, default=0)
    names = "".join(free[:widest])
    if not arrow:
        letters = "".join(terms).replace("...", "")
        output = ("..." if widths else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    full = [t.replace("...", names[widest - (x.ndim - len(t.replace("...", ""))):] if "..." in t else "")
            for t, x in zip(terms, xs, strict=True)]
    if widest and "..." not in output:
        raise ValueError(f"einsum: the axes of the ellipsis would be summed over, {subscripts!r}: give them labels")
    if "..." in output and not widths:
        raise ValueError(f"einsum: no input has the ellipsis of the output, {subscripts!r}")
    output = output.replace("...", names)
    if len(set(output)) != len(output):
        raise ValueError(f"einsum: a label is repeated within the output {output!r}")
    if missing := sorted(set(output) - set("".join(full))):
        raise ValueError(f"einsum: the output's label {missing[0]!r} is not among those of the inputs, {subscripts!r}")
    pairs = [_diagonals(t, x) for t, x in zip(full, xs, strict=True)]
    return EinSum(tuple([t for t, _ in pairs]), output).apply(tuple([x for _, x in pairs]))[0]


def _written(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return operands with lists of numbered labels, ``a, [0, 1], b, [1, 2], [0, 2]``, as ``"AB,BC->AC", a, b``."""
    def term(labels: Any) -> str:
        if not isinstance(labels, (list, tuple)) or not all(
                v is Ellipsis or (isinstance(v, (int, np.integer)) and 0 <= v < len(letters)) for v in labels):
            raise TypeError("einsum: each input must be followed by a list of its labels, which are integers from 0 to "
                            f"{len(letters) - 1} and Ellipsis, got {labels!r}")
        return "".join(["..." if v is Ellipsis else letters[v] for v in labels])
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    n = len(operands) // 2 * 2
    subscripts = ",".join([term(labels) for labels in operands[1:n:2]])
    return (subscripts + ("->" + term(operands[-1]) if len(operands) > n else ""), *operands[:n:2])


def _diagonals(term: str, x: Any) -> tuple[str, Any]:
    """Return ``x`` and its labels with a diagonal taken where a label stands twice, so that none does."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            if x.ndim != len(term) or x.shape[i] != x.shape[j]:
                raise type_check.InvalidType(f"axes of one extent for {c!r} in {term!r}", f"shape {x.shape}",
                                             "\nInvalid operation is performed in: EinSum (Forward)")
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1:j] + term[j + 1:] + c
    return term, x


def _along(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    x, y = as_variable(x), as_variable(y)
    axis = operator.index(axis) % max(x.ndim, 1)
    if x.shape[axis:axis + y.ndim] != y.shape:
        raise type_check.InvalidType(f"y.shape == x.shape[{axis}:{axis + y.ndim}]",
                                     f"{y.shape} != {x.shape[axis:axis + y.ndim]}")
    return x, reshape(y, (*(1,) * axis, *y.shape, *(1,) * (x.ndim - axis - y.ndim)))


def bias(x: Any, y: Any, axis: int = 1) -> Variable:
    """``x + y``, where the axes of ``y`` are those of ``x`` from ``axis`` on.

    Raises:
        InvalidType: The shapes do not fit.
    """
    x, y = _along(x, y, axis)
    return x + y


def scale(x: Any, y: Any, axis: int = 1) -> Variable:
    """``x * y``, where the axes of ``y`` are those of ``x`` from ``axis`` on.

    Raises:
        InvalidType: The shapes do not fit.
    """
    x, y = _along(x, y, axis)
    return x * y
