"""Arrays that NumPy makes of numbers while a call is traced: ``np.zeros((n, h))``, ``np.arange(n)``, a causal mask.

What they are made of is what code is made of: shapes, and numbers that guards keep what they are. So every replay would
make them alike, and functions may read them as constants. That holds as long as nothing else is written to them: so
what stands for one sees what is written, and its memory is closed to those who write unseen. Reading elements is
nobody's concern. What NumPy computes of such arrays and numbers, be it in place, is such an array again; where others
come in, or a pointer is asked for, it is an array like any other, that functions must not read.
"""
from __future__ import annotations

import dis
import functools
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Op, Trait, Value

from .. import tape as _tape
from ..configuration import using_config
from ..functions.array.broadcast import broadcast_to
from ..functions.math.identity import Identity
from ..variable import Variable
from . import given
from .captured_arrays import owner
from .given import GivenArray, plain
from .guard_slots import LARGEST_ARRAY
from .reach import LARGEST_CONTAINER, is_foreign

if TYPE_CHECKING:
    from .tape import Tape

_NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.dtype, type, np.generic, range)
_OF_MEMORY = frozenset(("data", "ctypes", "flat", "base", "resize", "setflags", "__array_interface__",
                        "__array_struct__", "__dlpack__"))


class MadeArrays:
    """Those of one call. Invariant: ``known`` keeps arrays and what stands for them alive, so that ids are unique."""

    def __init__(self) -> None:
        self.known: dict[int, MadeArray] = {}
        self._read: dict[int, tuple[Any, Value, bytes]] = {}  # by functions, as they were then
        self._equal: dict[Any, Value] = {}
        self.sources: dict[int, Any] = {}  # arrays from outside, of whose elements others were computed
        self._memory: dict[int, Any] = {}
        self._lost: set[int] = set()  # memory that anybody may write to

    def wrapped(self, result: Any) -> Any:
        """Return what NumPy has computed of constants, with what stands for arrays in their place."""
        kind = type(result)
        if kind is np.ndarray:
            return self._of(result) if result.dtype.kind in "fiubc" else result
        if kind is tuple or kind is list:
            return kind([self.wrapped(x) for x in result])
        return result

    def _of(self, array: Any) -> MadeArray:
        found = self.known.get(id(array))
        if found is None:
            found = array.view(MadeArray)
            found.original = array
            np.ndarray.setflags(found, write=False)
            self._memory[id(owner(array))] = array
            self.known[id(array)] = given.handed(found)
        return found

    def __contains__(self, array: Any) -> bool:
        """Whether an array is in memory that only what stands for them writes to."""
        return array is not None and (memory := id(owner(array))) in self._memory and memory not in self._lost

    def are_constants(self, tree: Any) -> bool:
        """Whether there is nothing in a tree of arguments but numbers and such arrays."""
        if isinstance(tree, (tuple, list)):
            return len(tree) <= LARGEST_CONTAINER and all(map(self.are_constants, tree))
        if type(tree) is dict:
            return self.are_constants(list(tree.values()))
        if type(tree) is slice:
            return self.are_constants((tree.start, tree.stop, tree.step))
        if type(tree) is MadeArray:
            return tree.original in self
        return isinstance(tree, _NUMBERS) or type(tree) is np.ndarray and self._is_guarded(tree)

    def _is_guarded(self, array: Any) -> bool:
        """Whether an array is one from outside, or part of one, whose elements guards can keep what they are."""
        tape = _tape.current.tape
        if tape is None or tape.watch is None:
            return False
        memory = owner(array)
        found = next((whole for whole in tape.watch.found() if owner(whole) is memory), None)
        if found is None or found.nbytes > LARGEST_ARRAY or any(owner(a) is memory for a in tape.states()):
            return False
        self.sources[id(found)] = found
        return True

    def lose(self, tree: Any) -> None:
        """Note that anybody may write to the arrays in a tree from now on."""
        if isinstance(tree, (tuple, list)):
            for x in tree:
                self.lose(x)
        elif type(tree) is dict:
            self.lose(list(tree.values()))
        elif type(tree) is MadeArray and id(tree.original) in self.known:
            self._lose_memory(owner(tree.original))

    def _lose_memory(self, memory: Any) -> None:
        self._lost.add(id(memory))
        if any(owner(array) is memory for array, _, _ in self._read.values()):
            self._note(_tape.current.tape)

    def give_away(self, arrays: list[Any]) -> dict[int, Any]:
        """Return copies, by identity, of those among ``arrays`` that are of this kind: they are no longer."""
        found = {id(a): a.copy() for a in arrays if a in self}
        for memory in [owner(a) for a in arrays if id(a) in found]:
            self._lose_memory(memory)
        return found

    def value(self, tape: Tape, array: Any) -> Value | None:
        """Return the constant that a function reads where it is given ``array``; None if that is none of them."""
        if array not in self or tape.fault is not None:
            return None
        content = array.tobytes()
        known = self._read.get(id(array))
        if known is not None:
            if known[2] != content:
                self._note(tape)
            return known[1]
        key = array.dtype, array.shape, content
        value = self._equal.get(key)
        repeated = tuple([s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True)])
        if value is None and any(repeated) and array.size:  # as in define-by-run, its elements are there once
            part = array[tuple([slice(0, 1) if r else slice(None) for r in repeated])]
            with using_config("enable_backprop", False):
                made = broadcast_to(Variable(part, requires_grad=False), array.shape)._array
            value = tape.known(made)
            if value is None:  # the tape has given up meanwhile
                return None
            self._equal[key] = value
            tape.alias(array, value)
        elif value is None:
            value = self._equal[key] = tape.define(array, "made")
            kept = array.copy()
            kept.flags.writeable = False  # by functions of the user's
            tape.consts.append((value, kept))
        else:
            tape.alias(array, value)
        self._read[id(array)] = array, value, content
        return value

    def attributes(self, op: Op, inputs: Any) -> dict[str, Any]:
        """Return what a node says of inputs that its Python might write to: replays copy them first."""
        own = tuple([i for i, v in enumerate(inputs) if v._array in self]) if op.traits & Trait.OPAQUE else ()
        return {"fresh": own} if own else {}

    def result(self, tape: Tape, leaf: Any, array: Any) -> Value | None:
        """Return, under the tape, the value of an array that is handed out: replays hand out a new one each time."""
        if isinstance(leaf, Variable) and leaf.requires_grad and array.dtype.kind in "fc" and id(array) in self._read:
            tape.note("a Variable of an array that NumPy made in the call is handed out, and may be asked for its "
                      "gradient; make it outside")
        if self.value(tape, array) is None:
            return None
        with using_config("enable_backprop", False):  # nothing lies behind it
            return tape.known(Identity().apply((Variable(array, requires_grad=False),))[0]._array)

    def settle(self, tape: Tape) -> None:
        """Note a fault if functions have read what was changed later on, which their gradients would read."""
        if any(array.tobytes() != content for array, _, content in self._read.values()):
            self._note(tape)

    def _note(self, tape: Tape | None) -> None:
        if tape is not None:
            tape.note("an array that NumPy made in the call changes, or may change, after functions have read it; make "
                      "another one", None if tape.watch is None else tape.watch.where)


