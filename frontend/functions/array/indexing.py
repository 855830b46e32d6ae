"""Indexing: `get_item` (and `Variable.__getitem__`), `select_item`, `scatter_add` and `permutate`."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ... import backend
from ...backends import cuda
from ...configuration import config
from ...function_node import FunctionNode
from ...structured import Structured
from ...tape import named
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.ranges import check_range
from ...variable import Variable, as_variable
from .entries import Entry, decode, encode, spread_ellipsis


def _basic(entries: tuple[Entry, ...], shape: tuple[int, ...]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return normalised starts, stops and steps of a basic index, and the shape of the result."""
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    out: list[int] = []
    for e in spread_ellipsis(entries, len(shape)):
        if e is None:
            out.append(1)
            continue
        n = shape[len(starts)]
        if isinstance(e, int):
            a = e % n
            start, stop, step = a, a + 1, 1
        else:
            start, stop, step = slice(*e).indices(n)
            out.append(len(range(start, stop, step)))
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}, tuple(out)


class GetItem(FunctionNode):
    """Basic indexing: integers, slices, new axes."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        super().__init__()
        self.entries = entries

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        y = x[decode(self.entries)]
        return (y if isinstance(y, np.ndarray) else backend.get_array_module(x).asarray(y)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return GetItemGrad(self.entries, self.inputs[0].shape).apply((grad_outputs[0],))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        where, shape = _basic(self.entries, x.shape)
        whole = where["starts"] == (0,) * len(x.shape) and where["stops"] == x.shape and set(where["steps"]) <= {1}
        return b.reshape(x if whole else b.slice(x, **where), shape),

    def onnx(self, g: Any, x: str) -> Any:
        # As they were written: counted from either end, they mean the same whatever the extents are.
        least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        cuts: list[tuple[int, int, int, int]] = []  # axis, start, stop, step
        dropped: list[int] = []
        added: list[int] = []
        axis = at = 0
        for e in spread_ellipsis(self.entries, len(g.type(x).shape)):
            if e is None:
                added.append(at)
            elif isinstance(e, int):
                cuts.append((axis, e, most if e == -1 else e + 1, 1))
                dropped.append(axis)
                at -= 1
            else:
                start, stop, step = slice(*e).start, slice(*e).stop, slice(*e).step or 1
                if (start or 0, stop, step) != (0, None, 1):
                    ends = (0, most) if step > 0 else (most, least)
                    cuts.append((axis, ends[0] if start is None else start, ends[1] if stop is None else stop, step))
            axis += e is not None
            at += 1
        if cuts:
            axes, starts, stops, steps = (g.const(np.array(v, np.int64)) for v in zip(*cuts, strict=True))
            x = g.Slice(x, starts, stops, axes, steps)
        if dropped:
            x = g.Squeeze(x, g.const(np.array(dropped, np.int64)))
        return g.Unsqueeze(x, g.const(np.array(added, np.int64))) if added else x if cuts else g.Identity(x)


class GetItemGrad(FunctionNode):
    """Zeros of ``shape`` with the input where a basic index points."""

    def __init__(self, entries: tuple[Entry, ...], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.entries = entries
        self.shape = shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, = inputs
        gx = backend.get_array_module(g).zeros(self.shape, g.dtype)
        gx[decode(self.entries)] = g
        return gx,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return GetItem(self.entries).apply((grad_outputs[0],))

    def lower(self, b: Any, g: Any) -> tuple[Any, ...]:
        where, _ = _basic(self.entries, self.shape)
        part = [len(range(a, z, s)) for a, z, s in zip(where["starts"], where["stops"], where["steps"], strict=True)]
        g = b.reshape(g, part)
        if tuple(part) == self.shape and set(where["steps"]) <= {1}:
            return g,
        return b.one("pad_slice", g, shape=self.shape, **where),


def place(g: Any, axis: int, start: int, stop: int, shape: tuple[int, ...]) -> Variable:
    """Return zeros of ``shape`` with ``g`` at ``start:stop`` of ``axis``."""
    entries = ((None, None, None),) * (axis % len(shape)) + ((start, stop, None),)
    return GetItemGrad(entries, tuple(shape)).apply((g,))[0]


class GetItemAdvanced(FunctionNode):
    """Indexing with arrays of integers or booleans, which are inputs: ``x, *indices``.

    With ``numbers`` arrays without axes are numbers of a traced call, whose parts of ``x`` share its memory.
    """

    def __init__(self, entries: tuple[Entry, ...], numbers: bool = False) -> None:
        super().__init__()
        self.entries = entries
        self.numbers = numbers

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(tuple(range(1, len(inputs))))
        x, *arrays = inputs
        y = x[decode(self.entries, tuple([int(i) if self.numbers and not i.ndim else i for i in arrays]))]
        return (y if isinstance(y, np.ndarray) else backend.get_array_module(x).asarray(y)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        arrays = self.get_retained_inputs()
        gx = ScatterAdd(self.entries, self.inputs[0].shape).apply((grad_outputs[0], *arrays))[0]
        return tuple(gx if i == 0 else None for i in indexes)

    def lower(self, b: Any, x: Any, *arrays: Any) -> tuple[Any, ...] | None:
        rows = _rows(b, self.entries, x.shape, arrays)
        if rows is None:
            return None
        order, lead, flat, out = rows
        x = b.transpose(x, order)
        rest = x.shape[lead:]
        x = b.reshape(x, (int(np.prod(x.shape[:lead])), *rest))
        y = b.take(x, flat)
        k = len(flat.shape)
        axes = (*range(k, k + out), *range(k), *range(k + out, len(y.shape)))
        return b.transpose(y, axes),

    def onnx(self, g: Any, x: str, *arrays: str) -> Any:
        places = _places(g, self.entries, g.type(x).shape, arrays)
        return NotImplemented if places is None else g.Gather(
            g.Reshape(x, g.const(np.array([-1], np.int64))), g.const(places), axis=0)


class ScatterAdd(FunctionNode):
    """Zeros of ``shape`` to which the input is added where an index points: ``g, *indices``."""

    def __init__(self, entries: tuple[Entry, ...], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.entries = entries
        self.shape = shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, *arrays = inputs
        self.retain_inputs(tuple(range(1, len(inputs))))
        y = backend.get_array_module(g).zeros(self.shape, g.dtype)
        add_at(y, decode(self.entries, tuple(arrays)), g)
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        arrays = self.get_retained_inputs()
        g = GetItemAdvanced(self.entries).apply((grad_outputs[0], *arrays))[0]
        return tuple(g if i == 0 else None for i in indexes)

    def lower(self, b: Any, g: Any, *arrays: Any) -> tuple[Any, ...] | None:
        rows = _rows(b, self.entries, self.shape, arrays)
        if rows is None:
            return None
        order, lead, flat, out = rows
        k = len(flat.shape)
        g = b.transpose(g, (*range(out, out + k), *range(out), *range(out + k, len(g.shape))))
        turned = [self.shape[a] for a in order]
        y = b.scatter_add(flat, g, (int(np.prod(turned[:lead])), *turned[lead:]))
        back = [order.index(i) for i in range(len(order))]
        return b.transpose(b.reshape(y, turned), back),

    def onnx(self, g: Any, gy: str, *arrays: str) -> Any:
        places = _places(g, self.entries, self.shape, arrays)
        if places is None:
            return NotImplemented
        size, flat = (g.const(np.array([n], np.int64)) for n in (int(np.prod(self.shape)), -1))
        dtype = g.type(gy).dtype
        if g.opset < 16 and dtype.kind == "f" and places.size * np.prod(self.shape) < 2**22:
            # What adds to rows there is a matrix of zeros and ones.
            chosen = np.arange(int(np.prod(self.shape)))[:, None] == places.reshape(1, -1)
            y = g.MatMul(g.const(chosen.astype(dtype)), g.Reshape(gy, g.const(np.array([-1, 1], np.int64))))
            return g.Reshape(y, g.const(np.array(self.shape, np.int64)))
        zeros = g.ConstantOfShape(size, value=np.zeros(1, dtype))
        y = g.ScatterND(zeros, g.const(places.reshape(-1, 1)), g.Reshape(gy, flat), reduction="add")
        return g.Reshape(y, g.const(np.array(self.shape, np.int64)))


class Scatter(ScatterAdd):
    """`ScatterAdd` that refuses an input that has not the shape of what the index takes."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, *arrays = inputs
        whole = np.broadcast_to(_NOTHING, self.shape)
        _expect_shape(g.shape, whole[decode(self.entries, tuple(map(_of_shape, arrays)))].shape)
        return super().forward(inputs)


