"""Built-in functions and classes, by tables of the arguments that each reads and changes; objects made by any class."""
from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import inspect
import itertools
import operator
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....callsite import user_frame
from ....link.namespace import namespace_of
from ....variable import Variable
from ...computed_numbers import ComputedNumber, settled
from ...guards.guard import MISSING
from ..contents import left_by_forward
from ..numpy_nodes import extreme_of, of_python
from ..observation import NOT_DRAWN_AGAIN, NOT_GONE_ON, is_ours
from ..own_functions import GENERATORS
from . import containers, lookup, operations, texts
from .c_code import CALLBACKS, VALUES, Handler, unknown, wrapped
from .containers import native
from .operators import EVERY

if TYPE_CHECKING:
    from .observer import Observer


def _isinstance(k: Observer, x: Any, classes: Any) -> Any:
    if type(x) is not type and containers_of_classes(classes):
        if lookup._is_users(type(x)):
            k.observation.kind(x)
        return isinstance(x, classes)
    what = "the class of an object"
    if k.observation.is_outside(x) and not issubclass(type(x), (np.ndarray, Variable)):
        return k.observation.called_again(isinstance, (x, classes), isinstance(x, classes), what)
    return k.observation.called_again(issubclass, (type(x), classes), isinstance(x, classes), what)


def containers_of_classes(classes: Any) -> bool:
    """Whether classes have no say in who is their instance."""
    if isinstance(classes, tuple):
        return all(map(containers_of_classes, classes))
    return type(classes) is type or isinstance(classes, types.UnionType) and all(
        map(containers_of_classes, classes.__args__)) or is_ours(getattr(classes, "__module__", None))


def _getattr(k: Observer, x: Any, name: str, *default: Any) -> Any:
    try:
        return lookup.read(k, x, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(k: Observer, x: Any, name: str) -> bool:
    return _getattr(k, x, name, MISSING) is not MISSING


def _next(k: Observer, it: Any, *default: Any) -> Any:
    try:
        found = lookup.call_own(k, it, "__next__")
        if found is not MISSING:
            return found
        if not k.observation.is_fresh(it):
            k.observation.note(f"a {type(it).__name__} {NOT_GONE_ON}")
        return next(it)
    except StopIteration:
        if default:
            return default[0]
        raise


def _iter(k: Observer, x: Any, *sentinel: Any) -> Any:
    if sentinel:
        return unknown(k, iter, (x, *sentinel), {})
    found = iter(containers.iterate(k, x))
    return k.observation.fresh(found) if found is not x else found


def _type(k: Observer, x: Any, /, *more: Any, **kwargs: Any) -> Any:
    if more:
        return unknown(k, type, (x, *more), kwargs)
    if lookup._is_users(type(x)):
        k.observation.kind(x)
    return x.kusari_kind if isinstance(x, ComputedNumber) else type(x)


def _id(k: Observer, x: Any) -> int:
    if not isinstance(x, (types.FunctionType, type, types.ModuleType)) and not k.is_copy and (
            not k.observation.is_outside(x) or issubclass(type(x), (np.ndarray, Variable))):
        k.observation.note("id() of an object that is another one in every call is asked for")
    return id(x)


def _print(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
    o = k.observation
    plain = [x if isinstance(x, (str, np.ndarray, Variable)) else texts.text(k, str, x) for x in args]
    file = kwargs.get("file")
    if file is not None and not (file is sys.stdout or file is sys.stderr or o.is_outside(file)):
        return unknown(k, print, args, kwargs)
    with o.tape.unobserved():
        print(*args, **kwargs)
    o.effect(functools.partial(_printed, kwargs), tuple(plain), "print()")


def _printed(kwargs: dict[str, Any], *args: Any) -> None:
    print(*args, **kwargs)


def _warn(k: Observer, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None,
          **more: Any) -> None:
    """Warn at the user's line, and again in each replay."""
    if k.observation.silenced:
        k.observation.note("a warning is given where its filters are others, which replays would not set")
    frame = user_frame()
    for _ in range(stacklevel - 1):
        frame = None if frame is None else frame.f_back
        while frame is not None and is_ours(frame.f_globals.get("__name__")):
            frame = frame.f_back
    where = (sys.argv[0] or "sys", 1, None, None) if frame is None else (
        frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}))
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    again = functools.partial(warnings.warn_explicit, message, kind, *where)
    k.observation.effect(again, (), "a warning")
    again()


