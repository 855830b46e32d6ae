"""Elements repeated, flipped, padded and chosen."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backend
from ...backends import cuda
from ...broadcasting import broadcast_to
from ...function_node import FunctionNode
from ...structured import Structured
from ...tape import named
from ...utils import type_check
from ...variable import Variable, as_variable
from .axes import transpose
from .indexing import GetItem, ScatterAdd, get_item
from .join import stack
from .shape import reshape


class Flip(Structured):
    """Reverse an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.ndim > 0)
        if self.axis >= 0:
            type_check.expect(x_type.ndim > self.axis)
        else:
            type_check.expect(x_type.ndim >= -self.axis)

    def _entries(self, ndim: int) -> tuple[Any, ...]:
        return (*((None, None, None),) * (self.axis % ndim), (None, None, -1))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return GetItem(self._entries(len(x.shape))).lower(b, x)

    def onnx(self, g: Any, x: str) -> Any:
        return GetItem(self._entries(len(g.type(x).shape))).onnx(g, x)


def flip(x: Any, axis: int) -> Variable:
    """Reverse the order of elements along an axis.

    Raises:
        InvalidType: The axis does not exist.
        TypeError: ``axis`` is no integer.
    """
    return Flip(operator.index(axis)).apply((x,))[0]


def flipud(a: Any) -> Variable:
    """Reverse axis 0."""
    return flip(a, 0)


def fliplr(a: Any) -> Variable:
    """Reverse axis 1."""
    return flip(a, 1)


@named("Tile")
def tile(x: Any, reps: int | Sequence[int]) -> Variable:
    """Repeat an input along its axes, as ``numpy.tile``.

    Args:
        x: Input.
        reps: Number of copies along each axis (the last ones, if fewer; further axes in front, if more).

    Raises:
        ValueError: A number is negative.
        TypeError: ``reps`` is no int and no sequence of ints.
    """
    times = _counts("reps", reps)
    x = as_variable(x)
    shape = (1,) * (len(times) - x.ndim) + x.shape
    times = (1,) * (x.ndim - len(times)) + times
    split = [v for n in shape for v in (1, n)]
    wide = [v for r, n in zip(times, shape, strict=True) for v in (r, n)]
    return reshape(broadcast_to(reshape(x, tuple(split)), tuple(wide)),
                   tuple([r * n for r, n in zip(times, shape, strict=True)]))


def _counts(name: str, counts: Any) -> tuple[int, ...]:
    """Return one or several numbers of copies as a tuple; raises for what is none."""
    if isinstance(counts, (int, np.integer)):
        counts = (counts,)
    elif not (isinstance(counts, (tuple, list)) and all(isinstance(r, (int, np.integer)) for r in counts)):
        raise TypeError(f"{name} must be an int or a tuple of ints, got {counts!r}")
    if any(r < 0 for r in counts):
        raise ValueError(f"all elements in {name} must be zero or larger, got {counts}")
    return tuple([int(r) for r in counts])


@named("Repeat")
def repeat(x: Any, repeats: int | Sequence[int], axis: int | None = None) -> Variable:
    """Repeat every element, as ``numpy.repeat``.

    Args:
        x: Input.
        repeats: How often; one number, or one per index of the axis.
        axis: The axis; None flattens the input first.

    Raises:
        ValueError: A number is negative, or there are not as many as indices.
        TypeError: ``repeats`` is no int and no tuple of ints, or ``axis`` no int.
    """
    times = _counts("repeats", repeats)
    if isinstance(axis, bool):
        raise TypeError(f"axis must be None or an int, got {axis}")
    x = as_variable(x)
    if axis is None:
        x, along = reshape(x, (-1,)) if x.ndim != 1 else x, 0
    elif -x.ndim <= axis < x.ndim:
        along = axis % x.ndim
    else:
        raise type_check.InvalidType(f"{-x.ndim} <= axis < {x.ndim}", f"axis = {axis}")
    lead, n, rest = x.shape[:along], x.shape[along], x.shape[along + 1:]
    if len(times) == 1:
        wide = broadcast_to(reshape(x, (*lead, n, 1, *rest)), (*lead, n, times[0], *rest))
        return reshape(wide, (*lead, n * times[0], *rest))
    if len(times) != n:
        raise ValueError(f"repeats has {len(times)} entries, but axis {along} has extent {n}")
    index = [i for i, r in enumerate(times) for _ in range(r)]
    return get_item(x, (*(slice(None),) * along, index))


