"""Native calls that Python makes as fast as its own: built-in functions made around a prepared call.

A foreign function call through ctypes takes half a microsecond, as long as a small schedule's kernels. CPython calls a
built-in function in a tenth of that, and one can be made from any native code with the right signature; other
interpreters call through ctypes, and have no fast path that binds arrays.
"""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kusari.ir import Kernel

from .linker import define_symbol
from .loader import Loader
from .memory import HEADER_BYTES, KNOWN_LAYOUT

# None of it is optimised (`optnone`), so that the compiler emits it in a fifth of the time: every process with an empty
# cache waits for it, and calls take as long.

# A call is {table, rows, ...}: a thread alone runs all rows of a table of instructions, which `thread_pool` describes.
_ALONE = """
define void @alone(ptr %call) noinline optnone {
entry:
  %table = load ptr, ptr %call
  %rows.p = getelementptr i64, ptr %call, i64 1
  %rows = load i64, ptr %rows.p
  %some = icmp sgt i64 %rows, 0
  br i1 %some, label %row, label %out
row:
  %i = phi i64 [0, %entry], [%i.1, %row]
  %kernel.p = getelementptr {ptr, ptr, i64}, ptr %table, i64 %i
  %kernel = load ptr, ptr %kernel.p
  %slots.p = getelementptr {ptr, ptr, i64}, ptr %table, i64 %i, i32 1
  %slots = load ptr, ptr %slots.p
  call void %kernel(ptr %slots, i64 0, i64 1)
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, %rows
  br i1 %more, label %row, label %out
out:
  ret void
}
"""

# Self is the integer that points to {function, its argument}.
_CALLED = """\
entry:
  %pair = call ptr @PyLong_AsVoidPtr(ptr %self)
  %function = load ptr, ptr %pair
  %argument.p = getelementptr ptr, ptr %pair, i64 1
  %argument = load ptr, ptr %argument.p
"""
# ``invoke`` lets other Python threads run meanwhile, ``invoke_holding`` is for schedules of a few microseconds.
_INVOKE = f"""
define ptr @invoke(ptr %self, ptr %unused) noinline optnone {{
{_CALLED}  %thread = call ptr @PyEval_SaveThread()
  call void %function(ptr %argument)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}

define ptr @invoke_holding(ptr %self, ptr %unused) noinline optnone {{
{_CALLED}  call void %function(ptr %argument)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}
"""

_ANSWERS = """\
yes:
  call void @Py_IncRef(ptr @_Py_TrueStruct)
  ret ptr @_Py_TrueStruct
no:
  call void @Py_IncRef(ptr @_Py_FalseStruct)
  ret ptr @_Py_FalseStruct
}
"""