def _of_shape(indices: Any) -> Any:
    """Return an array of NumPy that takes as many elements: on a card only a mask has to be read for that."""
    if type(indices) is np.ndarray or indices.dtype.kind == "b":
        return backend.CpuDevice().send(indices)
    return np.zeros(indices.shape, indices.dtype)


_NOTHING = np.zeros((), bool)


def example_masks(function: FunctionNode, inputs: Any, outputs: Any) -> list[Any] | None:
    """Return masks that take as many elements as a function with an index took, None for each index that is no mask.

    ``inputs`` and ``outputs`` have shapes and dtypes. None where the function has no masks.
    """
    if not isinstance(function, (GetItemAdvanced, ScatterAdd)) or all(a.dtype.kind != "b" for a in inputs[1:]):
        return None
    whole, part = (inputs[0].shape, outputs[0].shape) if isinstance(function, GetItemAdvanced) else (
        function.shape, inputs[0].shape)
    whole = np.broadcast_to(_NOTHING, whole)
    for count in dict.fromkeys((*part, 0, 1)):
        masks = [np.arange(a.size).reshape(a.shape) < count if a.dtype.kind == "b" else None for a in inputs[1:]]
        index = tuple([np.zeros(a.shape, int) if m is None else m for a, m in zip(inputs[1:], masks, strict=True)])
        try:
            if whole[decode(function.entries, index)].shape == part:
                return masks
        except IndexError:  # so many do not go with the other arrays
            continue
    return None


