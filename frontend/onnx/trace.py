"""One traced call of a model, as the exporter and the verifier need it."""
from __future__ import annotations

import copy
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kusari.ir import Node, Op, Value, copied

from .. import reporter
from ..backends import cuda
from ..configuration import config, using_config
from ..functions.math.identity import Identity
from ..link import Link
from ..link.namespace import entries_of
from ..link.static_view import StaticView
from ..parameter import Parameter
from ..static.arrays.bindings import ParameterBinding, StateBinding
from ..static.trace.observer.first_call import observed
from ..static.trace.recorder import Tape
from ..static.trace.recording import NotStatic, Recording, finish
from ..static.trees import flatten, unflatten
from ..tape import recording
from ..variable import Variable
from .errors import DataReadError, ExportError
from .origin import origins


@dataclass(frozen=True)
class Call:
    """A call of ``model`` whose argument tree is ``spec`` (arguments, keyword arguments) over ``arrays``."""

    model: Any
    spec: Any
    arrays: tuple[np.ndarray[Any, Any], ...]
    names: tuple[str, ...]
    train: bool

    def variables(self, arrays: Any = None) -> list[Variable]:
        """Return Variables of fresh copies: every argument is an array of its own."""
        place = next((root.device for root in roots(self.model)), None)
        fresh = [np.array(x, order="C") for x in (self.arrays if arrays is None else arrays)]
        # A model may compute gradients of its own, with respect to its arguments too.
        return [Variable(x if place is None else place.send(x), requires_grad=x.dtype.kind == "f") for x in fresh]

    def apply(self, leaves: list[Variable], backprop: bool = False) -> Any:
        """Call the model as it is to be exported."""
        args, kwargs = unflatten(self.spec, iter(leaves))
        with using_config("train", self.train), using_config("enable_backprop", backprop):
            return _computed(observed(self.model, args, kwargs))

    def run(self, arrays: Any) -> list[np.ndarray[Any, Any]]:
        """Return the outputs of define-by-run as arrays; neither the model nor the random state changes."""
        with unchanged(self.model), recording(None):
            result: list[Any] = []
            flatten(self.apply(self.variables(arrays)), result)
            return [to_array(x) for x in result]


def _computed(tree: Any) -> Any:
    """Return a result tree with Variables in place of Parameters, which count as structure of trees."""
    if isinstance(tree, Parameter):
        return Identity().apply((tree,))[0]
    if type(tree) in (tuple, list):
        return type(tree)(map(_computed, tree))
    return {k: _computed(v) for k, v in tree.items()} if type(tree) is dict else tree


@dataclass(frozen=True, eq=False)
class AttributeBinding:
    """A value that is the Variable which stands in the attribute ``name`` of ``link``, a recurrent layer's ``h``."""

    link: Any
    name: str

    def array(self) -> Any:
        """The array bound now."""
        return entries_of(self.link)[self.name]._array