def set_filter(f: Any, k: Observer, /, *args: Any, **kwargs: Any) -> Any:
    """Set a filter of warnings, which lasts until a block ends that puts the filters back; replays need none."""
    if not k.observation.silenced:
        k.observation.note("a filter of warnings is set, which replays would not repeat; set it outside")
    return f(*args, **kwargs)


def _catch_warnings(k: Observer, /, **kwargs: Any) -> Any:
    if kwargs:
        k.observation.note("warnings are recorded, and replays may give others")
    return k.observation.fresh(warnings.catch_warnings(**kwargs))


def _vars(k: Observer, *args: Any) -> Any:
    if not args:
        return _forbidden("vars")(k)
    vars(args[0])  # a link is exposed
    return namespace(k, args[0])


def namespace(k: Observer, x: Any) -> dict[str, Any]:
    """Return the namespace of an object, which is as fresh as the object is."""
    entries = namespace_of(x)
    if k.observation.is_fresh(x):
        k.observation.fresh(left_by_forward(k.observation, x, "__dict__", entries))
    return entries


def _dir(k: Observer, *args: Any) -> Any:
    if not args:
        return _forbidden("dir")(k)
    found = dir(*args)
    k.observation.called_again(_names_in, args, tuple(found), f"the names in a {type(args[0]).__name__}")
    return k.observation.fresh(found)


def _names_in(x: Any) -> tuple[str, ...]:
    return tuple(dir(x))


def _ordering(f: Any) -> Handler:
    """``sorted``, ``min`` or ``max``."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        items = list(containers.iterate(k, args[0])) if len(args) == 1 else list(args)
        if f is not sorted and not kwargs and (extreme := extreme_of(k.observation.tape, f, items)) is not None:
            return extreme
        for x in items:
            containers.look(k, x)
        if kwargs.get("key") is not None:
            kwargs["key"] = wrapped(k, kwargs["key"], CALLBACKS)
        with k.observation.tape.net:
            found = f(items, **kwargs) if len(args) == 1 else f(*items, **kwargs)
        return k.observation.fresh(found) if f is sorted else found
    return handler


def _truths(f: Callable[[Iterable[bool]], bool]) -> Handler:
    """``any`` or ``all``."""
    return lambda k, items: f(k.truth(x) for x in containers.iterate(k, items))


def _reduce(k: Observer, f: Any, items: Any, *start: Any, **named: Any) -> Any:
    return functools.reduce(lambda a, b: k.call(f, a, b), containers.iterate(k, items), *start, **named)


def _number(f: Any) -> Handler:
    """``int``, ``float``, ``complex`` or ``bool`` of anything."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        if not args:
            return f(**kwargs)
        x = args[0]
        if issubclass(type(x), Variable) and f in (int, float) and len(args) == 1 and not kwargs:
            return operations.read_number(k, lambda array: f(array.item()), k.observation.tape.take(x),
                                          f"{f.__name__}()")
        if issubclass(type(x), Variable):
            k.observation.tape.escape(x, f"{f.__name__}()")
        elif isinstance(x, ComputedNumber) and f in (int, float) and len(args) == 1 and not kwargs:
            return operations.read_number(k, f, x.kusari_array, f"{f.__name__}()")
        elif issubclass(type(x), np.ndarray) and len(args) == 1 and not kwargs:
            return operations.read_number(k, f, x, f"__{f.__name__}__()")
        else:
            for name in (f"__{f.__name__}__", "__index__"):
                found = lookup.call_own(k, x, name)
                if found is not MISSING:
                    return found
            containers.look(k, x)
        return f(*args, **kwargs)
    return handler


