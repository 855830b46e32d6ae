"""Calls as a traced call makes them: Python functions run as instrumented copies, C functions as the tables say."""
from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....link import Link
from ....link.namespace import entries_of
from ....link_hook import call_with_hooks
from ....tape import current, static_function
from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import ComputedNumber, settled
from ...guards import guard as guards
from ...guards.guard import MISSING, is_plain
from ..copies.instrument import CannotRewrite, rewritten
from ..observation import Observation, is_ours
from ..own_functions import GENERATORS
from . import builtin_functions, c_functions, lookup, operations
from .c_code import C_FUNCTIONS, PURE_PYTHON, unknown

if TYPE_CHECKING:
    from .observer import Observer

# Modules of ours whose functions are recorded as operations, or compute from their arguments alone.
_LEAVES = (
    "kusari.variable", "kusari.variable_node", "kusari.variable_text", "kusari.parameter", "kusari.function",
    "kusari.function_node", "kusari.backprop", "kusari.configuration", "kusari.elementwise",
    "kusari.backend", "kusari.backends", "kusari.initializers", "kusari.utils", "kusari.tape",
    "kusari.callsite", "kusari.static", "kusari.symbolic", "kusari.lazy", "kusari.ir", "kusari.runtime",
    "kusari.codegen", "kusari.passes", "kusari.function_hook", "kusari.function_hooks",
    "kusari.link_hooks", "kusari.serializers", "kusari._random_state", "kusari.link.walk")
_REPORTS = frozenset(("report", "get_current_reporter", "Reporter.report", "report_scope"))
_OF_FRAMES = frozenset(("_getframe", "currentframe", "stack_info", "getframeinfo", "getouterframes"))
_LRU_CACHE = type(functools.lru_cache(len))
_PLACEHOLDER: Any = getattr(functools, "Placeholder", None)  # in a partial, an argument that comes later (Python 3.14)


