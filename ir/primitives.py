"""The compiler's closed vocabulary: the ops that every lowering ends in, each with its meaning and its type rule."""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np

from .expr import Arg, Call, Lit, evaluate, expr_dtype
from .op import Attrs, Op, Trait
from .types import TensorType, Type

PRIMITIVES: dict[str, Op] = {}
_PLAIN = frozenset((int, str))


def freeze(x: Any) -> Any:
    """Return a hashable equivalent of an attribute."""
    if isinstance(x, (int, str, Call)):  # the most frequent types
        return x
    if isinstance(x, dict):
        items = cast("dict[Any, Any]", x)
        return tuple(sorted((k, freeze(v)) for k, v in items.items()))
    if isinstance(x, (list, tuple)):
        parts = cast("list[Any]", x)
        if _PLAIN.issuperset(map(type, parts)):  # as in a shape
            return tuple(parts)
        return tuple([freeze(v) for v in parts])
    if isinstance(x, np.ndarray):
        array = cast("np.ndarray[Any, Any]", x)
        return (array.dtype.str, array.shape, array.tobytes())
    if isinstance(x, float):
        return repr(x)  # -0.0 is another number than 0.0 and 0, NaN is the same as itself
    try:
        hash(x)
    except TypeError:
        return id(x)
    return x


def attrs_key(attrs: Attrs) -> Any:
    """Return a hashable form of all attributes."""
    return tuple([(k, type(x := attrs[k]).__name__, freeze(x)) for k in sorted(attrs)])


def module_of(x: Any) -> Any:
    """Return NumPy or CuPy, whichever made the array."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    import importlib
    return importlib.import_module(type(x).__module__.partition(".")[0])


def primitive(name: str, traits: Trait = Trait.NONE) -> Callable[[Any], Op]:
    """Class decorator: a namespace of static methods ``call`` and ``types`` becomes the op."""
    def make(body: Any) -> Op:
        op = Op(name, body.call, traits, types=body.types, key=attrs_key, lower=getattr(body, "lower", None))
        PRIMITIVES[name] = op
        return op
    return make


def like(t: TensorType, shape: tuple[int, ...], dtype: Any = None) -> tuple[Type, ...]:
    """Return the types of one output: that of ``t`` with another shape, and perhaps another dtype."""
    return (TensorType(t.dtype if dtype is None else np.dtype(dtype), shape, t.device),)


def widened(attrs: Attrs, *xs: Any) -> tuple[Any, ...]:
    """Return operands of a product as float32 if it is ``wide``."""
    return tuple([x.astype(np.float32) for x in xs]) if attrs.get("wide") else xs


def wide_dtype(attrs: Attrs, *ts: TensorType) -> Any:
    """Return the dtype of a ``wide`` product; None of another. Raises ``ValueError`` if its operands are no halves."""
    if not attrs.get("wide"):
        return None
    if any(t.dtype != np.float16 for t in ts):
        raise ValueError(f"a wide product takes halves, got {ts!r}")
    return np.float32


@lru_cache(maxsize=4096)
def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which shapes broadcast; NumPy makes an array of each to find out."""
    return np.broadcast_shapes(*shapes)


@primitive("map", Trait.ELEMENTWISE)
class MAP:
    """``attrs['expr']`` at every point of the broadcast inputs."""

    @staticmethod
    def call(attrs: Attrs, *xs: Any) -> tuple[Any, ...]:
        xp = module_of(xs[0])
        with np.errstate(all="ignore"):
            y = xp.asarray(evaluate(attrs["expr"], xs, xp))
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        y = y.copy() if any(y is x for x in xs) else y
        return (y if y.shape == shape else xp.ascontiguousarray(xp.broadcast_to(y, shape)),)

    @staticmethod
    def types(attrs: Attrs, *ts: TensorType) -> tuple[Type, ...]:
        shape = common_shape(*[t.shape for t in ts])
        return like(ts[0], shape, expr_dtype(attrs["expr"], tuple(t.dtype for t in ts)))