class ExportTape(Tape):
    """A tape that takes arrays from outside as constants, and Variables in attributes of links as their state.

    Invariant: they do not depend on the arguments, which are all Variables whose data cannot be read unnoticed.
    """

    whole_layers = True  # recurrent layers are single operators, and what `forget` computes is seen
    takes_arrays = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.data_read = False  # whether that is among the faults
        self._held = {id(v._array): (v, AttributeBinding(link, name)) for link, name, v in _variables(model)}

    def value_of(self, variable: Variable, label: str) -> Any:
        array = variable._array
        if not isinstance(variable, Parameter) and variable.creator_node is None and self.known(array) is None:
            held = self._held.get(id(array))
            if held is not None:
                return self.bind(array, cast(Any, held[1]), held[1].name)
            self.constant(array)
        return super().value_of(variable, label)

    def read(self, array: Any, what: str) -> None:
        self.data_read = True
        super().read(array, what)

    def _taken_out(self, what: str) -> None:
        self.data_read = True
        super()._taken_out(what)

    def whole(self, fn: Callable[..., Any], form: Callable[..., Any] | None, args: Any, kwargs: Any, name: str = "",
              attributes: tuple[str, ...] = ()) -> Any:
        """Call a function composed of others; where nothing asks for gradients, it is one node, with an ONNX ``form``.

        That node is lowered to the functions it is composed of. Converters of functions called ``name`` see it with
        the arguments ``attributes`` as such.
        """
        start = len(self.nodes)
        y = fn(*args, **kwargs)
        if config.enable_backprop or self.fault is not None:
            return y
        bound = inspect.signature(fn).bind(*args, **kwargs)
        bound.apply_defaults()
        arrays = {k: x._array if isinstance(x, Variable) else x for k, x in bound.arguments.items()}
        known = {k: v for k, x in arrays.items() if (v := self.known(x)) is not None}
        inner = tuple(self.nodes[start:])
        made = {v for n in inner for v in n.outputs}
        leaves: list[Any] = []
        flatten(y, leaves)
        present = [self.known(x._array) for x in leaves]
        results = tuple([v for v in present if v is not None and v in made])
        if not results or len(set(results)) < len(leaves):  # an argument is among them, or one of them twice
            return y
        reads = dict.fromkeys([*known.values(), *(v for n in inner for v in n.inputs if v not in made)])
        settings = {k: v for k, v in bound.arguments.items() if k not in known}
        names = {k: list(reads).index(v) for k, v in known.items()}
        shown = {k: v for k, v in arrays.items() if k in attributes or not holds_arrays(v)}
        attrs = {"form": form, "settings": settings, "names": names, "nodes": inner, "inputs": tuple(reads),
                 "results": results, "shown": shown, "hidden": {names[k]: arrays[k] for k in attributes if k in names}}
        self.nodes[start:] = [Node(_whole(name or fn.__name__), tuple(reads), results, attrs, inner[-1].where)]
        return y


class BakingTape(ExportTape):
    """A tape for which data that are read are constants, whatever they were computed from."""

    def take(self, variable: Variable) -> Any:
        if isinstance(variable, Parameter):
            return super().take(variable)
        array = variable._array.copy()
        self.constant(array)
        return array

    def read(self, array: Any, what: str) -> None:
        """Nothing."""

    def escape(self, variable: Variable, what: str) -> None:
        """Nothing."""


def _whole_onnx(g: Any, attrs: Any, *names: str) -> Any:
    if attrs["form"] is None:
        return NotImplemented
    return attrs["form"](g, **attrs["settings"], **{k: names[i] for k, i in attrs["names"].items()})


def _whole_lower(b: Any, attrs: Any, *values: Value) -> tuple[Value, ...]:
    env = dict(zip(attrs["inputs"], values, strict=True))
    b.nodes += copied(attrs["nodes"], env)
    return tuple([env[v] for v in attrs["results"]])


def _whole_call(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    env = dict(zip(attrs["inputs"], arrays, strict=True))
    for n in attrs["nodes"]:
        env.update(zip(n.outputs, n.op.call(n.attrs, *[env[v] for v in n.inputs]), strict=True))
    return tuple([env[v] for v in attrs["results"]])


@functools.cache
def _whole(name: str) -> Op:
    """The op of a function composed of others."""
    return Op(name, _whole_call, lower=_whole_lower, onnx=_whole_onnx)


def _variables(model: Any) -> list[tuple[Link, str, Variable]]:
    """Return the Variables with data that stand in attributes of a model's links, parameters apart."""
    return [(link, name, v) for root in roots(model) for link in root.links() for name, v in entries_of(link).items()
            if isinstance(v, Variable) and not isinstance(v, Parameter) and v._array is not None]


def holds_arrays(value: Any) -> bool:
    """Whether there are arrays or Variables in a tree."""
    leaves: list[Any] = []
    flatten(value, leaves)
    return bool(leaves)


def to_array(x: Any) -> np.ndarray[Any, Any]:
    """Return a leaf as a NumPy array."""
    return cuda.to_cpu(x.array if isinstance(x, Variable) else x)


def checked_model(model: Any) -> Any:
    """Return the callable: ``model``, or the object behind a view ``model.static``; raises ``ExportError``."""
    if isinstance(model, StaticView):
        model = model._owner
    if not callable(model) or isinstance(model, Link) and not hasattr(model, "forward") and (
            type(model).__call__ is Link.__call__):
        raise ExportError(f"model must be a link with a forward, or another callable; got {type(model).__name__}")
    return model


# What both NumPy and ONNX compute with.
_DTYPES = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32",
           "float64"}


