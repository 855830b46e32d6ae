"""Errors and warnings of static functions."""
from __future__ import annotations

from dataclasses import dataclass
from inspect import CO_VARARGS
from types import TracebackType

from ..errors import KusariError


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