def _expect_shape(shape: tuple[int, ...], part: tuple[int, ...]) -> None:
    if shape != part:
        raise ValueError(f"scatter_add: b should have the shape of a[slices], {part}, but has {shape}; broadcast it "
                         "with broadcast_to")


def _places(g: Any, entries: tuple[Entry, ...], shape: tuple[int, ...], arrays: tuple[str, ...]) -> Any:
    """Return where in the flattened operand an index points, or None when it is not known at export."""
    known = [g.value(a) for a in arrays]
    if any(v is None for v in known):
        return None
    return np.arange(int(np.prod(shape))).reshape(shape)[decode(entries, tuple(known))]


def _rows(b: Any, entries: tuple[Entry, ...], shape: tuple[int, ...],
          arrays: tuple[Any, ...]) -> tuple[list[int], int, Any, int] | None:
    """Return an advanced index as rows of a flattened leading axis, or None where it is not that simple.

    The result is the order that brings the indexed axes to the front, their number, the flat indices, and how many
    axes stand before them in the result. Only whole slices may stand beside integer arrays, which must be neighbours.
    """
    if any(e is None for e in entries) or not arrays or any(v.tensor.dtype.kind not in "iu" for v in arrays):
        return None
    spread = spread_ellipsis(entries, len(shape))
    at = [i for i, e in enumerate(spread) if e == "@"]
    if at != list(range(at[0], at[0] + len(at))) or any(
            e != "@" and e != (None, None, None) for e in spread):
        return None
    order = [*at, *(i for i in range(len(shape)) if i not in at)]
    flat: Any = None
    for i, a in zip(at, arrays, strict=True):
        n = shape[i]
        if len(at) > 1:  # one out of range might lead to a row of another one; a single one is looked up as it is
            a = b.cast(looked_up(b, a, n), np.int64)
        flat = a if flat is None else b.map(lambda flat, a, n=n: flat * n + a, flat, a)
    return order, len(at), flat, at[0]


def add_at(y: Any, index: Any, g: Any) -> None:
    """Add ``g`` to ``y[index]``, as often as a place is named."""
    backend.get_array_module(y).add.at(y, index, g)


def _as_chainer_reads(slices: Any) -> Any:
    """Return a list of anything but integers and booleans as a tuple, which NumPy took it for in Chainer's days."""
    if isinstance(slices, list) and not all([isinstance(s, int) for s in slices]):
        return tuple(slices)
    return slices


def get_item(x: Any, slices: Any) -> Variable:
    """``x[slices]``: basic and advanced indexing as in NumPy.

    Args:
        x: Input.
        slices: Integers, slices, ``...``, ``None``, lists, integer or boolean arrays, or a tuple of these. A list of
            other things than integers is read as a tuple.

    Raises:
        IndexError: The index does not fit.
    """
    if type(slices) is int:
        return GetItem((slices,)).apply((x,))[0]
    entries, arrays = encode(_as_chainer_reads(slices))
    arrays = cuda.beside(x, arrays)
    if not arrays and not any(isinstance(e, tuple) and e and e[0] == "#" for e in entries):
        return GetItem(entries).apply((x,))[0]
    numbers = any(isinstance(s, (int, np.integer)) and hasattr(s, "kusari_array")
                  for s in (slices if isinstance(slices, tuple) else (slices,)))
    return GetItemAdvanced(entries, numbers).apply((x, *arrays))[0]