class MadeArray(np.ndarray):
    """Stands for an array that NumPy has made of constants, for as long as a call is traced; otherwise it is that.

    Invariant: it shows the memory of ``original``, which alone may be written to. So code that reads memory finds what
    it expects, and code that wants to write there unseen is refused. What NumPy makes of one by itself has no
    ``original``, and nobody knows of it.
    """

    stands_for_array = True
    original: Any = None

    def __array_finalize__(self, obj: Any) -> None:
        """Parts that are taken in another way than by the methods here are arrays like any other."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "__call__" and out is None and not kwargs and _arguments(inputs):
            result = given.recorded("of_ufunc", ufunc, plain(inputs))
            if result is not None:
                return result
        if out is not None:
            kwargs["out"] = out
        written = inputs[:1] if method == "at" else out
        return _computed(getattr(ufunc, method), f"numpy.{ufunc.__name__}", inputs, kwargs, written)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if _arguments((args, kwargs)):
            result = given.recorded("of_function", func, plain(args), plain(kwargs))
            if result is not None:
                return result
        return _computed(func, f"numpy.{func.__name__}", args, kwargs, (args, kwargs))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "original":
            object.__setattr__(self, name, value)
            return
        _lose(self)
        setattr(plain(self), name, plain(value))
        if name in ("shape", "strides", "dtype"):
            super().__setattr__(name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        frame = sys._getframe(1)
        if frame.f_lasti not in _stores(frame.f_code):  # compiled code, whose reasons nobody knows
            _lose(self)
        _called(self, "__setitem__", key, value)

    def __getitem__(self, key: Any) -> Any:
        found = given.recorded("of_method", "__getitem__", plain(self), plain((key,))) if _arguments(key) else None
        return _called(self, "__getitem__", key) if found is None else found

    @property
    def flags(self) -> Any:
        """The array's own for the user's code; to others, which may be compiled, it may not be written."""
        frame = sys._getframe(1)
        asked = not is_foreign(frame.f_globals.get("__name__")) and frame.f_lasti in _asks_flags(frame.f_code)
        return plain(self).flags if asked else super().flags

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.shape[0])) if self.ndim else iter(plain(self))

    def __deepcopy__(self, memo: Any) -> Any:
        return _called(self, "copy")


def _made() -> MadeArrays | None:
    tape = _tape.current.tape
    return None if tape is None else tape.made_arrays


def _lose(tree: Any) -> None:
    made = _made()
    if made is not None:
        made.lose(tree)


def _arguments(tree: Any) -> list[Any]:
    """Return what stands for arguments in a tree."""
    if isinstance(tree, (tuple, list)):
        return [x for item in tree for x in _arguments(item)]
    if type(tree) is dict:
        return _arguments(list(tree.values()))
    return [tree] if type(tree) is GivenArray else []


def _computed(function: Any, what: str, args: Any, kwargs: Any, written: Any) -> Any:
    """Return what NumPy's ``function`` gives, whose arguments ``written`` it may write to."""
    made = _made()
    constant = made is not None and made.are_constants((args, kwargs))
    if not constant:
        for x in _arguments((args, kwargs)):
            x.touched(what)
        _lose(written)
    result = function(*plain(args), **plain(kwargs))
    return made.wrapped(result) if constant and made is not None else result


