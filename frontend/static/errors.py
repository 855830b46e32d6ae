"""Errors and warnings of static functions, and the handlers around them."""
from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_VARARGS
from itertools import pairwise
from types import CodeType, FrameType, TracebackType
from typing import Any

from kusari.ir import TensorType, Value

from ..errors import KusariError

_parse: Any = getattr(dis, "_parse_exception_table", None)  # from Python 3.11 on


class StaticGraphError(KusariError, RuntimeError):
    """A static function cannot do as asked; the message names line, reason and way out."""


class StaticGraphWarning(UserWarning):
    """A static function runs define-by-run, with the reason."""


class NotCompilable(Exception):
    """An update, or a backward through several functions, has a part that is not compiled; the message says which."""


class Refused(NotCompilable):
    """An optimizer has such a part as it is now; it may be another later."""


class Stale(Exception):
    """An array that a schedule is bound to no longer has the type it was traced with."""


@dataclass(frozen=True)
class Fault:
    """Why a call cannot be static, and where the user's code did it."""

    reason: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


def is_from_handler(error: BaseException) -> bool:
    """Whether a handler of signals raised an error: then it says nothing on the code that the signal interrupted.

    A handler is called with the frame of that code.
    """
    traceback = error.__traceback__
    while traceback is not None and (inner := traceback.tb_next) is not None:
        code, values = inner.tb_frame.f_code, inner.tb_frame.f_locals
        given = [values.get(name) for name in code.co_varnames[:code.co_argcount]]
        if code.co_flags & CO_VARARGS:
            given += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        if any(x is traceback.tb_frame for x in given):
            return True
        traceback = inner
    return False


def without_observing(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that watch a call, which define-by-run does not have."""
    frames: list[TracebackType] = []
    while traceback is not None:
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith("kusari.static."):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for found in reversed(frames):
        kept = TracebackType(kept, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return kept


def is_handled(inputs: Sequence[Value]) -> bool:
    """Whether code of the user's within the traced call has a handler, a clause of ``try``, where it is at work now.

    Asked of functions whose ``inputs`` have integers, which may be indices that are out of range.
    """
    if not any([isinstance(v.type, TensorType) and v.type.dtype.kind in "iu" for v in inputs]):
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "call_traced":
        at = frame.f_lasti
        if not frame.f_globals.get("__name__", "").startswith("kusari.") and any(
                first <= at < end for first, end in _handled(frame.f_code)):
            return True
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def _handled(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return where in some code exceptions are handled; before Python 3.11 everywhere, if at all."""
    listed = list(dis.get_instructions(code))
    if _parse is None:
        return ((0, sys.maxsize),) * any(x.opname == "SETUP_FINALLY" for x in listed)
    names = {x.offset: (x.opname, after.opname) for x, after in pairwise(listed)}
    return tuple([(entry.start, entry.end) for entry in _parse(code)
                  if names[entry.target][0] == "PUSH_EXC_INFO" and names[entry.target][1] != "WITH_EXCEPT_START"])