def call_of(model: Any, args: Any, train: bool, input_names: Any = None, by_key: bool = True) -> Call:
    """Return the call that ``args`` mean: an array, a tuple or list of arguments, or a dict of keyword arguments.

    Inputs without a name given are called by the keys of a dict if ``by_key``, else by number.
    """
    if isinstance(args, dict):
        tree: Any = ((), dict(args))
    elif isinstance(args, (tuple, list)):
        tree = (tuple(args), {})
    else:
        tree = ((args,), {})
    leaves: list[Any] = []
    spec = flatten(tree, leaves)
    for x in leaves:
        if isinstance(x, Variable) and x.array is None:
            raise ExportError("an argument is a Variable without data; give it an array")
    if not leaves:
        short = reprlib.Repr()
        short.maxlist = short.maxtuple = short.maxdict = 2
        raise ExportError(f"args must hold at least one array or Variable, got {short.repr(args)}")
    names = _names("input_names", input_names, _default_names(args if by_key else leaves, "Input"), _keys(args))
    for name, x in zip(names, leaves, strict=True):
        if x.dtype.name not in _DTYPES:
            raise ExportError(f"the argument {name!r} is of dtype {x.dtype}, which cannot be exported; convert it to "
                              "one of float16, float32, float64, bool and the integers")
    return Call(model, spec, tuple(to_array(x) for x in leaves), names, train)


def _keys(tree: Any) -> list[Any] | None:
    return list(tree) if isinstance(tree, dict) else None


def _default_names(tree: Any, stem: str) -> list[str]:
    """Return a name per leaf: the keys of a dict, else numbers."""
    if isinstance(tree, dict):
        names: list[str] = []
        for key, part in tree.items():
            inner: list[Any] = []
            flatten(part, inner)
            names += [str(key)] if len(inner) == 1 else [f"{key}_{i}" for i in range(len(inner))]
        return names
    leaves: list[Any] = []
    flatten(tree, leaves)
    return [f"{stem}_{i}" for i in range(len(leaves))]


def _names(what: str, given: Any, default: list[str], keys: list[Any] | None) -> tuple[str, ...]:
    if given is None:
        names = default
    elif isinstance(given, dict):
        if keys is None or set(given) != set(keys) or len(keys) != len(default):
            raise ExportError(f"{what}: a dict must have the keys {keys}, got {sorted(map(str, given))}")
        names = [given[k] for k in keys]
    else:
        names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(default):
        raise ExportError(f"{what}: expected {len(default)} names, got {len(names)}: {names}")
    if len(set(names)) != len(names) or not all(isinstance(n, str) and n for n in names):
        raise ExportError(f"{what}: names must be distinct, non-empty strings, got {names}")
    return tuple(names)


def output_names(result: Any, given: Any) -> tuple[str, ...]:
    """Return a name per leaf of a result tree."""
    return _names("output_names", given, _default_names(result, "Output"), _keys(result))


def trace(call: Call, backprop: bool = False, kind: type[ExportTape] = ExportTape) -> tuple[Recording, Any]:
    """Return the recording of ``call``, and what it returned; raises ``ExportError`` where it cannot be followed."""
    # Parameters may be initialised here, which draws as in any first call.
    with unchanged(call.model, generator=False):
        leaves = call.variables()
        tape = kind(call.model)
        inputs = tuple(tape.define(v._array, f"x{i}") for i, v in enumerate(leaves))
        try:
            with origins(roots(call.model)), recording(tape):
                result = call.apply(leaves, backprop)
            return finish(type(call.model).__name__, tape, inputs, list(leaves), result), result
        except NotStatic as error:
            fault = error.fault
            kind_of_error = DataReadError if tape.data_read else ExportError
            raise kind_of_error(f"{fault.where}: the model cannot be exported: {fault.reason}") from None


