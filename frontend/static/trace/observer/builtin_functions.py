"""The tables of built-in functions and classes: the arguments that each reads and changes."""
from __future__ import annotations

import builtins
import collections
import functools
import itertools
import operator
import sys
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....callsite import user_frame
from ....link.namespace import namespace_of
from ....variable import Variable
from ...computed_numbers import ComputedNumber
from ...guards.guard import MISSING
from ..observation import is_ours
from . import containers, lookup, operations, stores, texts
from .c_code import CALLBACKS, SCALARS, Handler, unknown, wrapped
from .containers import native

if TYPE_CHECKING:
    from .observer import Observer


def _isinstance(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, classes = args
    if type(x) is not type and containers_of_classes(classes):
        if lookup._is_users(type(x)):
            k.observation.kind(x)
        return isinstance(x, classes)
    if k.observation.is_outside(x) and not issubclass(type(x), (np.ndarray, Variable)):
        return k.observation.called_again(isinstance, args, isinstance(x, classes), "the class of an object")
    return k.observation.called_again(issubclass, (type(x), classes), isinstance(x, classes), "the class of an object")


def containers_of_classes(classes: Any) -> bool:
    """Whether classes have no say in who is their instance."""
    if isinstance(classes, tuple):
        return all(map(containers_of_classes, classes))
    return type(classes) is type or isinstance(classes, types.UnionType) and all(
        map(containers_of_classes, classes.__args__)) or is_ours(getattr(classes, "__module__", None))


def _getattr(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, name, *default = args
    try:
        return lookup.read(k, x, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        lookup.read(k, *args)
    except AttributeError:
        return False
    return True


def _next(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    it, *default = args
    step = lookup.find(k, type(it), "__next__")
    try:
        if isinstance(step, types.FunctionType):
            return k.call(step, it)
        if not k.observation.is_fresh(it):
            k.observation.note(f"a {type(it).__name__} is an iterator, and replays would not go on with it")
        return next(it)
    except StopIteration:
        if default:
            return default[0]
        raise


def _iter(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 2:
        return unknown(k, iter, args, kwargs)
    found = iter(containers.iterate(k, args[0]))
    return k.observation.fresh(found) if found is not args[0] else found


def _type(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1:
        return unknown(k, type, args, kwargs)
    if lookup._is_users(type(args[0])):
        k.observation.kind(args[0])
    return args[0].kusari_kind if isinstance(args[0], ComputedNumber) else type(args[0])


def _id(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if not isinstance(x, (types.FunctionType, type, types.ModuleType)) and not k.is_copy and (
            not k.observation.is_outside(x) or issubclass(type(x), (np.ndarray, Variable))):
        k.observation.note("id() of an object that is another one in every call is asked for")
    return id(x)


def _print(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    o = k.observation
    plain = [x if isinstance(x, (str, np.ndarray, Variable)) else texts.text(k, str, x) for x in args]
    file = kwargs.get("file")
    if file is not None and not (file is sys.stdout or file is sys.stderr or o.is_outside(file)):
        return unknown(k, print, args, kwargs)
    with o.tape.unobserved():
        print(*args, **kwargs)
    if not o.off:
        o.effect(functools.partial(_printed, dict(kwargs)), tuple(plain), "print()")
    return None


def _printed(kwargs: dict[str, Any], *args: Any) -> None:
    print(*args, **kwargs)


def _warn(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Warn at the user's line, and again in each replay."""
    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any) -> Any:
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
    return warn(*args, **kwargs)


def _vars(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        return _forbidden("vars")(k, args, kwargs)
    vars(args[0])  # a link is exposed
    return namespace(k, args[0])


def namespace(k: Observer, x: Any) -> dict[str, Any]:
    """Return the namespace of an object, which is as fresh as the object is."""
    entries = namespace_of(x)
    if k.observation.is_fresh(x):
        k.observation.fresh(entries)
    return entries


def _dir(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        return _forbidden("dir")(k, args, kwargs)
    x = args[0]
    found = dir(x)
    k.observation.called_again(_names_in, (x,), tuple(found), f"the names in a {type(x).__name__}")
    return k.observation.fresh(found)


def _names_in(x: Any) -> tuple[str, ...]:
    return tuple(dir(x))


def _sorted(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    items = list(containers.iterate(k, args[0]))
    for x in items:
        containers.look(k, x)
    kwargs = _with_observed_key(k, kwargs)
    with k.observation.tape.net:
        return k.observation.fresh(sorted(items, **kwargs))


def _with_observed_key(k: Observer, kwargs: dict[str, Any]) -> dict[str, Any]:
    key = kwargs.get("key")
    return kwargs if key is None else {**kwargs, "key": wrapped(k, key, CALLBACKS)}


def _extreme(f: Any) -> Handler:
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        items = list(containers.iterate(k, args[0])) if len(args) == 1 else list(args)
        for x in items:
            containers.look(k, x)
        kwargs = _with_observed_key(k, kwargs)
        with k.observation.tape.net:
            return f(items, **kwargs) if len(args) == 1 else f(*items, **kwargs)
    return handler


def _sum(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    items, *start = args
    total = kwargs["start"] if "start" in kwargs else start[0] if start else 0
    for x in containers.iterate(k, items):
        total = k.binary("+", total, x)
    return total


def _any(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return any(k.truth(x) for x in containers.iterate(k, args[0]))


def _all(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return all(k.truth(x) for x in containers.iterate(k, args[0]))


def _reduce(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    f, items, *start = args
    return functools.reduce(lambda a, b: k.call(f, a, b), containers.iterate(k, items), *start)


def _number(f: Any) -> Handler:
    """``int``, ``float``, ``complex`` or ``bool`` of anything."""
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args:
            return f(**kwargs)
        x = args[0]
        if issubclass(type(x), Variable) and f in (int, float) and len(args) == 1 and not kwargs:
            return operations.look(k, lambda array: f(array.item()), k.observation.tape.take(x), f"{f.__name__}()")
        if issubclass(type(x), Variable):
            k.observation.tape.escape(x, f"{f.__name__}()")
        elif isinstance(x, ComputedNumber) and f in (int, float) and len(args) == 1 and not kwargs:
            return operations.look(k, f, x.kusari_array, f"{f.__name__}()")
        elif issubclass(type(x), np.ndarray) and len(args) == 1 and not kwargs:
            return operations.look(k, f, x, f"__{f.__name__}__()")
        else:
            for name in (f"__{f.__name__}__", "__index__"):
                found = lookup.find(k, type(x), name)
                if isinstance(found, types.FunctionType):
                    return k.call(found, x)
            containers.look(k, x)
        return f(*args, **kwargs)
    return handler


def _text(f: Any) -> Handler:
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs or f is format:
            return texts.text(k, f, *args)
        return native(k, f, args, kwargs)
    return handler


def _hash(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = lookup.find(k, type(args[0]), "__hash__")
    if isinstance(found, types.FunctionType):
        return k.call(found, args[0])
    return hash(args[0]) if isinstance(args[0], SCALARS) else _id(k, args, kwargs) and hash(args[0])


def _collection(f: Any) -> Handler:
    """``list``, ``tuple``, ``set`` … of an iterable."""
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return k.observation.fresh(f(*[containers.iterate(k, x) for x in args[:1]], *args[1:], **kwargs))
    return handler


def _tuple(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tuple(*[containers.iterate(k, x) for x in args])


def _dict(f: Any) -> Handler:
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rest = args
        if args and f is not collections.defaultdict:
            rest = (content(k, args[0]), *args[1:])
        elif len(args) > 1:
            rest = (args[0], content(k, args[1]), *args[2:])
        return k.observation.fresh(f(*rest, **kwargs))
    return handler


def content(k: Observer, x: Any) -> Any:
    """Return the entries that a dictionary is made of, as they are now."""
    if isinstance(x, (dict, types.MappingProxyType)):
        k.observation.items(x, containers.name_of(x))
        return dict(x)
    return [tuple(containers.iterate(k, pair)) for pair in containers.iterate(k, x)]


def _iterator(f: Any) -> Handler:
    """``zip``, ``map``, ``enumerate``, ``itertools.chain`` …: an iterator over others."""
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner = [containers.iterate(k, x) if isinstance(x, Variable) or not isinstance(x, (str, bytes)) and hasattr(
            type(x), "__iter__") else wrapped(k, x, CALLBACKS) for x in args]
        return k.observation.fresh(f(*inner, **kwargs))
    return handler


def _operator_of(op: str, how: str) -> Handler:
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(k, how)(op, *args)
    return handler


def _forbidden(name: str) -> Handler:
    """A function of ``builtins`` that depends on the frame of its caller, or reads anything at all."""
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        k.observation.note(f"by {name} it may read what it does not name, and no guard would see a change")
        frame = _frame_of_the_copy()
        if frame is None or args[1:] or name not in ("eval", "exec", "globals", "locals", "vars", "dir"):
            return getattr(builtins, name)(*args, **kwargs)
        names = {n: x for n, x in frame.f_locals.items() if not n.startswith("__kusari_")}
        if name in ("eval", "exec"):
            return getattr(builtins, name)(args[0], frame.f_globals, names)
        return frame.f_globals if name == "globals" else sorted(names) if name == "dir" else names
    return handler


def _frame_of_the_copy() -> types.FrameType | None:
    """Return the innermost frame of an instrumented copy."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and "__kusari__" not in frame.f_code.co_freevars:
        frame = frame.f_back
    return frame


def _round(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = lookup.find(k, type(args[0]), "__round__")
    return k.call(found, *args, **kwargs) if isinstance(found, types.FunctionType) else native(k, round, args, kwargs)


def _reversed(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    found = lookup.find(k, type(x), "__reversed__")
    if isinstance(found, types.FunctionType):
        return k.call(found, x)
    if issubclass(type(x), np.ndarray) or isinstance(lookup.find(k, type(x), "__getitem__"), types.FunctionType):
        return k.observation.fresh(iter([k.item(x, i) for i in range(containers.length(k, x) - 1, -1, -1)]))
    containers.iterate(k, x)
    return k.observation.fresh(reversed(x))


def _arithmetic(f: Any, ufunc: Any) -> Handler:
    def handler(k: Observer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(issubclass(type(x), Variable) for x in args):
            return k._of_variables(f, *args)
        if any(issubclass(type(x), np.ndarray) for x in args):
            return operations.function(k, ufunc, args, kwargs)
        found = lookup.find(k, type(args[0]), f"__{f.__name__}__")
        return k.call(found, *args) if isinstance(found, types.FunctionType) else f(*args, **kwargs)
    return handler


def _as_it_is(f: Any) -> Handler:
    return lambda k, args, _: f(*args)


# The operators of a frame, and those of an assignment.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift}
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
    "%": operator.imod, "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior,
    "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift}
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
BUILTINS: dict[Any, Handler] = {
    len: lambda k, a, _: containers.length(k, *a), isinstance: _isinstance, getattr: _getattr, hasattr: _hasattr,
    setattr: lambda k, a, _: stores.write(k, *a), delattr: lambda k, a, _: stores.write(k, *a, value=MISSING),
    next: _next, iter: _iter, id: _id, print: _print, vars: _vars, dir: _dir, sorted: _sorted, min: _extreme(min),
    max: _extreme(max), sum: _sum, any: _any, all: _all, repr: _text(repr), ascii: _text(ascii), format: _text(format),
    hash: _hash, functools.reduce: _reduce, abs: _arithmetic(abs, np.absolute),
    divmod: _arithmetic(divmod, np.divmod),
    pow: _arithmetic(pow, np.power), warnings.warn: _warn,
    issubclass: lambda k, a, _: k.observation.called_again(issubclass, a, issubclass(*a), "the classes of a class"),
    callable: _as_it_is(callable), round: _round, sys.exc_info: lambda k, a, _: sys.exc_info(),
    **{f: _forbidden(f.__name__) for f in (eval, exec, globals, locals, compile, __import__, open, input, breakpoint)},
    operator.getitem: lambda k, a, _: k.item(*a), operator.setitem: lambda k, a, _: k.set_item(*a),
    operator.contains: lambda k, a, _: k.compare("in", a[1], a[0]), operator.truth: lambda k, a, _: k.truth(*a),
    operator.not_: lambda k, a, _: not k.truth(*a), operator.delitem: lambda k, a, _: k.del_item(*a),
    object.__setattr__: lambda k, a, _: stores.write_own(k, object.__setattr__, *a),
    object.__delattr__: lambda k, a, _: stores.write_own(k, object.__delattr__, *a, value=MISSING),
    object.__getattribute__: lambda k, a, _: lookup.read_own(k, *a),
    object.__init__: lambda k, a, _: None,
    object.__new__: lambda k, a, _: k.observation.fresh(object.__new__(a[0])),
    **{f: _operator_of(op, how) for how, table in (
        ("binary", BINARY), ("inplace", INPLACE), ("unary", UNARY), ("compare", COMPARE)) for op, f in table.items()},
}
OF_FRAMES = (eval, exec, globals, locals, vars, dir, warnings.warn)  # which look at the frame that calls them
TYPES: dict[Any, Handler] = {
    int: _number(int), float: _number(float), complex: _number(complex),
    bool: lambda k, a, _: k.truth(*a) if a else False, str: _text(str), list: _collection(list),
    set: _collection(set), tuple: _tuple, type: _type,
    frozenset: lambda k, a, _: frozenset(*[containers.iterate(k, x) for x in a]),
    collections.deque: _collection(collections.deque), dict: _dict(dict), collections.OrderedDict: _dict(
        collections.OrderedDict), collections.defaultdict: _dict(collections.defaultdict),
    zip: _iterator(zip), map: _iterator(map), enumerate: _iterator(enumerate), reversed: _reversed,
    filter: _iterator(filter), range: lambda k, a, kw: native(k, range, a, kw), slice: _as_it_is(slice),
    object: lambda k, a, _: k.observation.fresh(object()), super: _as_it_is(super),
    functools.partial: lambda k, a, kw: k.observation.fresh(functools.partial(*a, **kw)),
    property: lambda k, a, kw: k.observation.fresh(property(*a, **kw)),
    **{x: _iterator(x) for x in vars(itertools).values() if issubclass(type(x), type)},
}