Variable.__getitem__ = get_item  # type: ignore[method-assign]


def scatter_add(a: Any, slices: Any, b: Any) -> Variable:
    """Add ``b`` to ``a[slices]``, as often as a place is named, and return the result.

    Args:
        a: Input.
        slices: An index as of `get_item`.
        b: What to add, of the shape of ``a[slices]``.

    Raises:
        InvalidType: The index names more axes than there are.
        IndexError: The index does not fit.
        ValueError: ``b`` has another shape.
    """
    a = as_variable(a)
    entries, arrays = encode(slices)
    arrays = cuda.beside(a, arrays)
    if (named := sum(e is not None and e != "..." for e in entries)) > a.ndim:
        raise type_check.InvalidType(f"a.ndim >= {named}", f"{a.ndim}",
                                     "\nInvalid operation is performed in: ScatterAdd (Forward)")
    if len(arrays) or any(isinstance(e, tuple) and e and e[0] == "#" for e in entries):
        return a + Scatter(entries, a.shape).apply((b, *arrays))[0]
    _expect_shape(b.shape, np.broadcast_to(_NOTHING, a.shape)[decode(entries)].shape)
    return a + GetItemGrad(entries, a.shape).apply((b,))[0]


class SelectItem(Structured):
    """``x[i, t[i]]`` of every row: inputs ``x, t``."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t"))
        x_type, t_type = in_types
        type_check.expect(t_type.dtype.kind == "i", x_type.ndim == 2, t_type.ndim == 1,
                          x_type.shape[0] == t_type.shape[0])

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # one call
        x, t = inputs
        check_range("t", t, x.shape[1])
        return x[backend.get_array_module(x).arange(len(t)), t],

    def lower(self, b: Any, x: Any, t: Any) -> tuple[Any, ...]:
        return b.reshape(b.gather(x, b.reshape(t, (*t.shape, 1)), 1), t.shape),


def looked_up(b: Any, t: Any, n: int) -> Any:
    """Return ``t`` as indices from 0 to ``n``, negative ones from the end; a lookup tells where one points nowhere."""
    return b.take(b.arange(n), t)


def select_item(x: Any, t: Any) -> Variable:
    """Select one element of every row: ``x[i, t[i]]``.

    Args:
        x: Input of shape (N, C).
        t: Integers of shape (N,).

    Raises:
        InvalidType: The shapes or dtypes do not fit.
        IndexError: An index is out of range.
    """
    return SelectItem().apply((x, t))[0]


class InversePermutation(Structured):
    """Where each index stands among integers that are every index once."""

    def evaluate(self, inputs: tuple[Any, ...]) -> Any:
        t, xp = inputs[0], backend.get_array_module(inputs[0])
        y = xp.zeros_like(t)
        add_at(y, (t,), xp.arange(len(t), dtype=t.dtype))
        return y,

    def lower(self, b: Any, t: Any) -> tuple[Any, ...]:
        n = t.shape[0]
        return b.scatter_add(looked_up(b, t, n), b.cast(b.arange(n), t.tensor.dtype), (n,)),

    def onnx(self, g: Any, t: str) -> Any:
        shape, dtype = g.type(t).shape, g.type(t).dtype
        zeros, numbers = g.const(np.zeros(shape, dtype)), g.const(np.arange(*shape, dtype=dtype))
        return (g.ScatterElements if g.opset >= 11 else g.Scatter)(zeros, t, numbers, axis=0)


@named("Permutate", "indices")
@for_arrays
def permutate(x: Any, indices: Any, axis: int = 0, inv: bool = False) -> Variable:
    """Reorder an axis.

    Args:
        x: Input.
        indices: Integers, one per index of the axis: where each element of the result comes from.
        axis: The axis.
        inv: Whether to apply the inverse: where each element goes to.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    x = as_variable(x)
    indices = indices.array if isinstance(indices, Variable) else indices
    axis = operator.index(axis) % x.ndim
    if indices.dtype.kind != "i" or indices.ndim != 1 or indices.shape[0] != x.shape[axis]:
        raise type_check.InvalidType(f"indices: {x.shape[axis]} integers", f"{indices.dtype}{indices.shape}",
                                     "\nInvalid operation is performed in: Permutate (Forward)")
    check_range("indices", indices, x.shape[axis])
    if config.debug and len(set(indices.tolist())) < len(indices):
        raise ValueError(f"indices contain a value twice: {indices}")
    if inv:
        indices = InversePermutation().apply((backend.from_chx(indices),))[0].array
    return get_item(x, (*(slice(None),) * axis, indices))