def call(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call anything, observed."""
    kind = type(f)
    if cards.is_of_cupy(f):
        return cards.called(k.observation.tape, f, args, kwargs)
    if kind is types.FunctionType:
        return python(k, f, args, kwargs)
    if kind is types.MethodType:
        if isinstance(f.__self__, GENERATORS):
            return c_functions.of_generator(k, f, *args, **kwargs)
        return call(k, f.__func__, (f.__self__, *args), kwargs)
    if kind is functools.partial:
        if f.keywords:
            k.observation.items(f.keywords, "the keywords of a partial")
        return call(k, f.func, _arguments(f, args), {**f.keywords, **kwargs})
    if args and (issubclass(kind, type) or kind in C_FUNCTIONS):
        cards.refuses(k.observation.tape, f, args)
    if issubclass(kind, type):
        return builtin_functions.construct(k, f, args, kwargs)
    if operations.is_function(f):
        makes_generator = getattr(f, "__name__", "") == "default_rng" and not k.observation.off
        return (builtin_functions.make_generator if makes_generator else operations.function)(k, f, args, kwargs)
    if kind in C_FUNCTIONS:
        return c_functions.call(k, f, args, kwargs)
    if kind is _LRU_CACHE:
        return _memoized(k, f, args, kwargs)
    special = c_functions.INSTANCES.get(kind)
    if special is not None:
        return special(k, f, *args, **kwargs)
    if issubclass(type(f), Link) and kind.__call__ is Link.__call__:
        return _link(k, f, *args, **kwargs)
    own = lookup.find(k, kind, "__call__")
    if own is MISSING:
        return f(*args, **kwargs)
    if isinstance(own, staticmethod):
        return call(k, own.__func__, args, kwargs)
    if isinstance(own, types.FunctionType):
        return call(k, own, (f, *args), kwargs)
    if hasattr(type(own), "__get__") and not isinstance(own, C_FUNCTIONS):
        return call(k, lookup.bind(k, own, f, kind), args, kwargs)
    return unknown(k, f, args, kwargs)


def _arguments(f: functools.partial[Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a partial, those of its call in the places that were left to them and behind."""
    places = sum(x is _PLACEHOLDER for x in f.args) if _PLACEHOLDER is not None else 0
    if places > len(args):
        f(*args)  # raises
    later = iter(args)
    return (*[next(later) if places and x is _PLACEHOLDER else x for x in f.args], *later)


def _link(k: Observer, link: Link, /, *args: Any, **kwargs: Any) -> Any:
    """Call a link, as ``Link.__call__`` does without hooks."""
    o = k.observation
    o.tape.link(link)
    if o.off or o.hooked is not None or "_params" not in entries_of(link):
        return Link.__call__(link, *args, **kwargs)
    if hasattr(link, "forward"):
        forward = lookup.read(k, link, "forward")
    else:  # a mix-in after Link in the bases may define __call__
        kind = type(link)
        found = lookup.find(k, kind, "__call__", kind.__mro__[kind.__mro__.index(Link) + 1:])
        if found is MISSING:
            return Link.__call__(link, *args, **kwargs)
        forward = lookup.bind(k, found, link, kind)
    if current.__dict__ and current.link_hooks:
        return call(k, call_with_hooks, (link, forward, args, kwargs, None), {})
    return call(k, forward, args, kwargs)


def _item(k: Observer, x: Variable) -> Any:
    """``Variable.item``: a number that replays compute."""
    return operations.method(k, k.observation.tape.take(x), "item", (), {})


_METHODS: dict[Any, Callable[..., Any]] = {
    Link.__call__: _link, Variable.item: _item,
    **{f: functools.partial(builtin_functions.set_filter, f) for f in (warnings.simplefilter, warnings.filterwarnings)}}


def python(k: Observer, f: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a Python function: a leaf as it is, any other one as its instrumented copy."""
    o = k.observation
    module = f.__globals__.get("__name__") or ""
    if f.__dict__:
        static = static_function(f)
        if static is not None:
            return call(k, static.fn, args, kwargs)
        if "is_static_code" in f.__dict__:
            return f(*args, **kwargs)
    if args and f in _METHODS:
        return _METHODS[f](k, *args, **kwargs)
    ours = is_ours(module)
    if ours and f.__name__ in ("__setattr__", "__delattr__") and len(args) > 1:
        return lookup.write_own(k, f, *args, *(() if len(args) > 2 else (MISSING,)))
    if ours and _is_leaf(module):
        return o.fresh_tree(f(*settled(args, f.__name__), **settled(kwargs, f.__name__)))
    if module == "kusari.reporter" and f.__qualname__ in _REPORTS or module == ComputedNumber.__module__:
        return o.fresh_tree(f(*args, **kwargs))
    if module.partition(".")[0] in ("numpy", "cupy"):
        return operations.function(k, f, args, kwargs)
    if module in PURE_PYTHON and is_plain((args, kwargs)):
        return o.fresh_tree(f(*args, **kwargs))
    generated = builtin_functions.generated(k, f, args, kwargs)
    if generated is not NotImplemented:
        return generated
    if not ours and not o.is_fresh(f):
        _note_code(o, f)
    if not _OF_FRAMES.isdisjoint(f.__code__.co_names):
        o.note(f"{f.__qualname__} looks at frames, which are others in a traced call")
        return f(*args, **kwargs)
    try:
        copy = rewritten(f.__code__, f.__globals__)
    except CannotRewrite as error:
        o.note(f"{f.__qualname__} cannot be observed: {error.args[0]}")
        return f(*args, **kwargs)
    result = copy.make(f, k.inside(f))(*args, **kwargs)
    if type(result) is types.GeneratorType:
        o.fresh(result)
        o.generators.append(weakref.ref(result))
    return result


def _note_code(o: Observation, f: Any) -> None:
    """Note that a function of the user's runs, with its defaults."""
    o.guard("code", f, None, lambda where: guards.Code(f, where))
    for x in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
        if o.tape.is_argument(x):
            o.found(x, f"a default of {f.__name__}")


@functools.cache
def _is_leaf(module: str) -> bool:
    """Whether the functions of a module of ours run as they are."""
    return module != ComputedNumber.__module__ and any(
        module == leaf or module.startswith(f"{leaf}.") for leaf in _LEAVES)


def _memoized(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function behind ``lru_cache``, whose result may be a kept one: it is asked again before each replay."""
    o, args, kwargs = k.observation, settled(args, f.__name__), settled(kwargs, f.__name__)
    for x in (*args, *kwargs.values()):
        if issubclass(type(x), (np.ndarray, Variable)):
            o.note(f"{f.__name__} keeps what it has computed of an array or a Variable")
            return f(*args, **kwargs)
    with o.tape.unobserved():
        value = f(*args, **kwargs)
    asked = functools.partial(f, **kwargs) if kwargs else f
    return o.called_again(asked, args, value, f"the result of {f.__name__}")