# Where the fields of an ndarray are, behind the object's header whose last word is the type: part of NumPy's binary
# interface. The plan is {arrays expected, whether they may lie elsewhere than those before, arrays held, list of those,
# type, slots, first array's record, ...}. The record of an expected array is {dtype, axes, targets, extents, ..., slot
# and offset of each target, ...}; only contiguous, aligned arrays are accepted. A held one has {position
# in the list and slot, axes and flags, dtype, offset (-1 without a slot), extents, ...}: it must be as it was when its
# address was put there, or None.
_DIFFERS = """\
  %at.{0} = call i32 @llvm.umin.i32(i32 {0}, i32 %last.axis)
  %new.{0}.p = getelementptr i64, ptr %now.shape, i32 %at.{0}
  %new.{0} = load i64, ptr %new.{0}.p
  %old.{0}.p = getelementptr i64, ptr %old.extents, i32 %at.{0}
  %old.{0} = load i64, ptr %old.{0}.p
  %differs.{0} = xor i64 %new.{0}, %old.{0}
"""
_PLACE = f"""
define ptr @place(ptr %self, ptr %args, i64 %n) noinline optnone {{
entry:
  %plan = call ptr @PyLong_AsVoidPtr(ptr %self)
  %count = load i64, ptr %plan
  %moving.p = getelementptr i64, ptr %plan, i64 1
  %moving.64 = load i64, ptr %moving.p
  %moving = trunc i64 %moving.64 to i1
  %held.p = getelementptr i64, ptr %plan, i64 2
  %held = load i64, ptr %held.p
  %list.p = getelementptr ptr, ptr %plan, i64 3
  %list = load ptr, ptr %list.p
  %type.p = getelementptr ptr, ptr %plan, i64 4
  %type = load ptr, ptr %type.p
  %slots.p = getelementptr ptr, ptr %plan, i64 5
  %slots = load ptr, ptr %slots.p
  %first = getelementptr ptr, ptr %plan, i64 6
  %fits = icmp eq i64 %n, %count
  br i1 %fits, label %array, label %no
array:
  %i = phi i64 [0, %entry], [%i.1, %placed]
  %record = phi ptr [%first, %entry], [%place.p, %placed]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %bound, label %look
look:
  %item.p = getelementptr ptr, ptr %args, i64 %i
  %item = load ptr, ptr %item.p
  %kind.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES - 8}
  %kind = load ptr, ptr %kind.p
  %ndarray = icmp eq ptr %kind, %type
  br i1 %ndarray, label %fields, label %no
fields:
  %data.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES}
  %data = load i64, ptr %data.p
  %axes.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES + 8}
  %axes.32 = load i32, ptr %axes.p
  %axes = sext i32 %axes.32 to i64
  %shape.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES + 16}
  %shape = load ptr, ptr %shape.p
  %dtype.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES + 40}
  %dtype = load ptr, ptr %dtype.p
  %flags.p = getelementptr i8, ptr %item, i64 {HEADER_BYTES + 48}
  %flags = load i32, ptr %flags.p
  %dtype.wanted = load ptr, ptr %record
  %axes.wanted.p = getelementptr i64, ptr %record, i64 1
  %axes.wanted = load i64, ptr %axes.wanted.p
  %places.p = getelementptr i64, ptr %record, i64 2
  %places = load i64, ptr %places.p
  %extents = getelementptr i64, ptr %record, i64 3
  %plain = and i32 %flags, {0x0101}
  %is.plain = icmp eq i32 %plain, {0x0101}
  %is.dtype = icmp eq ptr %dtype, %dtype.wanted
  %is.deep = icmp eq i64 %axes, %axes.wanted
  %is.1 = and i1 %is.plain, %is.dtype
  %is = and i1 %is.1, %is.deep
  br i1 %is, label %axis, label %no
axis:
  %k = phi i64 [0, %fields], [%k.1, %same]
  %first.place = getelementptr i64, ptr %extents, i64 %k
  %measured = icmp eq i64 %k, %axes
  br i1 %measured, label %put, label %measure
measure:
  %extent.p = getelementptr i64, ptr %shape, i64 %k
  %extent = load i64, ptr %extent.p
  %wanted = load i64, ptr %first.place
  %equal = icmp eq i64 %extent, %wanted
  br i1 %equal, label %same, label %no
same:
  %k.1 = add i64 %k, 1
  br label %axis
put:
  %j = phi i64 [0, %axis], [%j.1, %write]
  %place.p = phi ptr [%first.place, %axis], [%place.next, %write]
  %stored = icmp eq i64 %j, %places
  br i1 %stored, label %placed, label %store
store:
  %slot = load i64, ptr %place.p
  %offset.p = getelementptr i64, ptr %place.p, i64 1
  %offset = load i64, ptr %offset.p
  %address = add i64 %data, %offset
  %slot.p = getelementptr i64, ptr %slots, i64 %slot
  %before = load i64, ptr %slot.p
  %stays = icmp eq i64 %before, %address
  %may = or i1 %stays, %moving
  br i1 %may, label %write, label %no
write:
  store i64 %address, ptr %slot.p
  %place.next = getelementptr i64, ptr %place.p, i64 2
  %j.1 = add i64 %j, 1
  br label %put
placed:
  %i.1 = add i64 %i, 1
  br label %array
bound:
  %some = icmp eq i64 %held, 0
  br i1 %some, label %yes, label %listed
listed:
  %items.p = getelementptr i8, ptr %list, i64 {HEADER_BYTES + 8}
  %items = load ptr, ptr %items.p
  br label %hold
hold:
  %h = phi i64 [0, %listed], [%h.1, %next]
  %known = phi ptr [%record, %listed], [%known.1, %next]
  %position.32 = load i32, ptr %known
  %position = sext i32 %position.32 to i64
  %old.p = getelementptr ptr, ptr %items, i64 %position
  %old = load ptr, ptr %old.p
  %old.axes.p = getelementptr i32, ptr %known, i64 2
  %old.axes = load i32, ptr %old.axes.p
  %old.extents = getelementptr i64, ptr %known, i64 4
  %known.1 = getelementptr i64, ptr %old.extents, i32 %old.axes
  %is.none = icmp eq ptr %old, @_Py_NoneStruct
  br i1 %is.none, label %next, label %compare
compare:
  %now.data.p = getelementptr i8, ptr %old, i64 {HEADER_BYTES}
  %now.data = load i64, ptr %now.data.p
  %now.axes.p = getelementptr i8, ptr %old, i64 {HEADER_BYTES + 8}
  %now.axes = load i32, ptr %now.axes.p
  %now.shape.p = getelementptr i8, ptr %old, i64 {HEADER_BYTES + 16}
  %now.shape = load ptr, ptr %now.shape.p
  %now.dtype.p = getelementptr i8, ptr %old, i64 {HEADER_BYTES + 40}
  %now.dtype = load i64, ptr %now.dtype.p
  %now.flags.p = getelementptr i8, ptr %old, i64 {HEADER_BYTES + 48}
  %now.flags = load i32, ptr %now.flags.p
  %old.slot.p = getelementptr i32, ptr %known, i64 1
  %old.slot = load i32, ptr %old.slot.p
  %old.flags.p = getelementptr i32, ptr %known, i64 3
  %old.flags = load i32, ptr %old.flags.p
  %old.dtype.p = getelementptr i64, ptr %known, i64 2
  %old.dtype = load i64, ptr %old.dtype.p
  %old.offset.p = getelementptr i64, ptr %known, i64 3
  %old.offset = load i64, ptr %old.offset.p
  %there.p = getelementptr i64, ptr %slots, i32 %old.slot
  %there = load i64, ptr %there.p
  %now.there = add i64 %now.data, %old.offset
  %unread = icmp eq i64 %old.offset, -1
  %moved.1 = sub i64 %there, %now.there
  %moved = select i1 %unread, i64 0, i64 %moved.1
  %other.dtype = xor i64 %now.dtype, %old.dtype
  %set = and i32 %now.flags, %old.flags
  %lost = xor i32 %set, %old.flags
  %other.axes = xor i32 %now.axes, %old.axes
  %other.1 = or i32 %lost, %other.axes
  %other.2 = zext i32 %other.1 to i64
  %other.3 = or i64 %moved, %other.dtype
  %other = or i64 %other.2, %other.3
  %unchanged = icmp eq i64 %other, 0
  br i1 %unchanged, label %axes.held, label %no
axes.held:
  %last.axis = sub i32 %old.axes, 1
  %few = icmp ult i32 %last.axis, 4
  br i1 %few, label %few.axes, label %length
few.axes:  ; without a loop, whose end would be a branch that is hard to foresee
{"".join(map(_DIFFERS.format, range(4)))}  %differs.01 = or i64 %differs.0, %differs.1
  %differs.23 = or i64 %differs.2, %differs.3
  %differs = or i64 %differs.01, %differs.23
  %same.extents = icmp eq i64 %differs, 0
  br i1 %same.extents, label %next, label %no
length:
  %e = phi i32 [0, %axes.held], [%e.1, %long]
  %whole = icmp eq i32 %e, %old.axes
  br i1 %whole, label %next, label %long
long:
  %now.extent.p = getelementptr i64, ptr %now.shape, i32 %e
  %now.extent = load i64, ptr %now.extent.p
  %old.extent.p = getelementptr i64, ptr %old.extents, i32 %e
  %old.extent = load i64, ptr %old.extent.p
  %e.1 = add i32 %e, 1
  %as.long = icmp eq i64 %now.extent, %old.extent
  br i1 %as.long, label %length, label %no
next:
  %h.1 = add i64 %h, 1
  %last = icmp eq i64 %h.1, %held
  br i1 %last, label %yes, label %hold
{_ANSWERS}"""