@primitive("reduce", Trait.REDUCTION)
class REDUCE:
    """``sum | prod | max | min``, of bools also ``any | all``, over ``axes``, which stay with extent 1."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        xp = module_of(x)
        kind = {"dtype": x.dtype} if attrs["fn"] in ("sum", "prod") else {}
        return (getattr(xp, attrs["fn"])(x, axis=attrs["axes"], keepdims=True, **kind),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        if attrs["fn"] in ("any", "all") and t.dtype != np.bool_:
            raise ValueError(f"{attrs['fn']} takes bools, got {t!r}: cast it first")
        return like(t, tuple(1 if i in attrs["axes"] else n for i, n in enumerate(t.shape)))


@primitive("reshape", Trait.VIEW)
class RESHAPE:
    """The same elements in C order under another shape."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        return (x.reshape(attrs["shape"]),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        if prod(attrs["shape"]) != t.size:
            raise ValueError(f"cannot reshape {t!r} to {attrs['shape']}")
        return like(t, tuple(attrs["shape"]))


@primitive("transpose")
class TRANSPOSE:
    """Axis ``i`` of the result is axis ``axes[i]`` of the operand; the result is contiguous."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        return (x.transpose(attrs["axes"]).copy(),)  # a copy even where a view would do: a param may be written later

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        axes: tuple[int, ...] = attrs["axes"]
        return like(t, tuple(t.shape[a] for a in axes))


@primitive("broadcast_to")
class BROADCAST_TO:
    """NumPy broadcasting to ``shape``."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        xp = module_of(x)
        return (xp.broadcast_to(x, attrs["shape"]).copy(),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        if np.broadcast_shapes(t.shape, attrs["shape"]) != tuple(attrs["shape"]):
            raise ValueError(f"cannot broadcast {t!r} to {attrs['shape']}")
        return like(t, tuple(attrs["shape"]))


@primitive("matmul")
class MATMUL:
    """Matrix product over the last two axes, batched over the others; ``transa``/``transb`` swap an operand's.

    With ``wide`` the operands are halves, and the product, added up in float32, is not rounded to one.
    """

    @staticmethod
    def call(attrs: Attrs, a: Any, b: Any) -> tuple[Any, ...]:
        a, b = widened(attrs, a, b)
        a = a.swapaxes(-1, -2) if attrs["transa"] else a
        b = b.swapaxes(-1, -2) if attrs["transb"] else b
        return (module_of(a).matmul(a, b),)

    @staticmethod
    def types(attrs: Attrs, a: TensorType, b: TensorType) -> tuple[Type, ...]:
        *batch_a, m, k = (*a.shape[:-2], *(a.shape[:-3:-1] if attrs["transa"] else a.shape[-2:]))
        *batch_b, k2, n = (*b.shape[:-2], *(b.shape[:-3:-1] if attrs["transb"] else b.shape[-2:]))
        if k != k2:
            raise ValueError(f"inner dimensions differ: {a!r} @ {b!r} with {dict(attrs)}")
        batch = np.broadcast_shapes(tuple(batch_a), tuple(batch_b))
        return like(a, (*batch, m, n), wide_dtype(attrs, a, b) or np.result_type(a.dtype, b.dtype))


@primitive("arange")
class ARANGE:
    """``0, 1, … n-1`` as int32."""

    @staticmethod
    def call(attrs: Attrs) -> tuple[Any, ...]:
        return (np.arange(attrs["n"], dtype=np.int32),)

    @staticmethod
    def types(attrs: Attrs) -> tuple[Type, ...]:
        return (TensorType(np.dtype("int32"), (attrs["n"],)),)


@primitive("full")
class FULL:
    """``value`` at every place of ``shape``."""

    @staticmethod
    def call(attrs: Attrs) -> tuple[Any, ...]:
        return (np.full(attrs["shape"], attrs["value"], attrs["dtype"]),)

    @staticmethod
    def types(attrs: Attrs) -> tuple[Type, ...]:
        return (TensorType(np.dtype(attrs["dtype"]), tuple(attrs["shape"])),)


@primitive("take")
class TAKE:
    """Rows ``x[indices]`` of axis 0; negative indices count from the end."""

    @staticmethod
    def call(attrs: Attrs, x: Any, indices: Any) -> tuple[Any, ...]:
        return (x[indices],)

    @staticmethod
    def types(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[Type, ...]:
        return like(x, (*indices.shape, *x.shape[1:]))


@primitive("gather")
class GATHER:
    """The element of every line along ``axis`` that an index names; negative indices count from the end."""

    @staticmethod
    def call(attrs: Attrs, x: Any, indices: Any) -> tuple[Any, ...]:
        return (x[line_index(indices, attrs["axis"])],)

    @staticmethod
    def types(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[Type, ...]:
        axis: int = attrs["axis"]
        if indices.shape != (*x.shape[:axis], 1, *x.shape[axis + 1:]):
            raise ValueError(f"{indices!r} does not name one element of every line of {x!r} along axis {axis}")
        return like(x, indices.shape)


def line_index(indices: Any, axis: int) -> tuple[Any, ...]:
    """Return an index of the elements of lines along ``axis`` that ``indices`` name."""
    xp = module_of(indices)
    return tuple([indices if i == axis else xp.arange(n).reshape(-1, *(1,) * (indices.ndim - 1 - i))
                  for i, n in enumerate(indices.shape)])


@primitive("put")
class PUT:
    """Zeros with ``n`` elements along ``axis``, and elements put where an index names: the gradient of ``gather``."""

    @staticmethod
    def call(attrs: Attrs, x: Any, indices: Any) -> tuple[Any, ...]:
        axis: int = attrs["axis"]
        y = module_of(x).zeros((*x.shape[:axis], attrs["n"], *x.shape[axis + 1:]), x.dtype)
        y[line_index(indices, axis)] = x
        return (y,)

    @staticmethod
    def types(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[Type, ...]:
        axis: int = attrs["axis"]
        return like(x, (*x.shape[:axis], attrs["n"], *x.shape[axis + 1:]))

    @staticmethod
    def lower(b: Any, attrs: Attrs, x: Any, indices: Any) -> tuple[Any, ...]:
        """A comparison with all numbers: it joins the kernels around it."""
        axis, n = attrs["axis"], attrs["n"]
        numbers = b.arange(n)
        place = b.take(numbers, indices)
        numbers = b.reshape(numbers, tuple([n if i == axis else 1 for i in range(len(x.shape))]))
        tree = Call("where", (Call("equal", (Arg(0), Arg(1))), Arg(2), Lit(0)))
        return b.cast(b.map(tree, numbers, place, x), x.tensor.dtype),


@primitive("scatter_add")
class SCATTER_ADD:
    """Zeros of ``shape`` to whose rows ``indices`` the ``updates`` are added, in order."""

    @staticmethod
    def call(attrs: Attrs, indices: Any, updates: Any) -> tuple[Any, ...]:
        xp = module_of(updates)
        y = xp.zeros(attrs["shape"], updates.dtype)
        if xp is np:
            np.add.at(y, indices, updates)
        else:
            import importlib
            importlib.import_module("cupyx").scatter_add(y, indices, updates)
        return (y,)

    @staticmethod
    def types(attrs: Attrs, indices: TensorType, updates: TensorType) -> tuple[Type, ...]:
        return like(updates, tuple(attrs["shape"]))


def _slices(attrs: Attrs) -> tuple[slice, ...]:
    return tuple(slice(a, b if s > 0 or b >= 0 else None, s)
                 for a, b, s in zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True))


@primitive("slice")
class SLICE:
    """Basic slicing with one start, stop (-1 before the first when stepping back) and step per axis, all normalised."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        return (module_of(x).array(x[_slices(attrs)], order="C"),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        steps = zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
        return like(t, tuple(len(range(a, b, s)) for a, b, s in steps))


@primitive("part", Trait.VIEW)
class PART:
    """Rows ``start`` to ``stop`` of axis 0: a view of the operand."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        return (x[attrs["start"]:attrs["stop"]],)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        if not 0 <= attrs["start"] <= attrs["stop"] <= t.shape[0]:
            raise ValueError(f"{t!r} has no rows {attrs['start']} to {attrs['stop']}")
        return like(t, (attrs["stop"] - attrs["start"], *t.shape[1:]))


@primitive("pad_slice")
class PAD_SLICE:
    """Zeros of ``shape`` with the operand at the elements that a ``slice`` of the same attributes reads."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        y = module_of(x).zeros(attrs["shape"], x.dtype)
        y[_slices(attrs)] = x
        return (y,)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        return like(t, tuple(attrs["shape"]))


@primitive("concat")
class CONCAT:
    """Operands one after the other along ``axis``."""

    @staticmethod
    def call(attrs: Attrs, *xs: Any) -> tuple[Any, ...]:
        return (module_of(xs[0]).concatenate(xs, axis=attrs["axis"]),)

    @staticmethod
    def types(attrs: Attrs, *ts: TensorType) -> tuple[Type, ...]:
        axis: int = attrs["axis"]
        shape = list(ts[0].shape)
        shape[axis] = sum(t.shape[axis] for t in ts)
        return like(ts[0], tuple(shape), np.result_type(*(t.dtype for t in ts)))


@primitive("cumsum")
class CUMSUM:
    """Running sums along ``axis``, up to each element or from it on (``reverse``), added one after the other."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        xp, axis = module_of(x), attrs["axis"]
        if not attrs["reverse"]:
            return (x.cumsum(axis, dtype=x.dtype),)
        return (xp.ascontiguousarray(xp.flip(xp.flip(x, axis).cumsum(axis, dtype=x.dtype), axis)),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        return like(t, t.shape)


@primitive("cumprod")
class CUMPROD:
    """Products of all elements up to each place along ``axis``, one factor after the other."""

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        return (x.cumprod(attrs["axis"], dtype=x.dtype),)

    @staticmethod
    def types(attrs: Attrs, t: TensorType) -> tuple[Type, ...]:
        return like(t, t.shape)


@primitive("random", Trait.RANDOM)
class RANDOM:
    """A draw ``dist(*args, size=shape)`` from the global generator, cast to ``dtype``, as define-by-run draws it.

    Where there is an ``expr``, the output is that of the draw.
    """

    @staticmethod
    def call(attrs: Attrs) -> tuple[Any, ...]:
        draw = getattr(np.random, attrs["dist"])
        size = {} if attrs["dist"] == "permutation" else {"size": tuple(attrs["shape"])}
        drawn = np.asarray(draw(*attrs["args"], **size)).astype(attrs["dtype"], copy=False)
        return (np.asarray(evaluate(attrs["expr"], (drawn,))) if "expr" in attrs else drawn,)

    @staticmethod
    def types(attrs: Attrs) -> tuple[Type, ...]:
        dtype = np.dtype(attrs["dtype"])
        if "expr" in attrs:
            dtype = expr_dtype(attrs["expr"], (dtype,))
        return (TensorType(dtype, tuple(attrs["shape"])),)


@primitive("assign", Trait.WRITES)
class ASSIGN:
    """Write the second operand into the buffer of the first, a param of the graph."""

    @staticmethod
    def call(attrs: Attrs, state: Any, new: Any) -> tuple[Any, ...]:
        state[...] = new
        return ()

    @staticmethod
    def types(attrs: Attrs, state: TensorType, new: TensorType) -> tuple[Type, ...]:
        if state.shape != new.shape:
            raise ValueError(f"cannot assign {new!r} to {state!r}")
        return ()


@primitive("foreach")
class FOREACH:
    """One map over many tensors: ``exprs`` read ``shared`` scalars first, then ``arity`` operands of each group.

    Inputs are the shared 0-d values followed by the groups' operands; outputs are ``len(exprs)`` per group.
    """

    @staticmethod
    def call(attrs: Attrs, *xs: Any) -> tuple[Any, ...]:
        shared, arity = xs[:attrs["shared"]], attrs["arity"]
        rest = xs[attrs["shared"]:]
        out: list[Any] = []
        for i in range(0, len(rest), arity):
            for e in attrs["exprs"]:
                out.extend(MAP.call({"expr": e}, *shared, *rest[i:i + arity]))
        return tuple(out)

    @staticmethod
    def types(attrs: Attrs, *ts: TensorType) -> tuple[Type, ...]:
        shared, arity = ts[:attrs["shared"]], attrs["arity"]
        rest = ts[attrs["shared"]:]
        of_map = MAP.types
        assert of_map is not None
        return tuple(t for i in range(0, len(rest), arity) for e in attrs["exprs"]
                     for t in of_map({"expr": e}, *shared, *rest[i:i + arity]))