def _text(f: Any) -> Handler:
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs or f is format:
            return texts.text(k, f, *args)
        return native(k, f, args, kwargs)
    return handler


def _hash(k: Observer, x: Any) -> Any:
    found = lookup.call_own(k, x, "__hash__")
    if found is not MISSING:
        return found
    return hash(x) if isinstance(x, VALUES) else _id(k, x) and hash(x)


def _collection(f: Any) -> Handler:
    """``list``, ``tuple``, ``set`` … of an iterable."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        rest = settled((args[1:], kwargs), f.__name__)
        return containers.made(k, f(*[containers.iterate(k, x) for x in args[:1]], *rest[0], **rest[1]))
    return handler


def _dict(f: Any) -> Handler:
    """A dictionary of the content of another one, which ``defaultdict`` gets behind its default."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        first = int(f is collections.defaultdict)
        rest = [content(k, x) for x in args[first:first + 1]]
        return k.observation.fresh(f(*args[:first], *rest, *args[first + 1:], **kwargs))
    return handler


def content(k: Observer, x: Any) -> Any:
    """Return the entries that a dictionary is made of, as they are now."""
    if isinstance(x, (dict, types.MappingProxyType)):
        k.observation.items(x, containers.name_of(x))
        return dict(x)
    return [tuple(containers.iterate(k, pair)) for pair in containers.iterate(k, x)]


def _iterator(f: Any) -> Handler:
    """``zip``, ``map``, ``enumerate``, ``itertools.chain`` …: an iterator over others."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        args = tuple([settled(x, f.__name__) if isinstance(x, ComputedNumber) else x for x in args])
        kwargs = settled(kwargs, f.__name__)
        inner = [containers.iterate(k, x) if isinstance(x, Variable) or not isinstance(x, (str, bytes)) and hasattr(
            type(x), "__iter__") else wrapped(k, x, CALLBACKS) for x in args]
        return k.observation.fresh(f(*inner, **kwargs))
    return handler


def _forbidden(name: str) -> Handler:
    """A function of ``builtins`` that depends on the frame of its caller, or reads anything at all."""
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        k.observation.note(f"by {name} it may read what it does not name, and no guard would see a change")
        frame = _frame_of_the_copy()
        if frame is None or args[1:] or "globals" in kwargs or name not in (
                "eval", "exec", "globals", "locals", "vars", "dir"):
            return getattr(builtins, name)(*args, **kwargs)
        names = {n: x for n, x in frame.f_locals.items() if not n.startswith("__kusari_")}
        if name in ("eval", "exec"):
            return getattr(builtins, name)(args[0], frame.f_globals, kwargs.pop("locals", names), **kwargs)
        return frame.f_globals if name == "globals" else sorted(names) if name == "dir" else names
    return handler


def _frame_of_the_copy() -> types.FrameType | None:
    """Return the innermost frame of an instrumented copy."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and "__kusari__" not in frame.f_code.co_freevars:
        frame = frame.f_back
    return frame


def _round(k: Observer, x: Any, /, *digits: Any, **kwargs: Any) -> Any:
    found = lookup.call_own(k, x, "__round__", *digits, **kwargs)
    return native(k, round, (x, *digits), kwargs) if found is MISSING else found


def _reversed(k: Observer, x: Any) -> Any:
    found = lookup.call_own(k, x, "__reversed__")
    if found is not MISSING:
        return found
    if issubclass(type(x), np.ndarray) or isinstance(lookup.find(k, type(x), "__getitem__"), types.FunctionType):
        return k.observation.fresh(iter([k.item(x, i) for i in range(containers.length(k, x) - 1, -1, -1)]))
    containers.iterate(k, x)
    return k.observation.fresh(reversed(x))


def _arithmetic(f: Any, ufunc: Any) -> Handler:
    def handler(k: Observer, /, *args: Any, **kwargs: Any) -> Any:
        if any(issubclass(type(x), Variable) for x in args):
            return k.of_variables(f, *args)
        if any(issubclass(type(x), np.ndarray) for x in args):
            return operations.function(k, ufunc, args, kwargs)
        followed = NotImplemented if kwargs or f is divmod else of_python(k.observation.tape, f, args)
        if followed is not NotImplemented:
            return followed
        found = lookup.call_own(k, args[0], f"__{f.__name__}__", *args[1:])
        return f(*args, **kwargs) if found is MISSING else found
    return handler