def _called(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of the array."""
    if name in _OF_MEMORY:
        _lose(self)
    return _computed(lambda array, *rest, **named: getattr(array, name)(*rest, **named), f".{name}", (self, *args),
                     kwargs, (self, kwargs) if name != "__getitem__" else ())


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _called(self, name, *args, **kwargs)
    method.__name__ = name
    return method


def _attribute(name: str) -> Any:
    def get(self: Any) -> Any:
        if name in _OF_MEMORY:
            _lose(self)
        made = _made()
        found = getattr(plain(self), name)
        return made.wrapped(found) if made is not None and made.are_constants(self) else found
    return property(get)


for _name in dir(np.ndarray):
    if not _name.startswith("_"):
        if callable(getattr(np.ndarray, _name)):
            setattr(MadeArray, _name, _method(_name))
        elif _name not in given.FREE and _name not in ("strides", "flags"):
            setattr(MadeArray, _name, _attribute(_name))
for _name in ("__copy__", "__reduce__", "__reduce_ex__", "__repr__", "__str__",
              "__format__", "__dlpack__"):
    setattr(MadeArray, _name, _method(_name))
for _name in given.NOT_OFFERED & set(dir(np.ndarray)):
    setattr(MadeArray, _name, _attribute(_name))


# -- the functions that make arrays --------------------------------------------------------------------------------

_MAKERS = ("zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri",
           "array", "asarray", "ascontiguousarray", "zeros_like", "ones_like", "empty_like", "full_like", "indices",
           "tril_indices", "triu_indices", "diag_indices", "hanning", "hamming", "blackman", "bartlett", "kaiser",
           "broadcast_to", "tile", "repeat", "diag", "tril", "triu", "concatenate", "stack", "cumsum", "meshgrid")


_CONVERSIONS = frozenset(("array", "asarray", "ascontiguousarray"))


class _Maker:
    """One of them, as the user's code gets it while it is traced: what it makes of constants is known.

    Invariant: whatever else is done with it, it is the function, pickled by its name.
    """

    def __init__(self, name: str, original: Any) -> None:
        self.original = original
        functools.update_wrapper(self, original)
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = _made()
        if made is None or not made.are_constants((args, kwargs)):
            found = None
            if self.__name__ in _CONVERSIONS and args and type(args[0]) is GivenArray:
                found = given.recorded("of_conversion", self.__name__, args[0].original, args[1:], kwargs)
            return self.original(*args, **kwargs) if found is None else found
        result = self.original(*plain(args), **plain(kwargs))
        if self.__name__ in ("empty", "empty_like"):
            result[...] = 0  # as good as what was there, and the same every time
        return made.wrapped(result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.original

    def __hash__(self) -> int:
        return hash(self.original)

    def __repr__(self) -> str:
        return repr(self.original)

    def __reduce__(self) -> Any:
        return original, (self.__name__,)


def original(name: str) -> Any:
    """Return one of them, as pickles know it."""
    return getattr(np, name)


MAKERS = {name: _Maker(name, getattr(np, name)) for name in _MAKERS}


@functools.lru_cache(maxsize=1024)
def _stores(code: CodeType) -> frozenset[int]:
    """Return which instructions store items."""
    return frozenset(i.offset for i in dis.get_instructions(code) if i.opname in ("STORE_SUBSCR", "STORE_SLICE"))


@functools.lru_cache(maxsize=1024)
def _asks_flags(code: CodeType) -> frozenset[int]:
    """Return which instructions read an attribute ``flags``."""
    return frozenset(i.offset for i in dis.get_instructions(code) if i.opname == "LOAD_ATTR" and i.argval == "flags")
