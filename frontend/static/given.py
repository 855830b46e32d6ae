"""Arrays given to a traced call: they look like what they are, and report whatever but a function reads them.

What NumPy computes of them with a function that the compiler knows, too, is recorded as that function (`numpy_calls`):
its result is such an array again.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import tape as _tape
from ..variable import Variable


class GivenArray(np.ndarray):
    """A view of an argument or a parameter while a call is traced.

    Invariant: shape, dtype and the like may be read freely; whatever depends on elements gives what the array itself
    gives, ordinary arrays and numbers, and is reported to the tape of the thread, if any.
    """

    original: Any

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "__call__" and out is None and not kwargs:
            result = _recorded("of_ufunc", ufunc, plain(inputs))
            if result is not None:
                return result
        _read(self, f"numpy.{ufunc.__name__}")
        if out is not None:
            kwargs["out"] = tuple(map(plain, out))
        return getattr(ufunc, method)(*map(plain, inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func not in _HARMLESS:
            result = None if kwargs else _recorded("of_function", func, plain(args))
            if result is not None:
                return result
            _read(self, f"numpy.{func.__name__}")
        return func(*plain(args), **plain(kwargs))

    def __getattribute__(self, name: str) -> Any:
        if name not in _READS:
            return super().__getattribute__(name)
        if name in _METHODS:
            return functools.partial(_method, self, name)
        if name == "T":
            result = _recorded("of_attribute", name, _original(self))
            if result is not None:
                return result
        _read(self, f".{name}")
        return getattr(_original(self), name)


_READS = frozenset(n for n in dir(np.ndarray) if not n.startswith("__")) - {
    "shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags", "device"}
_METHODS = frozenset(("reshape", "transpose", "swapaxes", "astype"))  # of `numpy_calls.METHODS`, those with a name
_HARMLESS = {np.shape, np.ndim, np.size, np.result_type, np.may_share_memory, np.shares_memory, np.iscomplexobj,
             np.isrealobj, np.zeros_like, np.ones_like, np.empty_like, np.full_like}


def _original(array: Any) -> Any:
    return super(GivenArray, array).__getattribute__("__dict__")["original"]


def _read(array: Any, what: str) -> None:
    tape = _tape.current.tape
    if tape is not None:
        tape.read(array, what)


def _recorded(how: str, what: Any, *args: Any) -> Any:
    """Return the result of NumPy's ``what`` as a given array if there is a tape and it is recorded, else None."""
    tape = _tape.current.tape
    if tape is None:
        return None
    from . import numpy_calls  # imports all functions
    result = getattr(numpy_calls, how)(tape, what, *args)
    return None if result is None else give(result)


def _method(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of the array, recorded where that is possible."""
    result = None if kwargs else _recorded("of_method", name, _original(self), plain(args))
    if result is not None:
        return result
    _read(self, f".{name}")
    return getattr(_original(self), name)(*plain(args), **plain(kwargs))


def _items(self: Any) -> Any:
    return (self[i] for i in range(self.shape[0])) if self.ndim > 1 else _special("__iter__")(self)


def _item(self: Any, key: Any) -> Any:
    return _method(self, "__getitem__", plain(key))


def _special(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _read(self, f"{name}()")
        return getattr(_original(self), name)(*plain(args), **plain(kwargs))
    method.__name__ = name
    return method


def _shown(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return getattr(_original(self), name)(*args)
    method.__name__ = name
    return method


for _name in ("__repr__", "__str__", "__format__"):  # printing changes nothing
    setattr(GivenArray, _name, _shown(_name))
for _name in ("__bool__ __float__ __int__ __index__ __complex__ __setitem__ __delitem__ "
              "__contains__ __array__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __dlpack__").split():
    setattr(GivenArray, _name, _special(_name))
GivenArray.__getitem__ = _item  # type: ignore[method-assign]
GivenArray.__iter__ = _items  # type: ignore[method-assign]


def give(array: Any) -> Any:
    """Return the view of ``array`` that tells the tape of reads."""
    view = array.view(GivenArray)
    view.original = array
    return view


def plain(tree: Any) -> Any:
    """Return a tree with the arrays themselves in place of the given ones; Variables of them are changed in place."""
    kind = type(tree)
    if kind is GivenArray:
        return _original(tree)
    if isinstance(tree, Variable):
        if type(tree._array) is GivenArray:
            tree._array = _original(tree._array)
        return tree
    return _rebuilt(tree, plain)


class Given:
    """Makes trees of arguments with views in place of arrays, and knows which lists and dictionaries it made."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any, list[Any]]] = []

    def __call__(self, tree: Any) -> Any:
        """Return the tree with views."""
        if type(tree) in (np.ndarray, np.memmap):
            return give(tree)
        made = _rebuilt(tree, self)
        if made is not tree and isinstance(tree, (list, dict)):
            self._made.append((tree, made, _content(made)))
        return made

    def changed(self) -> bool:
        """Whether the call has changed a list or dictionary it was given; then the caller's own is changed as well."""
        found = False
        for own, made, before in self._made:
            now = _content(made)
            if len(now) != len(before) or not all(map(_same, now, before)):
                found = True
                items = plain(made)
                own.clear()
                own.update(items) if isinstance(own, dict) else own.extend(items)
        return found


def _content(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def _rebuilt(tree: Any, change: Any) -> Any:
    """Return the tree with items changed; the very same tree if none is."""
    kind = type(tree)
    if isinstance(tree, tuple):
        items = [change(x) for x in tree]
        if all(map(_same, items, tree)):
            return tree
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if kind is list:
        items = [change(x) for x in tree]
        return tree if all(map(_same, items, tree)) else items
    if kind is dict:
        items = [change(x) for x in tree.values()]
        return tree if all(map(_same, items, tree.values())) else dict(zip(tree, items, strict=True))
    return tree


def _same(a: Any, b: Any) -> bool:
    return a is b