# The plan is {words, address of the first, its old value, ...}: has none of these 32-bit words changed?
_SAME = f"""
define ptr @same(ptr %self, ptr %unused) noinline optnone {{
entry:
  %plan = call ptr @PyLong_AsVoidPtr(ptr %self)
  %count = load i64, ptr %plan
  br label %word
word:
  %i = phi i64 [0, %entry], [%i.1, %equal]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %yes, label %look
look:
  %entry.p = getelementptr {{i64, i64}}, ptr %plan, i64 %i
  %address.p = getelementptr i64, ptr %entry.p, i64 1
  %address = load ptr, ptr %address.p
  %wanted.p = getelementptr i64, ptr %entry.p, i64 2
  %wanted = load i32, ptr %wanted.p
  %now = load i32, ptr %address
  %is = icmp eq i32 %now, %wanted
  br i1 %is, label %equal, label %no
equal:
  %i.1 = add i64 %i, 1
  br label %word
{_ANSWERS}"""
# What native code takes from CPython.
_PYTHON = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare i32 @llvm.umin.i32(i32, i32)
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8
"""
_SYMBOLS = ("PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
_NO_ARGUMENTS = 0x0004  # METH_NOARGS
_FAST_CALL = 0x0080     # METH_FASTCALL


class _MethodDef(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


_FLAGS = 0x0101, 0x0501  # NumPy's flags of contiguous, aligned arrays; with writable


def _functions(loader: Loader, text: str, names: Sequence[str]) -> list[int]:
    """Return the addresses of functions of a text, which are one kernel: a text on its own takes time by itself."""
    stores = [f"  %p.{i} = getelementptr ptr, ptr %out, i64 {i}\n  store ptr @{name}, ptr %p.{i}\n"
              for i, name in enumerate(names)]
    entry = f"\ndefine void @functions(ptr %out) noinline optnone {{\n{''.join(stores)}  ret void\n}}\n"
    found = (ctypes.c_size_t * len(names))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loader.load_one(Kernel("llvm", "functions", text + entry)))(found)
    return [*found]


@dataclass(frozen=True)
class Held:
    """An array that a frame holds from call to call: its position in ``bound``, its type, one of its slots."""

    position: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    slot: tuple[int, int] | None  # with an offset
    written: bool


@dataclass(frozen=True, eq=False)
class Binder:
    """A fast call that binds arrays and checks the held ones; ``dtypes`` are positions of their dtypes in ``plan``."""

    call: Callable[..., bool]
    plan: Any
    dtypes: dict[int, int]
    keep: Any


class Invoker:
    """Makes callables of native functions ``void f(void*)`` with their argument fixed.

    ``run`` is the function that runs a table of instructions, by default for a thread alone; ``plain`` calls it.
    """

    def __init__(self, loader: Loader, run: int | None = None) -> None:
        self._definitions: list[_MethodDef] | None = None
        if sys.implementation.name != "cpython":
            self._use(_functions(loader, _ALONE, ["alone"])[0] if run is None else run)
            return
        api: Any = ctypes.pythonapi
        for name in _SYMBOLS:
            define_symbol(name, ctypes.cast(getattr(api, name), ctypes.c_void_p).value)
        for name, value in (("None", None), ("True", True), ("False", False)):
            define_symbol(f"_Py_{name}Struct", id(value))
        alone, *addresses, place, same = _functions(loader, _PYTHON + _ALONE + _INVOKE + _PLACE + _SAME, (
            "alone", "invoke", "invoke_holding", "place", "same"))
        self._use(alone if run is None else run)
        self._definitions = [_MethodDef(b"run", address, _NO_ARGUMENTS, None) for address in addresses]
        self._place = _MethodDef(b"place", place, _FAST_CALL, None)
        self._same = _MethodDef(b"same", same, _NO_ARGUMENTS, None)
        self._new: Any = api.PyCFunction_NewEx
        self._new.restype = ctypes.py_object
        self._new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]

    def _use(self, run: int) -> None:
        self._run = run
        self.plain: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run)

    def prepare(self, argument: int, holding: bool) -> tuple[Callable[[], None], Any]:
        """Return a callable of no arguments, and an object to be kept alive as long as it may be called.

        ``holding`` keeps Python's lock during the call.
        """
        if self._definitions is None:
            return partial(self.plain, ctypes.c_void_p(argument)), None
        pair = (ctypes.c_size_t * 2)(self._run, argument)
        definition = self._definitions[1 if holding else 0]
        made = self._new(ctypes.addressof(definition), ctypes.addressof(pair), None)
        return made, pair

    def binder(self, slots: int, arrays: Sequence[tuple[np.dtype[Any], tuple[int, ...], Sequence[tuple[int, int]]]],
                held: Sequence[Held] = (), bound: list[Any] | None = None, may_move: bool = True) -> Binder | None:
        """Return a function that writes addresses of arrays into ``slots`` and says whether the ``held`` are unchanged.

        Each of ``arrays`` is (dtype, shape, [(slot, offset in bytes)]). The callable returns False, and the addresses
        it has written are void, if an argument is not a contiguous, aligned array of that dtype and shape, or if one of
        the arrays held in ``bound`` has been changed in place to other memory, another type or other flags; unless they
        ``may_move``, also if an address differs from the one in its slot. None if the interpreter or NumPy lays out its
        objects in another way.
        """
        if self._definitions is None or not KNOWN_LAYOUT:
            return None
        words = [len(arrays), may_move, len(held), id(bound), id(np.ndarray), slots]
        for dtype, shape, targets in arrays:
            words += [id(dtype), len(shape), len(targets), *shape, *(word for target in targets for word in target)]
        dtypes: dict[int, int] = {}
        for h in held:
            dtypes[h.position] = len(words) + 2
            slot, offset = h.slot or (0, -1)
            words += [h.position + (slot << 32), len(h.shape) + (_FLAGS[h.written] << 32), id(h.dtype), offset,
                      *h.shape]
        plan = (ctypes.c_size_t * len(words))(*words)
        made = self._new(ctypes.addressof(self._place), ctypes.addressof(plan), None)
        return Binder(made, plan, dtypes, (bound, [dtype for dtype, _, _ in arrays], [h.dtype for h in held]))

    def comparing(self, addresses: Sequence[int]) -> tuple[Callable[[], bool], Any] | None:
        """Return a callable that says whether 32-bit words have their old values, and the plan to be kept alive.

        The expected value of word ``i`` is at ``2 * i + 2`` in the plan. None if native code cannot be called fast.
        """
        if self._definitions is None:
            return None
        words = [len(addresses), *(word for address in addresses for word in (address, 0))]
        plan = (ctypes.c_size_t * len(words))(*words)
        return self._new(ctypes.addressof(self._same), ctypes.addressof(plan), None), plan