def _as_it_is(f: Any) -> Handler:
    return lambda k, *args: f(*args)


def _made_by(f: Any) -> Handler:
    return lambda k, /, *args, **kwargs: k.observation.fresh(f(*args, **kwargs))


BUILTINS: dict[Any, Handler] = {
    len: containers.length, isinstance: _isinstance, getattr: _getattr, hasattr: _hasattr, setattr: lookup.write,
    delattr: functools.partial(lookup.write, value=MISSING), next: _next, iter: _iter, id: _id, print: _print,
    vars: _vars, dir: _dir, **{f: _ordering(f) for f in (sorted, min, max)}, sum: containers.total, any: _truths(any),
    all: _truths(all), repr: _text(repr), ascii: _text(ascii), format: _text(format), hash: _hash,
    functools.reduce: _reduce, abs: _arithmetic(abs, np.absolute), divmod: _arithmetic(divmod, np.divmod),
    pow: _arithmetic(pow, np.power), warnings.warn: _warn,
    issubclass: lambda k, *a: k.observation.called_again(issubclass, a, issubclass(*a), "the classes of a class"),
    callable: _as_it_is(callable), round: _round, sys.exc_info: _as_it_is(sys.exc_info),
    **{f: _forbidden(f.__name__) for f in (eval, exec, globals, locals, compile, __import__, open, input, breakpoint)},
    operator.getitem: containers.read, operator.setitem: containers.write,
    operator.delitem: functools.partial(containers.write, value=MISSING), operator.contains: containers.contains,
    operator.truth: containers.truth, operator.not_: lambda k, x: not k.truth(x),
    object.__setattr__: lambda k, *a: lookup.write_own(k, object.__setattr__, *a),
    object.__delattr__: lambda k, *a: lookup.write_own(k, object.__delattr__, *a, value=MISSING),
    object.__getattribute__: lookup.read_own, object.__init__: lambda k, *a: None,
    object.__new__: lambda k, cls, /, *_, **__: k.observation.fresh(object.__new__(cls)),
    **{op.function: functools.partial(lambda op, k, *operands: k.operator(op, *operands), op) for op in EVERY},
}
OF_FRAMES = (eval, exec, globals, locals, vars, dir, warnings.warn)  # which look at the frame that calls them
TYPES: dict[Any, Handler] = {
    int: _number(int), float: _number(float), complex: _number(complex),
    bool: lambda k, *x: k.truth(*x) if x else False, str: _text(str), type: _type,
    **{f: _collection(f) for f in (list, set, tuple, frozenset, collections.deque)},
    **{f: _dict(f) for f in (dict, collections.OrderedDict, collections.defaultdict)},
    **{f: _iterator(f) for f in (zip, map, enumerate, filter)}, reversed: _reversed,
    warnings.catch_warnings: _catch_warnings,
    range: lambda k, *a, **kw: native(k, range, a, kw), slice: _as_it_is(slice), super: _as_it_is(super),
    **{f: _made_by(f) for f in (object, functools.partial, property)},
    **{x: _iterator(x) for x in vars(itertools).values() if issubclass(type(x), type)},
}


_OF_DATACLASSES = frozenset(("__init__", "__eq__", "__repr__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__",
                             "__setattr__", "__delattr__"))


