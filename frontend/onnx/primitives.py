"""The compiler's primitives as ONNX nodes: how a function that only says how it is lowered is exported."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import SCALAR, pool_windows, windows_of
from kusari.ir.convolution import padding_after

from .errors import NoForm
from .expressions import wide

_REDUCE = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
           "any": "ReduceMax", "all": "ReduceMin"}
_ON_BOOL = {"sum": "any", "max": "any", "prod": "all", "min": "all"}


def ints(g: Any, values: Any) -> str:
    """Return a constant of int64, as shapes and axes are."""
    return g.const(np.array(list(values), np.int64))


def reshape(g: Any, x: str, shape: tuple[int, ...]) -> str:
    """Emit a reshape to fixed extents."""
    if 0 in shape and g.opset < 14:  # where 0 says that an extent stays; but nothing is like nothing
        return zeros(g, shape, g.type(x).dtype)
    return g.Reshape(x, ints(g, shape), **({"allowzero": 1} if 0 in shape else {}))


def _map(g: Any, attrs: Any, *xs: str) -> str:
    return g.expression(attrs["expr"], *xs)


def _reduce(g: Any, attrs: Any, x: str) -> str:
    dtype, fn = g.type(x).dtype, str(attrs["fn"])
    work = np.dtype("int32") if dtype.kind == "b" else wide(dtype)
    fn = _ON_BOOL.get(fn, fn) if dtype.kind == "b" else fn
    return g.cast(getattr(g, _REDUCE[fn])(g.cast(x, work), ints(g, attrs["axes"]), keepdims=1), dtype)


def _matmul(g: Any, attrs: Any, a: str, b: str) -> str:
    ta, tb = g.type(a), g.type(b)
    dtype = np.result_type(ta.dtype, tb.dtype)
    a, b = g.cast(a, dtype), g.cast(b, dtype)
    if len(ta.shape) == len(tb.shape) == 2 and dtype.kind == "f":
        return g.Gemm(a, b, transA=int(attrs["transa"]), transB=int(attrs["transb"]))
    for_a, for_b = attrs["transa"], attrs["transb"]
    return g.MatMul(_turned(g, a) if for_a else a, _turned(g, b) if for_b else b)


def _turned(g: Any, x: str) -> str:
    n = len(g.type(x).shape)
    return g.Transpose(x, perm=[*range(n - 2), n - 1, n - 2])


def _cumsum(g: Any, attrs: Any, x: str) -> str:
    axis, reverse = int(attrs["axis"]), bool(attrs["reverse"])
    shape, dtype = g.type(x).shape, g.type(x).dtype
    if g.opset >= 11:
        return g.CumSum(x, g.const(np.array(axis, np.int64)), reverse=int(reverse))
    upto, each = g.const(_upto(shape, axis, reverse)), g.Unsqueeze(x, ints(g, [axis + 1]))
    terms = g.Where(upto, each, g.const(np.array(0, dtype)))
    return g.ReduceSum(terms, ints(g, [axis]), keepdims=0)


def _cumprod(g: Any, attrs: Any, x: str) -> str:
    axis, shape, dtype = int(attrs["axis"]), g.type(x).shape, g.type(x).dtype
    if g.opset >= 26:
        return g.CumProd(x, g.const(np.array(axis, np.int64)))
    upto, each = g.const(_upto(shape, axis)), g.Unsqueeze(x, ints(g, [axis + 1]))
    factors = g.Where(upto, each, g.const(np.array(1, dtype)))
    return g.ReduceProd(factors, ints(g, [axis]), keepdims=0)


def _upto(shape: tuple[int, ...], axis: int, reverse: bool = False) -> Any:
    """For every place along an axis, which others stand up to it, or from it on."""
    n = shape[axis]
    upto = (np.tril if reverse else np.triu)(np.ones((n, n), bool))
    return upto.reshape(n, n, *(1,) * (len(shape) - axis - 1))


def _index(g: Any, x: str) -> str:
    return x if g.type(x).dtype in (np.int32, np.int64) else g.cast(x, np.int64)


def _take(g: Any, attrs: Any, x: str, indices: str) -> str:
    if g.opset < 11:
        # Negative indices count from the end in newer opsets only.
        n = g.const(np.asarray(g.type(x).shape[0], np.int64))
        i = g.cast(indices, np.int64)
        indices = g.Where(g.Less(i, g.const(np.asarray(0, np.int64))), g.Add(i, n), i)
    return g.Gather(x, _index(g, indices), axis=0)


def _gather(g: Any, attrs: Any, x: str, indices: str) -> str:
    axis, t = attrs["axis"], g.type(x)
    if g.opset >= 11:
        return g.GatherElements(x, _index(g, indices), axis=axis)
    numbers = np.arange(t.shape[axis]).reshape(tuple([-1 if i == axis else 1 for i in range(len(t.shape))]))
    i = g.cast(indices, np.int64)
    i = g.Where(g.Less(i, g.const(np.asarray(0, np.int64))), g.Add(i, g.const(np.asarray(numbers.size, np.int64))), i)
    chosen = g.Where(g.Equal(g.const(numbers), i), x, g.const(np.zeros((), t.dtype)))
    return g.ReduceSum(chosen, ints(g, (axis,)), keepdims=1)


def full(g: Any, shape: tuple[int, ...], value: Any, dtype: Any) -> str:
    """Emit a number at every place of a shape without storing them in the file."""
    return g.ConstantOfShape(ints(g, shape), value=np.full(1, value, dtype))


def zeros(g: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """Emit zeros without storing them in the file."""
    return full(g, shape, 0, dtype)


def _scatter_add(g: Any, attrs: Any, indices: str, updates: str) -> str:
    if g.opset < 16:
        return _scatter_by_product(g, attrs["shape"], indices, updates)
    where = reshape(g, g.cast(indices, np.int64), (*g.type(indices).shape, 1))
    dtype = g.type(updates).dtype
    # ONNX Runtime has no such kernel for float16; a wider sum is no worse.
    work = np.dtype("float32") if dtype == np.float16 else dtype
    y = g.ScatterND(zeros(g, attrs["shape"], work), where, g.cast(updates, work), reduction="add")
    return g.cast(y, dtype)


def _scatter_by_product(g: Any, shape: tuple[int, ...], indices: str, updates: str) -> str:
    """Add to rows with a matrix of zeros and ones: for opsets whose ScatterND only overwrites."""
    dtype, count = g.type(updates).dtype, math.prod(g.type(indices).shape)
    if not count or 0 in shape:
        return zeros(g, shape, dtype)
    if dtype.kind != "f":
        raise NoForm("adding to rows of integers needs opset 16")
    i = reshape(g, g.cast(indices, np.int64), (1, count))
    i = g.Where(g.Less(i, g.const(np.asarray(0, np.int64))), g.Add(i, g.const(np.asarray(shape[0], np.int64))), i)
    rows = g.const(np.arange(shape[0], dtype=np.int64)[:, None])
    chosen = g.cast(g.Equal(rows, i), dtype)
    return reshape(g, g.MatMul(chosen, reshape(g, updates, (count, math.prod(shape[1:])))), shape)


def _slice(g: Any, attrs: Any, x: str) -> str:
    starts, steps = attrs["starts"], attrs["steps"]
    # Axes that stay whole are left out: their extents do not count.
    cut = [i for i, n in enumerate(g.type(x).shape) if (starts[i], attrs["stops"][i], steps[i]) != (0, n, 1)]
    if not cut:
        return g.Identity(x)
    stops = [np.iinfo(np.int64).min if z < 0 else z for z in attrs["stops"]]
    return g.Slice(x, *(ints(g, [v[i] for i in cut]) for v in (starts, stops, range(len(steps)), steps)))


def _spaced(g: Any, x: str, steps: tuple[int, ...]) -> str:
    """Put ``step - 1`` zeros behind every element along each axis."""
    for axis, step in enumerate(steps):
        shape = g.type(x).shape
        if step > 1:
            wide = g.Unsqueeze(x, ints(g, [axis + 1]))
            ends = [0] * (axis + 1) + [step - 1] + [0] * (len(shape) - axis - 1)
            wide = g.Pad(wide, ints(g, [0] * len(ends) + ends), g.const(np.asarray(0, g.type(x).dtype)))
            x = reshape(g, wide, (*shape[:axis], shape[axis] * step, *shape[axis + 1:]))
    return x


def _pad_slice(g: Any, attrs: Any, x: str) -> str:
    t, shape = g.type(x), attrs["shape"]
    if all(s >= 1 for s in attrs["steps"]) and t.dtype.kind == "f":
        x = _spaced(g, x, attrs["steps"])
        ends = [n - a - m for n, a, m in zip(shape, attrs["starts"], g.type(x).shape, strict=True)]
        if min(ends, default=0) < 0:  # zeros behind the last element, which are too many
            x = _cut(g, x, ends, 0)
        return g.Pad(x, ints(g, [*attrs["starts"], *(max(e, 0) for e in ends)]), g.const(np.asarray(0, t.dtype)))
    # Every element of the result is one of x, or the zero put behind them.
    index = np.full(shape, t.size, np.int64)
    index[tuple(slice(a, z if z >= 0 else None, s) for a, z, s in zip(
        attrs["starts"], attrs["stops"], attrs["steps"], strict=True))] = np.arange(t.size).reshape(t.shape)
    elements = g.Concat(reshape(g, x, (t.size,)), g.const(np.zeros(1, t.dtype)), axis=0)
    return g.Gather(elements, g.const(index), axis=0)


def _concat(g: Any, attrs: Any, *xs: str) -> str:
    dtype = np.result_type(*(g.type(x).dtype for x in xs))
    return g.Concat(*(g.cast(x, dtype) for x in xs), axis=attrs["axis"])


def _windows(g: Any, op: str, attrs: Any, a: str, b: str) -> tuple[Any, list[int]]:
    windows = windows_of(op, attrs, g.type(a).shape, g.type(b).shape)
    return windows, list(padding_after(windows))


def _cut(g: Any, x: str, ends: list[int], first: int = 2) -> str:
    """Cut off the ends that no window sees, where ``ends``, of the axes from ``first`` on, are negative."""
    axes = [first + i for i, e in enumerate(ends) if e < 0]
    if not axes:
        return x
    shape = g.type(x).shape
    stops = [shape[a] + ends[a - first] for a in axes]
    return g.Slice(x, ints(g, [0] * len(stops)), ints(g, stops), ints(g, axes), ints(g, [1] * len(stops)))


def _conv(g: Any, attrs: Any, x: str, w: str) -> str:
    windows, ends = _windows(g, "conv", attrs, x, w)
    return g.Conv(_cut(g, x, ends), w, kernel_shape=list(windows.kernel), strides=list(windows.stride),
                  dilations=list(windows.dilate), group=attrs["groups"],
                  pads=[*windows.pad, *(max(e, 0) for e in ends)])


def _conv_input(g: Any, attrs: Any, gy: str, w: str) -> str:
    windows, ends = _windows(g, "conv_input", attrs, gy, w)
    y = g.ConvTranspose(gy, w, kernel_shape=list(windows.kernel), strides=list(windows.stride),
                        dilations=list(windows.dilate), group=attrs["groups"],
                        pads=[*windows.pad, *(max(e, 0) for e in ends)])
    if min(ends) >= 0:
        return y
    none = [0] * (2 + len(ends))
    return g.Pad(y, ints(g, [*none, 0, 0, *(max(-e, 0) for e in ends)]), g.const(np.asarray(0, g.type(y).dtype)))


def _conv_weight(g: Any, attrs: Any, x: str, gy: str) -> str:
    # Samples take the place of channels: a convolution whose windows are gy, with steps and dilations exchanged.
    windows, ends = _windows(g, "conv_weight", attrs, x, gy)
    groups, (n, c, *extents) = attrs["groups"], g.type(_cut(g, x, ends)).shape
    sliding = range(3, 3 + len(extents))
    data = reshape(g, _cut(g, x, ends), (n, groups, c // groups, *extents))
    data = reshape(g, g.Transpose(data, perm=[2, 1, 0, *sliding]), (c // groups, groups * n, *extents))
    turned = [1, 0, *range(2, 2 + len(extents))]
    y = g.Conv(data, g.Transpose(gy, perm=turned), kernel_shape=list(windows.out), strides=list(windows.dilate),
               dilations=list(windows.stride), group=groups, pads=[*windows.pad, *(max(e, 0) for e in ends)])
    return g.Transpose(y, perm=turned)


def _pool(g: Any, attrs: Any, x: str) -> tuple[str, ...]:
    t = g.type(x)
    windows = pool_windows(attrs, t.shape[2:], tuple(attrs["size"]))
    ends = [max(e, 0) for e in padding_after(windows)]
    small = all(p < k and e < k for p, e, k in zip(windows.pad, ends, windows.kernel, strict=True))
    if attrs["fn"] == "max" and not attrs["places"] and small:
        return (g.MaxPool(_cut(g, x, list(padding_after(windows))), kernel_shape=list(windows.kernel),
                          strides=list(windows.stride), pads=[*windows.pad, *ends]),)
    nothing = np.asarray(-np.inf if attrs["fn"] == "max" else 0, t.dtype)
    padded = g.Pad(x, ints(g, [0, 0, *windows.pad, 0, 0, *ends]), g.const(nothing))
    axes = ints(g, range(2, len(t.shape)))
    pieces: list[str] = []
    for tap in windows.taps():
        where = windows.at(tap)[1:]
        pieces.append(g.Slice(padded, ints(g, [s.start for s in where]), ints(g, [s.stop for s in where]), axes,
                              ints(g, windows.stride)))
    y = pieces[0]
    for piece in pieces[1:]:
        y = g.Max(y, piece) if attrs["fn"] == "max" else g.Add(y, piece)
    if not attrs["places"]:
        return (y,)
    places = g.Expand(g.const(np.asarray(len(pieces) - 1, np.int32)), ints(g, g.type(y).shape))
    for i in range(len(pieces) - 2, -1, -1):
        places = g.expression(lambda piece, y, later, i=SCALAR.int32(i): SCALAR.where(piece == y, i, later),
                              pieces[i], y, places)
    return y, places


def _unpool(g: Any, attrs: Any, gy: str, *places: str) -> str:
    t = g.type(gy)
    windows = pool_windows(attrs, tuple(attrs["size"]), t.shape[2:])
    extents = [p + n + max(e, 0) for p, n, e in zip(windows.pad, windows.size, padding_after(windows), strict=True)]
    total = ""
    for i, tap in enumerate(windows.taps()):
        part = gy
        if places:
            part = g.expression(lambda gy, place, i=i: SCALAR.where(place == i, gy, 0.0), gy, *places)
            part = g.cast(part, t.dtype)
        where = [slice(0, n, 1) for n in t.shape[:2]] + list(windows.at(tap)[1:])
        part = _pad_slice(g, {"shape": (*t.shape[:2], *extents), "starts": [s.start for s in where],
                              "stops": [s.stop for s in where], "steps": [s.step for s in where]}, part)
        total = part if not total else g.Add(total, part)
    starts, stops = [*windows.pad], [p + n for p, n in zip(windows.pad, windows.size, strict=True)]
    return g.Slice(total, ints(g, starts), ints(g, stops), ints(g, range(2, len(t.shape))), ints(g, [1] * len(starts)))


def _random(g: Any, attrs: Any) -> str:
    dist, args, shape, dtype = attrs["dist"], attrs["args"], attrs["shape"], attrs["dtype"]
    like = zeros(g, shape, np.float32)  # as an input the shape may follow symbolic dimensions
    if dist in ("random_sample", "rand", "uniform"):
        low, high = (*args, 0.0, 1.0)[:2] if dist == "uniform" else (0.0, 1.0)
        return g.RandomUniformLike(like, low=float(low), high=float(high), dtype=dtype)
    if dist in ("standard_normal", "normal"):
        mean, scale = (*args, *(0.0, 1.0)[len(args):])
        return g.RandomNormalLike(like, mean=float(mean), scale=float(scale), dtype=dtype)
    if dist == "gumbel":
        u = g.RandomUniformLike(like, low=1e-7, high=1.0, dtype=dtype)
        return g.Neg(g.Log(g.Neg(g.Log(u))))
    raise NoForm(f"draws from {dist} have no ONNX form")


def _assign(g: Any, attrs: Any, state: str, new: str) -> tuple[()]:
    # A file has no state: an exported step has outputs for written values. `state` is what it was last.
    origin = next((name for name, now in g.writes.items() if now == state), state)
    g.writes[origin] = new
    return ()


def _foreach(g: Any, attrs: Any, *xs: str) -> tuple[str, ...]:
    n, arity = attrs["shared"], attrs["arity"]
    return tuple(g.expression(e, *xs[:n], *xs[i:i + arity])
                 for i in range(n, len(xs), arity) for e in attrs["exprs"])


TABLE: dict[str, Callable[..., Any]] = {
    "map": _map, "reduce": _reduce, "matmul": _matmul, "take": _take, "gather": _gather, "scatter_add": _scatter_add,
    "slice": _slice, "pad_slice": _pad_slice, "concat": _concat, "random": _random,
    "cumsum": _cumsum, "cumprod": _cumprod,
    "reshape": lambda g, attrs, x: reshape(g, x, attrs["shape"]),
    "transpose": lambda g, attrs, x: g.Transpose(x, perm=list(attrs["axes"])),
    "broadcast_to": lambda g, attrs, x: g.Expand(x, ints(g, attrs["shape"])),
    "arange": lambda g, attrs: g.const(np.arange(attrs["n"], dtype=np.int32)),
    "full": lambda g, attrs: full(g, attrs["shape"], attrs["value"], attrs["dtype"]),
    "assign": _assign, "foreach": _foreach,
    "pool": _pool, "unpool": _unpool,
    "conv": _conv, "conv_input": _conv_input, "conv_weight": _conv_weight,
}
