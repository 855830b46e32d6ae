"""Which line of the user's program called us: for error messages and the tracer."""
from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SITE = os.sep + "site-packages" + os.sep


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


def definition(function: Callable[..., Any]) -> str:
    """Return file, line and name of a function's definition; "unknown" of what has no code."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}, in {code.co_name}" if code else "unknown"


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


def user_place() -> str:
    """Return the user's ``path:line`` and function: not of Python's library that the user's code has called.

    In an installed package it is followed by the place that has called the package.
    """
    found = next(_places(user_frame()), None)
    if found is None:
        return user_location()
    outside = next((f for f in _places(found) if _SITE not in f.f_code.co_filename), found)
    places = [f"{f.f_code.co_filename}:{f.f_lineno}, in {f.f_code.co_name}" for f in dict.fromkeys((found, outside))]
    return ", called from ".join(places)


def _places(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, but for those of the package, of Python's library and of generated code."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        is_library = name != "__main__" and name.partition(".")[0] in sys.stdlib_module_names
        if not (_is_ours(name) or is_library or frame.f_code.co_filename.startswith("<")):
            yield frame
        frame = frame.f_back


def _is_ours(module: str) -> bool:
    return module == "kusari" or module.startswith("kusari.")


def short(location: str) -> str:
    """Return ``model.py:31`` from a full location."""
    return location.partition(", in ")[0].rpartition("/")[2]