def _of_numpy(k: Observer, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an array or a number of NumPy's class ``cls``."""
    if issubclass(cls, np.floating) and len(args) == 1 and not kwargs and isinstance(args[0], ComputedNumber):
        return operations.read_number(k, cls, args[0].kusari_array, f"{cls.__name__}()")
    return operations.function(k, cls, args, kwargs)


def construct(k: Observer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return ``cls(*args, **kwargs)``, observed."""
    o = k.observation
    handler = TYPES.get(cls)
    if handler is not None:
        return handler(k, *args, **kwargs)
    if issubclass(cls, np.ndarray) or issubclass(cls, np.generic):
        return _of_numpy(k, cls, args, kwargs)
    meta = type(cls)
    of_meta = lookup.find(k, meta, "__call__") if meta is not type else type.__call__
    if isinstance(of_meta, types.FunctionType):
        return k.call(of_meta, cls, *args, **kwargs)
    if issubclass(cls, GENERATORS) or cls is np.random.SeedSequence:
        return make_generator(k, cls, args, kwargs)
    new = lookup.find(k, cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = lookup.find(k, cls, "__init__")
    if isinstance(new, types.FunctionType):
        x = k.call(new, cls, *args, **kwargs)
    elif isinstance(init, types.FunctionType):
        x = object.__new__(cls) if new is object.__new__ else cls.__new__(cls, *args, **kwargs)
    else:
        for y in (*args, *kwargs.values()):
            containers.look(k, y)
        if cls.__module__ in ("memory", "ctypes", "_ctypes", "mmap") or cls is memoryview:
            return unknown(k, cls, args, kwargs)
        with o.tape.net:
            x = cls(*[containers.iterate(k, y) if hasattr(type(y), "__next__") else y for y in args], **kwargs)
        return o.fresh(x)
    o.fresh(x)
    if isinstance(x, cls):
        init = lookup.find(k, type(x), "__init__")
        if isinstance(init, types.FunctionType):
            k.call(init, x, *args, **kwargs)
        elif init is not object.__init__ and not (
                isinstance(new, types.FunctionType) and isinstance(x, (tuple, str, int, float))):
            type(x).__init__(x, *args, **kwargs)
    return x


def _fill_in(k: Observer, init: types.FunctionType, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the ``__init__`` that ``dataclass`` has generated, with what it calls of the user's."""
    try:
        given = inspect.signature(init).bind(x, *args, **kwargs).arguments
    except TypeError:
        init(x, *args, **kwargs)
        raise
    for name, field in type(x).__dataclass_fields__.items():
        if field.init and field.default_factory is not dataclasses.MISSING and name not in given:
            kwargs = {**kwargs, name: k.call(field.default_factory)}
    behind: list[Any] = []
    made = type("Fields", (), {"__post_init__": lambda _, *rest: behind.append(rest)})()
    net = k.observation.tape.net
    net.allow(init.__code__)
    with net:
        init(made, *args, **kwargs)
    for name, value in vars(made).items():
        if type(x).__dataclass_params__.frozen:
            lookup.write_own(k, object.__setattr__, x, name, value)
        else:
            lookup.write(k, x, name, value)
    for rest in behind:
        k.call(k.attr(x, "__post_init__"), *rest)


def generated(k: Observer, f: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method that ``dataclass`` or ``namedtuple`` has generated; NotImplemented of any other function."""
    if not f.__code__.co_filename.startswith("<") or not args:
        return NotImplemented
    x, name = args[0], f.__name__
    if issubclass(type(x), type) and issubclass(x, tuple) and hasattr(x, "_fields"):
        return f(*args, **kwargs)
    fields = getattr(type(x), "__dataclass_fields__", None)
    if fields is None or name not in _OF_DATACLASSES:
        return NotImplemented
    if name == "__init__":
        _fill_in(k, f, x, settled(args[1:], "a dataclass"), settled(kwargs, "a dataclass"))
        return None
    for y in args:
        if type(y) is type(x):
            for field in fields:
                value = lookup.read(k, y, field)
                containers.look(k, value)
    return f(*args, **kwargs)


def make_generator(k: Observer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a generator of random numbers; one without a seed makes the call fall back."""
    if cls is random.SystemRandom or all(x is None for x in (*args, *kwargs.values())):
        k.observation.note(f"random numbers may be drawn from a generator that the call makes ({cls.__name__}), "
                           f"{NOT_DRAWN_AGAIN}")
    for x in args:
        containers.look(k, x)
    return k.observation.fresh(cls(*args, **kwargs))
