"""A net below code in C: Python of the user's that it calls is not observed, and makes the call fall back.

Code in C may call Python that no hook of the instrumented copies sees: callbacks, special methods, descriptors. While
such code runs on objects of the user's, the profiling hook of the thread reports each Python function that begins.
Where a profiler is at work
already, the call falls back.
"""
from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari import codegen, ir, passes, runtime

if TYPE_CHECKING:
    from .recorder import Tape

_FRONTEND = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = tuple([os.path.abspath(folder) + os.sep for folder in (  # neighbours in a checkout
    _FRONTEND, *codegen.__path__, *ir.__path__, *passes.__path__, *runtime.__path__)])
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SITE = os.sep + "site-packages" + os.sep
_GENERATING = frozenset((*sys.stdlib_module_names, "numpy")) - {"__main__"}
_OBSERVER = "__kusari__"


class Net:
    """The net of one traced call, spread by ``with``; ``unobserved`` counts contexts for Python that replays run."""

    def __init__(self, tape: Tape) -> None:
        self.tape: Any = tape  # None when it is closed
        self.unobserved = 0
        self._depth = 0
        self._is_spread = False
        self._known: dict[int, CodeType] = {}  # code that may run

    def __enter__(self) -> None:
        if self._depth == 0 and self.tape.fault is None:
            if sys.getprofile() is None:
                self._is_spread = True
                sys.setprofile(self._begins)
            else:
                self.tape.note_at_user("code in C runs on objects of the user's while a profiler is at work, so that "
                                       "Python which it calls would not be seen")
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._is_spread:
            self._is_spread = False
            sys.setprofile(None)

    def allow(self, code: CodeType) -> None:
        """Let code run that is generated and known."""
        self._known[id(code)] = code

    def _begins(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or id(frame.f_code) in self._known or self.unobserved or self.tape.fault is not None:
            return
        code = frame.f_code
        if _may_always(frame, code):
            self._known[id(code)] = code
        elif not _is_import(frame):
            place = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
            self.tape.note_at_user(f"{code.co_name} ({place}) is called by code that is not observed, and what it "
                                   "reads and changes is not known; call it outside, or in a function decorated with "
                                   "static_code")


def _is_import(frame: FrameType) -> bool:
    """Whether a frame runs since a module is imported."""
    caller: FrameType | None = frame.f_back
    while caller is not None and _OBSERVER not in caller.f_code.co_freevars:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            return True
        caller = caller.f_back
    return False


def is_library(module: str) -> bool:
    """Whether a module is Kusari's, NumPy's or of Python's library."""
    return module.partition(".")[0] in _GENERATING or module == "kusari" or module.startswith("kusari.")


def _may_always(frame: FrameType, code: CodeType) -> bool:
    """Whether code is Kusari's own, a library's, an instrumented copy, or a comprehension in one."""
    if _OBSERVER in code.co_freevars or code.co_filename.startswith((*_OURS, "<frozen ")):
        return True
    if code.co_filename.startswith("<"):  # generated
        module = frame.f_globals.get("__name__") or ""
        maker = frame.f_back
        return is_library(module) or module.startswith("namedtuple_") or (
            not module and maker is not None and maker.f_code.co_filename.startswith(_OURS))
    if code.co_filename.startswith(_NUMPY) or code.co_filename.startswith(_LIBRARY) and _SITE not in code.co_filename:
        return True
    caller = frame.f_back
    return caller is not None and _OBSERVER in caller.f_code.co_freevars and any(
        const is code for const in caller.f_code.co_consts)
