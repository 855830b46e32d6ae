"""Native calls that Python makes as quickly as its own: built-in functions made around a prepared call.

A foreign function call through ctypes takes half a microsecond, as long as a small schedule's kernels. CPython calls
a built-in function in a tenth of that, and one can be made from any native code with the right signature; elsewhere
than in CPython the call goes through ctypes.
"""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from kusari.ir import Kernel

from .loader import Loader
from .target import llvm

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
_SYMBOLS = ("PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
_NO_ARGUMENTS = 0x0004  # METH_NOARGS


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
            llvm.add_symbol(name, ctypes.cast(getattr(api, name), ctypes.c_void_p).value)
        llvm.add_symbol("_Py_NoneStruct", id(None))
        addresses = loader.load([Kernel("llvm", name, _TEXT) for name in ("invoke", "invoke_holding")])
        self._definitions = [_MethodDef(b"run", address, _NO_ARGUMENTS, None) for address in addresses]
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
