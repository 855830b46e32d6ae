"""Arrays given to a traced call: they look like what they are, and report whatever but a function reads them.

What NumPy computes of them with a function that the compiler knows, too, is recorded as that function (`numpy_calls`):
its result is such an array again.
"""
from __future__ import annotations

import collections
import functools
import gc
import weakref
from types import CellType
from typing import Any

import numpy as np

from .. import tape as _tape
from ..variable import Variable


class GivenArray:
    """Stands for an argument or a parameter's array while a call is traced.

    It is no ``ndarray`` but says it is one, so that code in other languages, too, has to ask for the elements.
    Invariant: shape, dtype and the like may be read freely; whatever depends on elements gives what the array itself
    gives, ordinary arrays and numbers, and is reported to the tape of the thread, if any.
    """

    __slots__ = ("original", "__weakref__")
    stands_for_array = True
    __hash__ = None  # type: ignore[assignment]  # as that of arrays

    original: Any

    def __init__(self, original: Any) -> None:
        object.__setattr__(self, "original", original)

    @property
    def __class__(self) -> type:
        return type(self.original)

    def touched(self, what: str) -> None:
        """Called before ``what`` looks at the elements."""
        tape = _tape.current.tape
        if tape is not None:
            tape.read(self, what)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "__call__" and out is None and not kwargs:
            result = recorded("of_ufunc", ufunc, plain(inputs))
            if result is not None:
                return result
        self.touched(f"numpy.{ufunc.__name__}")
        if out is not None:
            kwargs["out"] = tuple(map(plain, out))
        return getattr(ufunc, method)(*map(plain, inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func not in _HARMLESS:
            result = recorded("of_function", func, plain(args), plain(kwargs))
            if result is not None:
                return result
            self.touched(f"numpy.{func.__name__}")
        elif func in _LIKE and type(args[0]) is GivenArray:
            return _alike(func, args, kwargs)
        return func(*plain(args), **plain(kwargs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self.touched("numpy.asarray")
        array = self.original
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int) -> memoryview:
        self.touched("memoryview")
        return memoryview(self.original)

    def __getattr__(self, name: str) -> Any:
        if name in NOT_OFFERED or not hasattr(type(self.original), name):  # ``__array__`` gives the array itself
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if name in _METHODS:
            return functools.partial(_method, self, name)
        if name == "T":
            result = recorded("of_attribute", name, self.original)
            if result is not None:
                return result
        if name not in FREE:
            self.touched(f".{name}")
        return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.touched(f".{name} =")
        setattr(self.original, name, value)

    def __len__(self) -> int:
        return len(self.original)

    def __dir__(self) -> list[str]:
        return dir(self.original)


FREE = frozenset(("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "device", "__doc__"))
NOT_OFFERED = frozenset(("__array_interface__", "__array_struct__", "__cuda_array_interface__"))
_METHODS = frozenset((  # of `numpy_calls.METHODS`, those with a name
    "reshape", "transpose", "swapaxes", "astype", "ravel", "flatten", "copy", "squeeze", "sum", "mean", "max", "min",
    "cumsum", "clip"))
_LIKE = {np.zeros_like, np.ones_like, np.empty_like, np.full_like}
_HARMLESS = _LIKE | {np.shape, np.ndim, np.size, np.result_type, np.may_share_memory, np.shares_memory, np.iscomplexobj,
             np.isrealobj}


def _alike(func: Any, args: Any, kwargs: Any) -> Any:
    """Make an array of an argument's shape, which is one made of constants as far as what it is filled with is one."""
    array = args[0].original
    tape = _tape.current.tape
    if tape is None or not tape.made_arrays.are_constants((args[1:], kwargs)):
        return func(*plain(args), **plain(kwargs))
    made = func(array, *plain(args[1:]), **plain(kwargs))
    if func is np.empty_like:
        made[...] = 0
    return tape.made_arrays.wrapped(made)


def recorded(how: str, what: Any, *args: Any) -> Any:
    """Return the result of NumPy's ``what`` as a given array if there is a tape and it is recorded, else None."""
    tape = _tape.current.tape
    if tape is None:
        return None
    from . import numpy_calls  # imports all functions
    result = getattr(numpy_calls, how)(tape, what, *args)
    return None if result is None else give(result)


def _method(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of the array, recorded where that is possible."""
    result = recorded("of_method", name, self.original, plain(args), kwargs)
    if result is not None:
        return result
    self.touched(f".{name}")
    return getattr(self.original, name)(*plain(args), **plain(kwargs))


def _items(self: Any) -> Any:
    return (self[i] for i in range(self.shape[0])) if self.ndim > 1 else _special("__iter__")(self)


def _item(self: Any, key: Any) -> Any:
    return _method(self, "__getitem__", plain(key))


def _gives_way(other: Any) -> bool:
    """Whether an operator is the other operand's affair, as it would be for arrays."""
    kind = type(other)
    if hasattr(kind, "__array_ufunc__"):
        return kind.__array_ufunc__ is None
    return not np.isscalar(other) and getattr(other, "__array_priority__", -1.0) > 0


def _operator(ufunc: Any, reflected: bool = False, in_place: bool = False) -> Any:
    def method(self: Any, other: Any) -> Any:
        if _gives_way(other):
            return NotImplemented
        if in_place:
            return ufunc(self, other, out=(self,))
        return ufunc(other, self) if reflected else ufunc(self, other)
    return method


def _unary(ufunc: Any) -> Any:
    return lambda self: ufunc(self)


def _special(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.touched(f"{name}()")
        return getattr(self.original, name)(*plain(args), **plain(kwargs))
    method.__name__ = name
    return method


def _shown(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return getattr(self.original, name)(*args)
    method.__name__ = name
    return method


for _name in ("__repr__", "__str__", "__format__"):  # printing changes nothing
    setattr(GivenArray, _name, _shown(_name))
for _name in ("__bool__ __float__ __int__ __index__ __complex__ __setitem__ __delitem__ "
              "__contains__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __dlpack__ __dlpack_device__").split():
    setattr(GivenArray, _name, _special(_name))
for _name, _ufunc in {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "matmul": np.matmul, "truediv": np.true_divide,
        "floordiv": np.floor_divide, "mod": np.remainder, "divmod": np.divmod, "pow": np.power, "lshift": np.left_shift,
        "rshift": np.right_shift, "and": np.bitwise_and, "xor": np.bitwise_xor, "or": np.bitwise_or}.items():
    setattr(GivenArray, f"__{_name}__", _operator(_ufunc))
    setattr(GivenArray, f"__r{_name}__", _operator(_ufunc, reflected=True))
    if _name != "divmod":
        setattr(GivenArray, f"__i{_name}__", _operator(_ufunc, in_place=True))
for _name, _ufunc in {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
                      "ge": np.greater_equal}.items():
    setattr(GivenArray, f"__{_name}__", _operator(_ufunc))
for _name, _ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(GivenArray, f"__{_name}__", _unary(_ufunc))
GivenArray.__getitem__ = _item  # type: ignore[method-assign]
GivenArray.__iter__ = _items  # type: ignore[method-assign]


def give(array: Any) -> Any:
    """Return what stands for ``array`` and tells the tape of reads."""
    return handed(GivenArray(array))


def handed(made: Any) -> Any:
    """Return what stands for an array, of which the tape knows now that the user's code has it."""
    tape = _tape.current.tape
    if tape is not None:
        tape.handed.append(weakref.ref(made))
    return made


def take_back(references: list[Any]) -> None:
    """Put the arrays themselves where a call has left what stood for them: in objects that are not its results."""
    left = [x for r in references if (x := r()) is not None]
    references.clear()
    if not left:
        return
    arrays = {id(x): plain(x) for x in left}
    for x in left:
        if isinstance(x, np.ndarray) and type(x) is not GivenArray and x.base is not None:
            np.ndarray.setflags(x, write=arrays[id(x)].flags.writeable)
    for holder in gc.get_referrers(*left):
        if holder is left:
            continue
        if isinstance(holder, tuple):
            for error in gc.get_referrers(holder):
                if isinstance(error, BaseException) and error.args is holder:
                    error.args = tuple([arrays.get(id(x), x) for x in holder])
            continue
        if isinstance(holder, CellType):
            holder.cell_contents = arrays.get(id(holder.cell_contents), holder.cell_contents)
            continue
        if isinstance(holder, (list, collections.deque)):
            items: Any = enumerate(list(holder))
        else:
            holder = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
            items = list(holder.items())
        for key, x in items:
            if id(x) in arrays:
                holder[key] = arrays[id(x)]


def plain(tree: Any) -> Any:
    """Return a tree with the arrays themselves in place of the given ones; Variables of them are changed in place."""
    kind = type(tree)
    if hasattr(kind, "stands_for_array"):
        return tree.original if tree.original is not None else np.ndarray.view(tree, np.ndarray)
    if isinstance(tree, Variable):
        if tree._array is not None and hasattr(type(tree._array), "stands_for_array"):
            tree._array = plain(tree._array)
        return tree
    return _rebuilt(tree, plain)


class Given:
    """Makes trees of arguments with views in place of arrays, and knows which lists and dictionaries are in them."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any, list[Any]]] = []

    def __call__(self, tree: Any) -> Any:
        """Return the tree with views."""
        if type(tree) in (np.ndarray, np.memmap):
            return give(tree)
        made = _rebuilt(tree, self)
        if type(tree) in (list, dict):
            self._made.append((tree, made, _content(made)))
        return made

    def changed(self) -> bool:
        """Whether the call has changed a list or dictionary it was given; then the caller's own is changed as well."""
        found = False
        for own, made, before in self._made:
            now = _content(made)
            if len(now) != len(before) or not all(map(_same, now, before)):
                found = True
                if own is made:
                    continue
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