class Pad(FunctionNode):
    """A value around an input."""

    def __init__(self, widths: tuple[tuple[int, int], ...], value: float, floats_only: bool = True) -> None:
        super().__init__()
        self.widths = widths
        self.value = value
        self.floats_only = floats_only

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        if self.floats_only:
            type_check.expect(in_types[0].dtype.kind == "f")

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        widths = self.widths or 0  # NumPy refuses to see no widths in an empty tuple
        return backend.get_array_module(x).pad(x, widths, "constant", constant_values=self.value),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        inner = tuple([slice(a, a + n) for (a, _), n in zip(self.widths, self.inputs[0].shape, strict=True)])
        return get_item(grad_outputs[0], inner),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        shape = tuple([a + n + z for (a, z), n in zip(self.widths, x.shape, strict=True)])
        where = {"starts": tuple([a for a, _ in self.widths]), "steps": (1,) * len(shape),
                 "stops": tuple([a + n for (a, _), n in zip(self.widths, x.shape, strict=True)])}
        if self.value == 0:
            return b.one("pad_slice", x, shape=shape, **where),
        # Zero is the identity of what is placed: shift by the value, pad, shift back.
        inside = b.one("pad_slice", b.full(x.shape, 1, x.tensor.dtype), shape=shape, **where)
        y = b.one("pad_slice", x, shape=shape, **where)
        return b.cast(b.call("where", b.call("not_equal", inside, 0), y, self.value), x.tensor.dtype),

    def onnx(self, g: Any, x: str) -> Any:
        pads = [a for a, _ in self.widths] + [z for _, z in self.widths]
        return g.Pad(x, g.const(np.array(pads, np.int64)), g.const(np.array(self.value, g.type(x).dtype)))


class PadIndexed(FunctionNode):
    """A padding that repeats elements of the input (``edge``, ``reflect``, ``symmetric``, ``wrap``)."""

    def __init__(self, widths: tuple[tuple[int, int], ...], mode: str) -> None:
        super().__init__()
        self.widths = widths
        self.mode = mode

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f")

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        return backend.get_array_module(x).pad(x, self.widths, self.mode),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # Where each element came from, as flat indices: padding the indices pads like the values.
        shape = self.inputs[0].shape
        source = np.pad(np.arange(int(np.prod(shape))).reshape(shape), self.widths, self.mode)  # type: ignore[call-overload]
        n = int(np.prod(shape))
        gy = reshape(grad_outputs[0], (-1,))
        flat = ScatterAdd((("#", tuple(source.ravel().tolist())),), (n,)).apply((gy,))[0]
        return reshape(flat, shape),

    def onnx(self, g: Any, x: str) -> Any:
        shape = g.type(x).shape
        if self.mode != "edge" and (self.mode != "reflect" or any(
                max(w) >= n for w, n in zip(self.widths, shape, strict=True))):
            places = np.pad(np.arange(int(np.prod(shape))).reshape(shape), self.widths,
                            self.mode)  # type: ignore[call-overload]
            return g.Gather(g.Reshape(x, g.const(np.array([-1], np.int64))), g.const(places), axis=0)
        pads = [a for a, _ in self.widths] + [z for _, z in self.widths]
        return g.Pad(x, g.const(np.array(pads, np.int64)), mode=self.mode)


