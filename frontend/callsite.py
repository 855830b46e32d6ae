"""Which line of the user's program called us: for error messages and the tracer."""
from __future__ import annotations

import sys
from types import FrameType


def user_frame() -> FrameType | None:
    """Return the innermost frame that is outside the package, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != "kusari" and not name.startswith("kusari."):
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