@dataclass(frozen=True, eq=False)
class Using:
    """A function with the links that it uses, for names of parameters and for what must stay as it is."""

    fn: Any
    links: tuple[Link, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def roots(model: Any) -> list[Link]:
    """Return the links that a model is: itself, or links that a method or function holds, or names as globals."""
    if isinstance(model, Using):
        return list(model.links)
    if isinstance(model, functools.partial):
        held = [model.func, *model.args, *model.keywords.values(), *roots(model.func)]
    else:
        held = [model, getattr(model, "__self__", None)]
    for cell in getattr(model, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # a name that is not bound yet
            continue
    code = getattr(model, "__code__", None)
    if code is not None:
        held += [getattr(model, "__globals__", {}).get(name) for name in code.co_names]
    return [x for x in {id(x): x for x in held}.values() if isinstance(x, Link)]


def binding_names(model: Any, recording_: Recording) -> list[str]:
    """Return the names of the graph's params: paths in the model."""
    paths: dict[Any, str] = {}
    for root in roots(model):
        for path, p in root.namedparams():
            paths.setdefault(id(p), path)
        for path, link in root.namedlinks():
            paths.setdefault(id(link), path)
            for name in sorted(link._persistent):
                paths.setdefault((id(link), name), f"{path.rstrip('/')}/{name}")
    names: list[str] = []
    for i, binding in enumerate(recording_.bindings):
        if isinstance(binding, ParameterBinding):
            name = paths.get(id(binding.parameter)) or f"/{binding.parameter.name or 'param'}"
        elif isinstance(binding, StateBinding):
            name = paths.get((id(binding.link), binding.name), f"/{binding.name}")
        elif isinstance(binding, AttributeBinding):
            name = f"{paths[id(binding.link)].rstrip('/')}/{binding.name}"
        else:
            name = "/buffer"
        names.append(name if name not in names else f"{name}_{i}")
    return names


@contextmanager
def unchanged(model: Any, generator: bool = True) -> Iterator[None]:
    """Context after which persistent values and states are as before, with ``generator`` NumPy's generator too.

    Reports inside reach no reporter. States have no history inside.
    """
    kept = [(link, name, copy.deepcopy(entries_of(link)[name])) for root in roots(model) for link in root.links()
            for name in sorted(link._persistent) if name in entries_of(link)]
    state = np.random.get_state()
    reporters = reporter._stack()
    listening = reporters[:]
    reporters.clear()
    try:
        with states_kept(model):
            yield
    finally:
        reporters[:] = listening
        if generator:
            np.random.set_state(state)
        for link, name, before in kept:
            now = entries_of(link).get(name)
            if not isinstance(now, np.generic) and getattr(before, "shape", None) == getattr(now, "shape", 0):
                cast(Any, now)[...] = before
            elif before is not None:
                entries_of(link)[name] = before


@contextmanager
def states_kept(model: Any) -> Iterator[None]:
    """Context after which Variables in attributes of links are what they were; inside they begin without a history."""
    before = [(link, dict(entries_of(link))) for root in roots(model) for link in root.links()]
    for link, name, v in _variables(model):
        entries_of(link)[name] = Variable(v._array, requires_grad=False)
    try:
        yield
    finally:
        for link, attributes in before:
            for name in [n for n, v in entries_of(link).items() if _is_state(v) or _is_state(attributes.get(n))]:
                if name in attributes:
                    entries_of(link)[name] = attributes[name]
                else:
                    del entries_of(link)[name]


def _is_state(value: Any) -> bool:
    """Whether an attribute holds Variables that are no parameters."""
    if type(value) in (tuple, list):
        return any(map(_is_state, value))
    return isinstance(value, Variable) and not isinstance(value, Parameter)
