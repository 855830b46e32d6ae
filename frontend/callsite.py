"""Which line of the user's program called us: for error messages and the tracer."""
from __future__ import annotations

import sys
from types import FrameType

_PASSING = frozenset(("contextlib", "functools", "threading"))  # modules whose frames only call what they were given


def user_frame() -> FrameType | None:
    """Return the innermost frame that is outside the package and what only calls it, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != "kusari" and not name.startswith("kusari.") and name not in _PASSING:
            return frame
        frame = frame.f_back
    return None


def user_location() -> str:
    """Return the user's ``path:line`` and function, or ``unknown``."""
    frame = user_frame()
    if frame is None:
        return "unknown"
    name = frame.f_code.co_name
    inside = "" if name == "<module>" else f", in {name}"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}{inside}"


def short(location: str) -> str:
    """Return ``model.py:31`` from a full location."""
    return location.partition(", in ")[0].rpartition("/")[2]