def pad(x: Any, pad_width: Any, mode: str, **keywords: Any) -> Variable:
    """Pad an input, as ``numpy.pad``.

    Args:
        x: Floating-point input.
        pad_width: Widths before and after, for every axis or for all.
        mode: ``"constant"`` (with ``constant_values``, 0 by default: one number, or one before and one after, for
            every axis or for all), ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``.

    Raises:
        ValueError: The mode is another one, or widths are not those of the axes of ``x``.
        InvalidType: ``x`` is not floating-point.
    """
    x = as_variable(x)
    try:
        widths = tuple([(int(a), int(z)) for a, z in np.broadcast_to(pad_width, (x.ndim, 2))])
    except ValueError:
        raise ValueError(f"pad_width is {pad_width!r}, and x has {x.ndim} axes, of {x.shape}: it is one number, one "
                         "pair (before, after) for all axes, or a pair for each") from None
    if mode == "constant":
        value = keywords.pop("constant_values", 0)
        if keywords:
            raise TypeError(f"pad got an unexpected keyword argument {next(iter(keywords))!r}")
        if np.ndim(value) and np.any(widths):
            return _pad_by_side(x, widths, np.broadcast_to(value, (x.ndim, 2)).tolist())
        return Pad(widths, 0.0 if np.ndim(value) else float(value)).apply((x,))[0]
    if mode not in ("edge", "reflect", "symmetric", "wrap") or keywords:
        raise ValueError(f"pad supports the modes constant, edge, reflect, symmetric and wrap, got {mode!r} {keywords}")
    return PadIndexed(widths, mode).apply((x,))[0]


def _pad_by_side(x: Variable, widths: tuple[tuple[int, int], ...], values: list[list[float]]) -> Variable:
    """Pad with a value for each side of each axis; corners belong to the later axis and its end, as in NumPy."""
    for axis, (width, value) in enumerate(zip(widths, values, strict=True)):
        for side in (0, 1):
            if width[side]:
                there = (width[0], 0) if side == 0 else (0, width[1])
                some = tuple([there if i == axis else (0, 0) for i in range(x.ndim)])
                x = Pad(some, float(value[side])).apply((x,))[0]
    return x


class Where(Structured):
    """Elements of one input or of another."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("condition", "x", "y"))
        condition, x_type, y_type = in_types
        type_check.expect(condition.dtype == np.bool_, x_type.dtype == y_type.dtype)
        type_check.expect_broadcast_shapes("inputs", condition.shape, x_type.shape, y_type.shape)

    def lower(self, b: Any, condition: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return b.call("where", condition, x, y),

    def onnx(self, g: Any, condition: str, x: str, y: str) -> Any:
        return g.Where(condition, x, y)


def where(condition: Any, x: Any, y: Any) -> Variable:
    """Choose elements of ``x`` where the condition holds and of ``y`` elsewhere.

    Args:
        condition: Boolean array.
        x: Input.
        y: Input of the same dtype; the three shapes broadcast. A number takes the dtype of the other input.

    Raises:
        InvalidType: The condition is not boolean, the dtypes differ, or the shapes do not broadcast.
    """
    condition = condition if hasattr(condition, "shape") else np.asarray(condition)
    return Where().apply((condition, _like(x, y), _like(y, x)))[0]


def _like(value: Any, other: Any) -> Any:
    """Return a value as an array where it is a number or a sequence: a plain number in the dtype of another value."""
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return value
    dtype = getattr(other, "dtype", None) if isinstance(value, (bool, int, float)) else None
    return backend.get_array_module(other).asarray(value, dtype)


class Diagonal(Structured):
    """The diagonal of two axes, which becomes the last axis."""

    def __init__(self, offset: int, axis1: int, axis2: int) -> None:
        super().__init__()
        self.offset = offset
        self.axis1 = axis1
        self.axis2 = axis2

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.ndim >= 2)
        for axis in (self.axis1, self.axis2):
            type_check.expect(x_type.ndim > axis) if axis >= 0 else type_check.expect(x_type.ndim >= -axis)

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # a view
        return inputs[0].diagonal(self.offset, self.axis1, self.axis2),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        n = len(x.shape)
        i, j = self.axis1 % n, self.axis2 % n
        x = b.transpose(x, (i, j, *(k for k in range(n) if k not in (i, j))))
        rows, columns = x.shape[:2]
        start, length = _diagonal(rows, columns, self.offset)
        flat = b.reshape(x, (rows * columns, *x.shape[2:]))
        index = b.map(lambda i: i * (columns + 1) + start, b.arange(length))
        y = b.take(flat, index)
        return b.transpose(y, (*range(1, len(y.shape)), 0)),


def _diagonal(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """Return where a diagonal starts in the flat matrix, and its length."""
    start = offset if offset >= 0 else -offset * columns
    return start, max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Variable:
    """Take the diagonal of two axes; it becomes the last axis, as ``numpy.diagonal``.

    Raises:
        InvalidType: ``x`` has fewer than two axes.
    """
    return Diagonal(int(offset), int(axis1), int(axis2)).apply((x,))[0]


class Copy(FunctionNode):
    """A copy on another device."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.device = device
        self._source: Any = None

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        target, source = backend.get_device(self.device), backend.get_device_from_array(inputs[0])
        self._source = None if source == target else source
        return target.send(inputs[0]),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return grad_outputs if self._source is None else Copy(self._source).apply(grad_outputs)

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return x,


