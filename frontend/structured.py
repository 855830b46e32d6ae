"""Functions stated once, in primitives: their values in NumPy, and their gradients of any order, follow from that."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kusari.ir import Builder, Node, Op, Value, attrs_key, evaluate, tensor_type
from kusari.ir.vjp import pull_back

from . import backend
from .array_program import array_function
from .backends import cuda
from .configuration import config
from .function_node import FunctionNode
from .lazy import lazy

MOST_FORMULAS = 4096
_ndarray = np.ndarray
NOTHING: Mapping[Value, Value] = MappingProxyType({})
_formulas: dict[Any, Formula] = {}


class Structured(FunctionNode):
    """A function that is stated once, by ``lower``.

    ``evaluate`` may compute the same faster with NumPy, and ``gradient`` state a gradient that is better than the
    derived one, in terms of results above all. Attributes are static: numbers, strings and tuples of them.
    """

    _names: tuple[str, ...] | None = None  # of the attributes
    _formula: Formula | None = None  # of the inputs it is applied to

    def __init_subclass__(cls) -> None:
        cls._names = None

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        """Build the outputs with ``b``, a ``Builder``."""
        raise NotImplementedError(f"{type(self).__name__} states no formula: it needs a method lower")

    # ``gradient(b, inputs, outputs, gys)``: the gradients of all inputs from those of the outputs, None for zero.
    gradient: Any = None
    # ``evaluate(inputs)``: the outputs for arrays.
    evaluate: Any = None

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        formula = self._formula = self.formula(inputs)
        if config.enable_backprop:
            self._input_indexes_to_retain, self._output_indexes_to_retain = formula.retained
        for x in inputs:
            if type(x) is not _ndarray:
                return self._forward_of_others(inputs, formula)
        return formula.compute(*inputs) if self.evaluate is None else self.evaluate(inputs)

    def _forward_of_others(self, inputs: tuple[Any, ...], formula: Formula) -> tuple[Any, ...]:
        """The outputs for arrays of which some are a card's, of a subclass of NumPy's, or stand for a type."""
        for x in inputs:
            if hasattr(x, "instead"):  # only types matter
                return tuple([x.instead(v.shape, v.tensor.dtype) for v in formula.outputs])
        if self.evaluate is not None:
            return self.evaluate(inputs)
        if all([isinstance(x, _ndarray) for x in inputs]):
            return formula.compute(*inputs)
        return formula.compute_on(backend.get_array_module(*inputs), inputs)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        formula = self._formula or self.formula(self.inputs)
        found = formula.derivative(indexes, tuple([g is not None for g in grad_outputs]))
        there = grad_outputs, self.get_retained_outputs(), self.get_retained_inputs()
        read = tuple([there[kind][i] for kind, i in found.reads])
        made = (*Gradient(found.formula).apply(read), *read) if found.formula.outputs else read
        return tuple([None if i is None else made[i] for i in found.results])

    def formula(self, inputs: Sequence[Any]) -> Formula:
        """The formula for inputs of these shapes and dtypes."""
        names = self._names
        if names is None:
            names = type(self)._names = tuple(
                [n for n in vars(self) if not n.startswith("_") and not hasattr(FunctionNode, n)])
        own = self.__dict__
        key: list[Any] = [type(self)]
        for n in names:
            key.append(own[n])
        for x in inputs:
            key.append(x.shape)
            key.append(x.dtype)
        found = _formulas.get(known := tuple(key))
        if found is None:
            if len(_formulas) >= MOST_FORMULAS:
                _formulas.clear()
            found = _formulas[known] = Formula.of(self, inputs)
        return found


def _drawn(xp: Any, attrs: Any, wide: bool) -> Any:
    draw = getattr(xp.random, attrs["dist"])
    drawn = draw(*attrs["args"], size=tuple(attrs["shape"]), dtype=np.float64 if wide else np.float32)
    drawn = drawn.astype(attrs["dtype"], copy=False)
    return evaluate(attrs["expr"], (drawn,), xp) if "expr" in attrs else drawn


# Primitives without operands, made by another array module than NumPy, and drawn by its generator.
_MADE: dict[str, Callable[[Any, Any, bool], Any]] = {
    "arange": lambda xp, attrs, wide: xp.arange(attrs["n"], dtype=np.int32),
    "full": lambda xp, attrs, wide: xp.full(attrs["shape"], attrs["value"], attrs["dtype"]),
    "random": _drawn,
}


class Derivative(NamedTuple):
    """Gradients of a formula: their formula, its reads, and where each gradient is found.

    A read is ``(0, number)`` of a gradient of an output, or ``(1, number)`` and ``(2, number)`` of a retained output or
    input. A result is a number among the outputs of the formula, followed by its inputs; None for zero.
    """

    formula: Formula
    reads: tuple[tuple[int, int], ...]
    results: tuple[int | None, ...]


class Formula:
    """The computation of a function on inputs of certain types: nodes of primitives, and of functions with gradients
    of their own.
    """

    def __init__(self, label: str, inputs: tuple[Value, ...], nodes: Sequence[Node], outputs: tuple[Value, ...],
                 function: Structured | None = None, origins: Mapping[Value, Value] = NOTHING) -> None:
        self.label = label
        self.inputs = inputs
        self.nodes = nodes
        self.outputs = outputs
        self._function = function
        self._origins = origins  # of detached values
        self._derivatives: dict[Any, Derivative] = {}
        self._derived: dict[Any, tuple[Formula, dict[Value, int | None], tuple[int | None, ...]]] = {}
        self._kernels: dict[Node, Any] = {}  # of a card

    @classmethod
    def of(cls, function: Structured, inputs: Sequence[Any]) -> Formula:
        """The formula of a function for inputs of these shapes and dtypes."""
        b = _Tracer()
        values = tuple([Value(tensor_type(x.dtype, x.shape)) for x in inputs])
        outputs = tuple(function.lower(b, *values))
        template = object.__new__(type(function))
        template.__dict__.update({n: function.__dict__[n] for n in function._names or ()})
        return cls(function.label, values, b.nodes, tuple(map(b.origin, outputs)), template, b.origins)

    def splice(self, b: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Build the formula with ``b``."""
        env = dict(zip(self.inputs, inputs, strict=True))
        for n in self.nodes:
            given = [env[self._origins.get(v, v)] for v in n.inputs]
            made = b.apply(n.attrs["function"], *given) if n.op is _APPLIED else b.emit(n.op, *given, **n.attrs)
            env.update(zip(n.outputs, made, strict=True))
        return tuple([env[v] for v in self.outputs])

    @lazy
    def _primitives(self) -> tuple[Sequence[Node], tuple[Value, ...]]:
        b = _Opened()
        outputs = self.splice(b, self.inputs)
        return b.nodes, outputs

    @lazy
    def compute(self) -> Callable[..., tuple[Any, ...]]:
        """The outputs for arrays of NumPy."""
        return array_function(self.inputs, *self._primitives)

    def compute_on(self, xp: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs for arrays of a card: one kernel for each map, and calls of ``xp``, which is CuPy."""
        nodes, outputs = self._primitives
        env = dict(zip(self.inputs, arrays, strict=True))
        wide = any([v.tensor.dtype == np.float64 for v in outputs])
        for n in nodes:
            given, made = [env[v] for v in n.inputs], _MADE.get(n.op.name)
            if n.op.name == "map":
                kernel = self._kernels.get(n)
                if kernel is None:
                    kernel = self._kernels[n] = cuda.map_kernel([n.attrs["expr"]], [x.dtype for x in given], self.label)
                results = (kernel(*given),)
            else:
                results = n.op.call(n.attrs, *given) if made is None else (made(xp, n.attrs, wide),)
            env.update(zip(n.outputs, map(xp.asarray, results), strict=False))
        return tuple([env[v] for v in outputs])

    @lazy
    def retained(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """The inputs and the outputs that gradients read."""
        floats = tuple([i for i, v in enumerate(self.inputs) if v.tensor.dtype.kind == "f"])
        read = self._derive(floats, tuple([v.tensor.dtype.kind == "f" for v in self.outputs]))[1]
        kept = [tuple([i for i, v in enumerate(values) if v in read]) or None for values in (self.inputs, self.outputs)]
        return kept[0], kept[1]

    def derivative(self, indexes: tuple[int, ...], given: tuple[bool, ...]) -> Derivative:
        """The gradients of some inputs, from those of the outputs that are given."""
        found = self._derivatives.get((indexes, given))
        if found is None:
            formula, read, results = self._derive(indexes, given)
            inputs, outputs = self.retained
            places = {v: (2, k) for k, v in enumerate([self.inputs[i] for i in inputs or ()])}
            places = {**{v: (1, k) for k, v in enumerate([self.outputs[i] for i in outputs or ()])}, **places}
            reads = [(0, i) if isinstance(i := read[v], int) else places[v] for v in read]
            found = self._derivatives[indexes, given] = Derivative(formula, tuple(reads), results)
        return found

    def _derive(self, indexes: tuple[int, ...],
                given: tuple[bool, ...]) -> tuple[Formula, dict[Value, int | None], tuple[int | None, ...]]:
        """The formula of gradients, the values that it reads (with a number: gradients of outputs), and the results."""
        if (known := self._derived.get((indexes, given))) is not None:
            return known
        b = _Tracer(self.nodes, self._origins)
        gys = [Value(v.type) if flag else None for v, flag in zip(self.outputs, given, strict=True)]
        wanted = [self.inputs[i] for i in indexes]
        found = _gradients(b, self._function, self.inputs, self.nodes, self.outputs, gys, wanted)
        found = [None if g is None else b.origin(g) for g in found]
        sources: dict[Value, int | None] = {v: i for i, v in enumerate(gys) if v is not None}
        sources.update(dict.fromkeys((*self.outputs, *self.inputs)))
        made = list(dict.fromkeys(g for g in found if g is not None and g not in sources))
        needed = {g for g in found if g is not None}
        nodes: list[Node] = []
        views: dict[Value, Value] = {}  # the value that an output is a reshaped form of
        for n in reversed(b.nodes):
            if n.op.name == "reshape" and n.output in sources and n.inputs[0] not in sources:
                views[n.inputs[0]] = n.output
            if needed.isdisjoint(n.outputs):
                continue
            if n.outputs[0] in views:
                needed.add(views[n.outputs[0]])
            elif any(v in needed and v not in sources for v in n.outputs):
                if n.op.has_effect:
                    raise TypeError(f"a gradient of {self.label} needs the result of {n.op.name}: make that an output")
                nodes.append(n)
                needed.update(map(b.origin, n.inputs))
        read = {v: i for v, i in sources.items() if v in needed}
        again = _Tracer()
        env = {v: Value(v.type) for v in read}
        inputs = tuple(env.values())
        env.update((v, again.reshape(env[y], v.shape)) for v, y in views.items() if y in env)
        for n in reversed(nodes):
            operands = [env[b.origin(v)] for v in n.inputs]
            results = again.apply(n.attrs["function"], *operands) if n.op is _APPLIED else again.emit(
                n.op, *operands, **n.attrs)
            env.update((v, y) for v, y in zip(n.outputs, results, strict=True) if v not in env)
        formula = Formula(f"{self.label}Grad", inputs, again.nodes, tuple([env[v] for v in made]))
        number = {v: i for i, v in enumerate([*made, *read])}
        results = tuple([None if g is None else number[g] for g in found])
        self._derived[indexes, given] = formula, read, results
        return formula, read, results


def _gradients(b: _Tracer, function: Structured | None, inputs: Sequence[Value], nodes: Sequence[Node],
               outputs: Sequence[Value], gys: Sequence[Value | None], wanted: Sequence[Value]) -> list[Value | None]:
    """The gradients of ``wanted``: as the function states them, or derived from its nodes."""
    if function is not None and function.gradient is not None:
        stated = dict(zip(inputs, function.gradient(b, inputs, outputs, gys), strict=True))
        return [None if (g := stated[v]) is None else b.broadcast_to(b.cast(g, v.tensor.dtype), v.shape)
                for v in wanted]
    seeds: dict[Value, Value] = {}
    for v, g in zip(outputs, gys, strict=True):
        if g is not None:
            seeds[v] = b.call("add", seeds[v], g) if v in seeds else g
    return pull_back(b, nodes, seeds, wanted, lambda node: _row_of)


def _row_of(b: Any, node: Node, gys: Any, wanted: Any) -> Any:
    whole = [None if g is None else b.broadcast_to(g, v.shape) for v, g in zip(node.outputs, gys, strict=True)]
    return node.attrs["function"].gradient(b, node.inputs, node.outputs, whole)


class Gradient(Structured):
    """Gradients of a function that is stated once."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.derived = formula

    @property
    def label(self) -> str:
        return self.derived.label

    def formula(self, inputs: Sequence[Any]) -> Formula:
        return self.derived

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        return self.derived.splice(b, inputs)


def _no_call(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    raise NotImplementedError("a function inside a formula is lowered before it runs")


_APPLIED = Op("applied", _no_call)


class _Opened(Builder):
    """A builder of primitives, each made once."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        super().__init__()
        self.nodes = list(nodes)
        self._known = {self._key(n.op, n.inputs, n.attrs): n.outputs for n in nodes}

    @staticmethod
    def _key(op: Op, inputs: Sequence[Value], attrs: Any) -> Any:
        function = attrs.get("function")
        if function is not None:
            attrs = {**vars(function), "": type(function)}
        return op, tuple(inputs), attrs_key(attrs)

    def emit(self, op: Op, *inputs: Value, **attrs: Any) -> tuple[Value, ...]:
        if op.has_effect:
            return super().emit(op, *inputs, **attrs)
        key = self._key(op, inputs, attrs)
        if key not in self._known:
            self._known[key] = super().emit(op, *inputs, **attrs)
        return self._known[key]


class _Tracer(_Opened):
    """A builder of formulas, in which functions that state their gradient stay, and values may be detached."""

    def __init__(self, nodes: Sequence[Node] = (), origins: Mapping[Value, Value] = NOTHING) -> None:
        super().__init__(nodes)
        self.origins = dict(origins)

    def detached(self, x: Value) -> Value:
        alias = Value(x.type)
        self.origins[alias] = x
        return alias

    def origin(self, x: Value) -> Value:
        """The value that ``x`` is, detached or not."""
        return self.origins.get(x, x)

    def apply(self, function: Any, *inputs: Value) -> tuple[Value, ...]:
        if getattr(function, "gradient", None) is None:
            return super().apply(function, *inputs)
        attrs = {"function": function}
        key = self._key(_APPLIED, inputs, attrs)
        if key not in self._known:
            types = [v.tensor for v in function.lower(Builder(), *inputs)]
            self._known[key] = self.fresh(_APPLIED, inputs, types, **attrs)
        return self._known[key]
