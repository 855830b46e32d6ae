"""Symbolic dimensions, proved: the model is traced at several extents, and differences are computed from the inputs.

The traces must agree in everything but constants. A constant that follows the extents (a shape, a count, a factor) is
replaced by nodes that compute it, and their results must be those of a further trace, at yet other extents.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from .blame import function_of
from .errors import ExportError, InputShapesError
from .files import without_arrays
from .trace import Call
from .versions import require_onnx

_SMALL = 2**10  # elements of arrays that may say what a shape is


@dataclass(frozen=True)
class Symbol:
    """A symbolic dimension: the axes of inputs that have it, its extent as given, and the one traced first."""

    name: str
    axes: tuple[tuple[int, int], ...]  # number of the input, axis
    given: int
    base: int
    other: int
    unseen: int
    anonymous: bool


def symbols_of(call: Call, args: Any, shapes: Any, shared: bool = True) -> list[Symbol]:
    """Return the symbolic dimensions of ``input_shapes``; raises ``InputShapesError`` when the shapes do not fit.

    Names are ``shared`` by axes of one extent only; if they are not, axes of several extents may be called the same.
    """
    if isinstance(shapes, dict):
        if not isinstance(args, dict) or set(shapes) != set(args):
            raise InputShapesError(f"input_shapes: a dict must have the keys of args, got {sorted(map(str, shapes))}")
        wanted = [shapes[k] for k in args]
    else:
        wanted = list(shapes) if isinstance(shapes, list) else [shapes]
    if len(wanted) != len(call.names):
        raise InputShapesError(f"input_shapes: expected {len(call.names)} shapes, got {len(wanted)}: {wanted}")
    places: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for i, (name, shape, x) in enumerate(zip(call.names, wanted, call.arrays, strict=True)):
        if not isinstance(shape, (tuple, list)) or len(shape) != x.ndim:
            raise InputShapesError(f"input_shapes: {name} has {x.ndim} axes, got {shape!r}")
        for axis, extent in enumerate(shape):
            if extent is None or isinstance(extent, str):
                places.setdefault((extent or f"{name}[{axis}]", 0 if shared else x.shape[axis]), []).append((i, axis))
            elif extent != x.shape[axis]:
                raise InputShapesError(f"input_shapes: axis {axis} of {name} is {x.shape[axis]} in args, not "
                                       f"{extent!r}; use the same extent, or a string for a symbolic dimension")
    found: list[Symbol] = []
    for k, ((name, _), axes) in enumerate(places.items()):
        extents = {call.arrays[i].shape[axis] for i, axis in axes}
        if len(extents) > 1 or 0 in extents:
            raise InputShapesError(
                f"input_shapes: {name!r} must be one extent, not 0, throughout args; got {sorted(extents)}")
        n = extents.pop()
        # Multiples keep what has to divide; different ones keep extents apart.
        found.append(Symbol(name, tuple(axes), n, (2 * k + 3) * n, (2 * k + 4) * n, (k + 2) * n,
                            all(wanted[i][axis] is None for i, axis in axes)))
    return found


def dynamic_axes(call: Call, dynamic: Any) -> list[tuple[Any, ...]]:
    """Return the ``input_shapes`` that ``dynamic`` means, a dict from inputs to the names of their symbolic axes."""
    if not isinstance(dynamic, dict) or not all(isinstance(axes, dict) for axes in dynamic.values()):
        raise InputShapesError(f"dynamic_shapes: expected a dict like {{{call.names[0]!r}: {{0: 'batch'}}}}, "
                          f"got {dynamic!r}")
    for name in dynamic.keys() - set(call.names):
        raise InputShapesError(f"dynamic_shapes: there is no input {name!r}; there are {', '.join(call.names)}")
    shapes: list[tuple[Any, ...]] = []
    for name, x in zip(call.names, call.arrays, strict=True):
        shape: list[Any] = list(x.shape)
        for axis, extent in dynamic.get(name, {}).items():
            if not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
                raise InputShapesError(f"dynamic_shapes: {name!r} has {x.ndim} axes and no axis {axis!r}")
            if not isinstance(extent, str) or not extent:
                raise InputShapesError(f"dynamic_shapes: axis {axis} of {name!r} needs a name, got {extent!r}")
            shape[axis] = extent
        shapes.append(tuple(shape))
    return shapes


def resized(call: Call, extents: dict[Symbol, int]) -> Call:
    """Return the call with its arguments repeated or cut to other extents."""
    arrays = list(call.arrays)
    for symbol, n in extents.items():
        for i, axis in symbol.axes:
            arrays[i] = np.take(arrays[i], np.arange(n) % arrays[i].shape[axis], axis)
    return replace(call, arrays=tuple(arrays))


def generalized(call: Call, symbols: list[Symbol], build: Callable[[Call, bool], Any]) -> Any:
    """Return one model for all extents of ``symbols``; ``build`` makes the model of a call, with parameters or not."""
    base = {s: s.base for s in symbols}
    model = build(resized(call, base), True)
    others = {s: build(resized(call, {**base, s: s.other}), False) for s in symbols}
    last = build(resized(call, {s: s.unseen for s in symbols}), False)
    return _Unifier(model, others, last, call.names).run()


def _arrays(model: Any, leaving_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    to_array = require_onnx().numpy_helper.to_array
    return {t.name: to_array(t) for t in model.graph.initializer if t.name not in leaving_out}


@dataclass(frozen=True)
class _Constant:
    """One constant as each trace has it: at the base extents, with one extent changed, with all of them changed."""

    base: Any
    others: dict[Symbol, Any]
    last: Any

    def map(self, fn: Callable[[Any], Any]) -> _Constant:
        """Return something made of the constant in every trace."""
        return _Constant(fn(self.base), {s: fn(v) for s, v in self.others.items()}, fn(self.last))

    @property
    def arrays(self) -> list[Any]:
        """The attributes of all traces."""
        return [self.base, *self.others.values(), self.last]

    @property
    def moved(self) -> list[Symbol]:
        """The symbols whose extents it follows."""
        return [s for s, v in self.others.items() if v.shape != self.base.shape or v.tobytes() != self.base.tobytes()]


class _Unifier:
    """Makes one model of the base model, of models that differ from it in one extent each, and one in all."""

    def __init__(self, model: Any, others: dict[Symbol, Any], last: Any, inputs: tuple[str, ...]) -> None:
        self.onnx = require_onnx()
        self.model = model
        self.others = others
        self.last = last
        self.last_arrays = _arrays(last)
        self.inputs = inputs
        # Parameters, which the other models take as inputs, are the same in all.
        self.parameters = frozenset(i.name for i in last.graph.input).difference(inputs)
        self.arrays = _arrays(model, self.parameters)
        self.other_arrays = {s: _arrays(m) for s, m in others.items()}
        self.nodes: list[Any] = []
        self.made: dict[Any, str] = {}
        self.count = 0

    def run(self) -> Any:
        graph = self.model.graph
        for s, n, m in [*((s, s.other, m) for s, m in self.others.items()), *(
                (s, s.unseen, self.last) for s in self.others)]:
            for here, there in zip_longest(graph.node, m.graph.node):
                if here is None or there is None or here.op_type != there.op_type:
                    one, other = ("none" if x is None else f"{function_of(x)} in {x.doc_string}" for x in (here, there))
                    place: Any = here if there is None else there
                    raise ExportError(
                        f"{place.doc_string}: other functions are applied when {s.name!r} is {n} instead of {s.base}: "
                        f"{other} in place of {one}; give that axis an int in input_shapes")
        # What has a name here may have another in the other traces, which count what they leave out.
        renamed: dict[int, dict[str, str]] = {id(m): {} for m in (*self.others.values(), self.last)}
        for i, node in enumerate(list(graph.node)):
            twins = {s: m.graph.node[i] for s, m in self.others.items()}
            last = self.last.graph.node[i]
            pairs = [(s, m, m.graph.node[i]) for s, m in self.others.items()]
            pairs += [(s, self.last, last) for s in self.others]
            for s, m, twin in pairs:
                if (list(twin.attribute) != list(node.attribute) or len(twin.input) != len(node.input)
                        or len(twin.output) != len(node.output)):
                    raise self._fault(node, s)
                renamed[id(m)].update(zip(twin.output, node.output, strict=True))
            for place, name in enumerate(node.input):
                others = {s: self.other_arrays[s].get(t.input[place]) for s, t in twins.items()}
                constant = self.last_arrays.get(last.input[place])
                if name in self.arrays and constant is not None and not any(x is None for x in others.values()):
                    node.input[place] = self._constant(node, place, _Constant(self.arrays[name], others, constant))
                    continue
                for s, m, twin in pairs:
                    if renamed[id(m)].get(twin.input[place], twin.input[place]) != name:
                        raise self._fault(node, s)
            self.nodes.append(node)
        del graph.node[:]
        graph.node.extend(self.nodes)
        self._finish(graph)
        return self.model

    def _fault(self, node: Any, symbol: Symbol) -> ExportError:
        return ExportError(
            f"{node.doc_string}: {function_of(node)}, as {node.op_type}, depends on the extent {symbol.name!r} in a "
            "way that cannot be computed from it; give that axis an int in input_shapes")

    # -- constants that follow extents ----------------------------------------------------------------------------

    def _constant(self, node: Any, place: int, c: _Constant) -> str:
        """Return the name of what computes a constant: itself, where it is the same in all traces."""
        if len({(v.dtype.str, v.shape, v.tobytes()) for v in c.arrays}) == 1:
            return node.input[place]
        if not c.moved or len({v.ndim for v in c.arrays}) > 1:
            raise self._fault(node, next(iter(self.others)))
        key = (node.op_type == "Reshape" and place == 1, *((v.dtype.str, v.shape, v.tobytes()) for v in c.arrays))
        if key not in self.made:
            self.made[key] = self._computed(node, place, c)
        return self.made[key]

    def _computed(self, node: Any, place: int, c: _Constant) -> str:
        base = c.base
        if any(v.shape != base.shape for v in c.arrays):
            return self._array(node, c)
        if base.dtype.kind == "f" and base.size == 1 and len(c.moved) == 1:
            return self._factor(node, c)
        if base.dtype != np.int64 or base.ndim > 1:
            raise self._fault(node, c.moved[0])
        if node.op_type == "Reshape" and place == 1:
            free = [i for i in range(base.size) if any(v[i] != base[i] for v in c.arrays)]
            if len(free) == 1 and base.min() > 0:
                return self._store(np.where(np.arange(base.size) == free[0], -1, base))
        return self._vector(node, c)

    def _vector(self, node: Any, c: _Constant) -> str:
        """Compute int64 entries: a product of extents, or a sum of multiples of them."""
        parts = [self._entry(node, c.map(lambda v, i=i: v.reshape(-1)[i])) for i in range(c.base.size)]
        if c.base.ndim == 0:
            return self._emit("Reshape", parts[0], self._store(np.zeros(0, np.int64)))
        return parts[0] if len(parts) == 1 else self._emit("Concat", *parts, axis=0)

    def _entry(self, node: Any, c: _Constant) -> str:
        v = int(c.base)
        factor, rest = divmod(v, prod(s.base for s in c.moved))
        if c.moved and not rest and all(int(c.others[s]) * s.base == v * s.other for s in c.moved):
            expected = factor * prod(s.unseen for s in c.moved)
            names = [self._extent(s) for s in c.moved] + ([self._ints(factor)] if factor != 1 else [])
            name = functools.reduce(lambda a, b: self._emit("Mul", a, b), names)
        else:
            expected, names = v, list[str]()
            for s in c.moved:
                factor, rest = divmod(int(c.others[s]) - v, s.other - s.base)
                if rest:
                    raise self._fault(node, s)
                v -= factor * s.base
                expected += factor * (s.unseen - s.base)
                names.append(self._extent(s) if factor == 1 else self._emit("Mul", self._extent(s), self._ints(factor)))
            if v or not names:
                names.append(self._ints(v))
            name = functools.reduce(lambda a, b: self._emit("Add", a, b), names)
        if expected != int(c.last):
            raise self._fault(node, (c.moved or list(self.others))[0])
        return name

    def _array(self, node: Any, c: _Constant) -> str:
        """Compute an array whose shape follows the extents: one repeated value, or a range."""
        base = c.base
        shape = c.map(lambda v: np.array(v.shape, np.int64))
        if all((v == base.flat[0]).all() for v in c.arrays):
            value = self.onnx.numpy_helper.from_array(base.reshape(-1)[:1])
            return self._emit("ConstantOfShape", self._vector(node, shape), value=value)
        if base.ndim == 1 and base.dtype.kind == "i" and all((v == np.arange(v.size)).all() for v in c.arrays):
            kind = self.onnx.helper.np_dtype_to_tensor_dtype(base.dtype)
            return self._emit("Cast", self._range(node, shape), to=kind)
        raise self._fault(node, c.moved[0])

    def _range(self, node: Any, shape: _Constant) -> str:
        """Compute 0, 1, … up to an extent; in opsets without ``Range`` as the places of as many ones."""
        if next(o.version for o in self.model.opset_import if o.domain == "") < 11:
            value = self.onnx.numpy_helper.from_array(np.ones(1, np.int64))
            places = self._emit("NonZero", self._emit("ConstantOfShape", self._vector(node, shape), value=value))
            return self._emit("Reshape", places, self._ints(-1))
        stop = self._vector(node, shape.map(lambda v: v.reshape(())))
        return self._emit("Range", self._store(np.array(0, np.int64)), stop, self._store(np.array(1, np.int64)))

    def _factor(self, node: Any, c: _Constant) -> str:
        """Compute a number that is proportional to an extent, or to its inverse."""
        s, base = c.moved[0], c.base
        a, b, z = (float(v.reshape(-1)[0]) for v in (base, c.others[s], c.last))
        eps = 8 * float(np.finfo(base.dtype).eps)
        for operator, constant, *twins in (("Div", a * s.base, b * s.other, z * s.unseen),
                                           ("Mul", a / s.base, b / s.other, z / s.unseen)):
            if all(abs(constant - t) <= eps * abs(constant) for t in twins):
                nearest = float(round(constant))
                constant = nearest if abs(constant - nearest) <= eps * abs(constant) else constant
                kind = self.onnx.helper.np_dtype_to_tensor_dtype(base.dtype)
                extent = self._emit("Cast", self._extent(s), to=kind)
                result = self._emit(operator, self._store(np.array([constant], base.dtype)), extent)
                return self._emit("Reshape", result, self._store(np.array(base.shape, np.int64)))
        raise self._fault(node, s)

    def _ints(self, *values: int) -> str:
        return self._store(np.array(values, np.int64))

    def _extent(self, s: Symbol) -> str:
        """Return an int64 vector of one element: the extent, read off an input."""
        if s not in self.made:
            i, axis = s.axes[0]
            self.made[s] = self._emit(
                "Gather", self._emit("Shape", self.inputs[i]), self._ints(axis), axis=0)
        return self.made[s]

    def _emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"extent_{self.count}"
        self.count += 1
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def _store(self, array: Any) -> str:
        key = ("store", array.dtype.str, array.shape, array.tobytes())
        if key not in self.made:
            self.made[key] = f"extent_const_{self.count}"
            self.count += 1
            self.model.graph.initializer.append(self.onnx.numpy_helper.from_array(array, self.made[key]))
        return self.made[key]

    # -- declared shapes ------------------------------------------------------------------------------------------

    def _finish(self, graph: Any) -> None:
        """Declare symbolic shapes of inputs and outputs, infer the others, drop constants that are not read."""
        for s in self.others:
            for i, axis in s.axes:
                _declare(graph.input[i].type.tensor_type.shape.dim[axis], s)
        for k, info in enumerate(graph.output):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                extents = {s: _extent_of(m, k, axis) for s, m in self.others.items()}
                moved = [s for s, n in extents.items() if n != dim.dim_value]
                if not moved:
                    continue
                s = moved[0]
                last = _extent_of(self.last, k, axis)
                if len(moved) == 1 and (dim.dim_value, extents[s], last) == (s.base, s.other, s.unseen):
                    _declare(dim, s)
                else:
                    dim.Clear()
        read = {n for node in graph.node for n in node.input}
        for i in range(len(graph.initializer) - 1, -1, -1):
            if graph.initializer[i].name not in read:
                del graph.initializer[i]
        del graph.value_info[:]
        light = without_arrays(self.model, lambda t: prod(t.dims) <= _SMALL, _as_input)
        found = self.onnx.shape_inference.infer_shapes(light, data_prop=True).graph
        graph.value_info.extend(found.value_info)
        del graph.output[:]
        graph.output.extend(found.output)


def _as_input(graph: Any, t: Any) -> None:
    tensor = graph.input.add(name=t.name).type.tensor_type
    tensor.elem_type = t.data_type
    for n in t.dims:
        tensor.shape.dim.add(dim_value=n)
    tensor.shape.SetInParent()


def _extent_of(model: Any, output: int, axis: int) -> int:
    return model.graph.output[output].type.tensor_type.shape.dim[axis].dim_value


def _declare(dim: Any, s: Symbol) -> None:
    dim.Clear()
    if not s.anonymous:
        dim.dim_param = s.name