def copy(x: Any, dst: Any) -> Variable:
    """Copy an input to a device; the gradient flows back unchanged.

    Args:
        x: Input.
        dst: What `kusari.get_device` takes, the number of a GPU (negative: the CPU), or `cuda.DummyDevice` (the CPU).

    Raises:
        RuntimeError: One of both is a device of ChainerX, and the other is not.
    """
    if isinstance(dst, int):
        dst = "@numpy" if dst < 0 else f"@cupy:{dst}"
    elif dst is cuda.DummyDevice:
        dst = "@numpy"
    device: Any = backend.get_device(dst)
    x = as_variable(x)
    if isinstance(device, backend.ChainerxDevice) or isinstance(x.device, backend.ChainerxDevice):
        if type(device) is not type(x.device):
            raise RuntimeError(f"a copy on {device} has no place in the graph of an array on {x.device}; "
                               "use to_chx() or from_chx() before anything is computed")
        return as_variable(x.chx_array.to_device(device.device))
    return Copy(dst).apply((x,))[0]


@named("TransposeSequence")
def transpose_sequence(xs: Sequence[Any]) -> tuple[Variable, ...]:
    """Turn a batch of sequences (sorted by decreasing length) into a sequence of batches, or the other way round.

    Args:
        xs: Sequences; entry ``i`` of output ``t`` is entry ``t`` of sequence ``i``.

    Raises:
        InvalidType: The lengths are not in decreasing order.
    """
    xs = tuple([as_variable(x) for x in xs])
    lengths = [len(x) for x in xs]
    if lengths != sorted(lengths, reverse=True):
        raise type_check.InvalidType("lengths in decreasing order", str(lengths))
    if not xs:
        return ()
    if len(set(lengths)) == 1:
        whole = stack(xs)
        turned = transpose(whole, (1, 0, *range(2, whole.ndim)))
        return tuple([turned[t] for t in range(lengths[0])])
    return tuple([stack([x[t] for x, n in zip(xs, lengths, strict=True) if n > t]) for t in range(lengths[0])])


def pad_sequence(xs: Sequence[Any], length: int | None = None, padding: float = 0) -> Variable:
    """Pad sequences to one length and stack them.

    Args:
        xs: Inputs that agree in all axes but the first.
        length: Length to pad to; None for that of the longest.
        padding: What to pad with.

    Raises:
        InvalidType: A sequence is longer than ``length``, or has no axes.
    """
    xs = [as_variable(x) for x in xs]
    for i, x in enumerate(xs):
        if not x.ndim:
            raise type_check.InvalidType(f"xs[{i}].ndim > 0", "0 <= 0",
                                         "\nInvalid operation is performed in: PadSequence (Forward)")
    longest = max([len(x) for x in xs], default=0)
    length = longest if length is None else length
    if length < longest:
        raise type_check.InvalidType(f"sequences no longer than length={length}", f"one of length {longest}",
                                     "\nInvalid operation is performed in: PadSequence (Forward)")
    value = [float(padding) if x.dtype.kind == "f" else int(padding) for x in xs]
    return stack([x if len(x) == length else
                  Pad(((0, length - len(x)), *((0, 0),) * (x.ndim - 1)), v, floats_only=False).apply((x,))[0]
                  for x, v in zip(xs, value, strict=True)])
