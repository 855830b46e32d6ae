"""Which line of the user's program called us: for error messages and the tracer."""
from __future__ import annotations

import functools
import sys
from types import FrameType


@functools.cache
def _is_passing(module: str) -> bool:
    """Whether frames of a module are the package's, or only call what they were given."""
    return module in ("kusari", "contextlib", "functools", "threading") or module.startswith("kusari.")


def user_frame() -> FrameType | None:
    """Return the innermost frame that is outside the package and what only calls it, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_passing(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def caller(above: int = 1) -> str:
    """Return the name of a function that is being called, ``above`` calls outside of the one that asks."""
    frame: FrameType | None = sys._getframe(0)  # of this function, or of the observer's if the call is traced
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("kusari.static."):
            if above < 0:
                return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # qualified from Python 3.11 on
            above -= 1
        frame = frame.f_back
    return "unknown"


def user_stacklevel() -> int:
    """Return the ``stacklevel`` with which a call of ``warnings.warn`` beside this one points at the user's line."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_passing(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


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
