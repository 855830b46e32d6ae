"""Errors and warnings of static functions."""
from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from ..errors import KusariError


class StaticGraphError(KusariError, RuntimeError):
    """A static function cannot do as asked; the message names line, reason and way out."""


class StaticGraphWarning(UserWarning):
    """A static function runs define-by-run, with the reason."""


class NotCompilable(Exception):
    """An update has a part that states no expressions; the message says which."""


class Refused(NotCompilable):
    """An optimizer has such a part as it is now; it may be another later."""


class Stale(Exception):
    """An array that a schedule is bound to no longer has the type it was traced with."""


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


@dataclass(frozen=True)
class Fault:
    """Why a call cannot be static, and where the user's code did it."""

    reason: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"
