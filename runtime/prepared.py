"""Native calls that Python makes as quickly as its own: built-in functions made around a prepared call.

A foreign function call through ctypes takes half a microsecond, as long as a small schedule's kernels. CPython calls
a built-in function in a tenth of that, and one can be made from any native code with the right signature; elsewhere
than in CPython the call goes through ctypes, and there is no quick way to bind arrays.
"""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kusari.ir import Kernel

from .linker import define_symbol
from .loader import Loader
from .memory import HEADER_BYTES, KNOWN_LAYOUT

# ``invoke`` lets other Python threads run meanwhile, ``invoke_holding`` is for schedules of a few microseconds.
_TEXT = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
@_Py_NoneStruct = external global i8

; self is the integer that points to {function, its argument}.
define ptr @invoke(ptr %self, ptr %unused) {
entry:
  %pair = call ptr @PyLong_AsVoidPtr(ptr %self)
  %function = load ptr, ptr %pair
  %argument.p = getelementptr ptr, ptr %pair, i64 1
  %argument = load ptr, ptr %argument.p
  %thread = call ptr @PyEval_SaveThread()
  call void %function(ptr %argument)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

define ptr @invoke_holding(ptr %self, ptr %unused) {
entry:
  %pair = call ptr @PyLong_AsVoidPtr(ptr %self)
  %function = load ptr, ptr %pair
  %argument.p = getelementptr ptr, ptr %pair, i64 1
  %argument = load ptr, ptr %argument.p
  call void %function(ptr %argument)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}
"""

# Where the fields of an ndarray are, behind the object's header whose last word is the type: part of NumPy's binary
# interface. The plan is {arrays expected, type, slots, first array's record, ...}, and a record {dtype, axes, places,
# extents, ..., slot and offset of each place, ...}. Nothing else is accepted than contiguous, aligned arrays.
_PLACE = f"""
declare ptr @PyLong_AsVoidPtr(ptr)
declare void @Py_IncRef(ptr)
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8

define ptr @place(ptr %self, ptr %args, i64 %n) {{
entry:
  %plan = call ptr @PyLong_AsVoidPtr(ptr %self)
  %count = load i64, ptr %plan
  %type.p = getelementptr ptr, ptr %plan, i64 1
  %type = load ptr, ptr %type.p
  %slots.p = getelementptr ptr, ptr %plan, i64 2
  %slots = load ptr, ptr %slots.p
  %first = getelementptr ptr, ptr %plan, i64 3
  %fits = icmp eq i64 %n, %count
  br i1 %fits, label %array, label %no
array:
  %i = phi i64 [0, %entry], [%i.1, %placed]
  %record = phi ptr [%first, %entry], [%place.p, %placed]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %yes, label %look
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
  %j = phi i64 [0, %axis], [%j.1, %store]
  %place.p = phi ptr [%first.place, %axis], [%place.next, %store]
  %stored = icmp eq i64 %j, %places
  br i1 %stored, label %placed, label %store
store:
  %slot = load i64, ptr %place.p
  %offset.p = getelementptr i64, ptr %place.p, i64 1
  %offset = load i64, ptr %offset.p
  %address = add i64 %data, %offset
  %slot.p = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %slot.p
  %place.next = getelementptr i64, ptr %place.p, i64 2
  %j.1 = add i64 %j, 1
  br label %put
placed:
  %i.1 = add i64 %i, 1
  br label %array
yes:
  call void @Py_IncRef(ptr @_Py_TrueStruct)
  ret ptr @_Py_TrueStruct
no:
  call void @Py_IncRef(ptr @_Py_FalseStruct)
  ret ptr @_Py_FalseStruct
}}
"""

# The plan is {words, address of the first, what it was, ...}: has none of these 32-bit words changed?
_SAME = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare void @Py_IncRef(ptr)
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8

define ptr @same(ptr %self, ptr %unused) {
entry:
  %plan = call ptr @PyLong_AsVoidPtr(ptr %self)
  %count = load i64, ptr %plan
  br label %word
word:
  %i = phi i64 [0, %entry], [%i.1, %equal]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %yes, label %look
look:
  %entry.p = getelementptr {i64, i64}, ptr %plan, i64 %i
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
yes:
  call void @Py_IncRef(ptr @_Py_TrueStruct)
  ret ptr @_Py_TrueStruct
no:
  call void @Py_IncRef(ptr @_Py_FalseStruct)
  ret ptr @_Py_FalseStruct
}
"""
_SYMBOLS = ("PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
_NO_ARGUMENTS = 0x0004  # METH_NOARGS
_FAST_CALL = 0x0080     # METH_FASTCALL


class _MethodDef(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


class Invoker:
    """Makes callables of native functions ``void f(void*)`` with their argument fixed."""

    def __init__(self, loader: Loader, run: int) -> None:
        self._run = run
        self._plain: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run)
        self._definitions: list[_MethodDef] | None = None
        if sys.implementation.name != "cpython":
            return
        api: Any = ctypes.pythonapi
        for name in _SYMBOLS:
            define_symbol(name, ctypes.cast(getattr(api, name), ctypes.c_void_p).value)
        for name, value in (("None", None), ("True", True), ("False", False)):
            define_symbol(f"_Py_{name}Struct", id(value))
        *addresses, place, same = loader.load([
            Kernel("llvm", "invoke", _TEXT), Kernel("llvm", "invoke_holding", _TEXT), Kernel("llvm", "place", _PLACE),
            Kernel("llvm", "same", _SAME)])
        self._definitions = [_MethodDef(b"run", address, _NO_ARGUMENTS, None) for address in addresses]
        self._place = _MethodDef(b"place", place, _FAST_CALL, None)
        self._same = _MethodDef(b"same", same, _NO_ARGUMENTS, None)
        self._new: Any = api.PyCFunction_NewEx
        self._new.restype = ctypes.py_object
        self._new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]

    def prepare(self, argument: int, holding: bool) -> tuple[Callable[[], None], Any]:
        """Return a callable of no arguments, and what must be kept alive as long as it may be called.

        ``holding`` keeps Python's lock during the call.
        """
        if self._definitions is None:
            return partial(self._plain, ctypes.c_void_p(argument)), None
        pair = (ctypes.c_size_t * 2)(self._run, argument)
        definition = self._definitions[1 if holding else 0]
        made = self._new(ctypes.addressof(definition), ctypes.addressof(pair), None)
        return made, pair

    def placing(self, slots: int, arrays: Sequence[tuple[np.dtype[Any], tuple[int, ...], Sequence[tuple[int, int]]]],
                ) -> tuple[Callable[..., bool], Any] | None:
        """Return a callable that puts the addresses of its arguments into ``slots``, and what must be kept alive.

        Each of ``arrays`` is (dtype, shape, [(slot, offset in bytes)]). The callable returns False, and what it has
        put there is of no use, where an argument is not a contiguous, aligned array of that dtype and shape. None where
        the interpreter or NumPy does not lay out its objects as expected.
        """
        if self._definitions is None or not KNOWN_LAYOUT:
            return None
        words = [len(arrays), id(np.ndarray), slots]
        for dtype, shape, places in arrays:
            words += [id(dtype), len(shape), len(places), *shape, *(word for place in places for word in place)]
        plan = (ctypes.c_size_t * len(words))(*words)
        made = self._new(ctypes.addressof(self._place), ctypes.addressof(plan), None)
        return made, (plan, [dtype for dtype, _, _ in arrays])

    def comparing(self, addresses: Sequence[int]) -> tuple[Callable[[], bool], Any] | None:
        """Return a callable that tells whether 32-bit words are what they were, and the plan to be kept alive.

        What word ``i`` is to be stands at ``2 * i + 2`` in the plan. None where no native code can be called quickly.
        """
        if self._definitions is None:
            return None
        words = [len(addresses), *(word for address in addresses for word in (address, 0))]
        plan = (ctypes.c_size_t * len(words))(*words)
        return self._new(ctypes.addressof(self._same), ctypes.addressof(plan), None), plan
