"""A net below the observation: Python that runs in a traced call without being observed makes the call fall back.

Code in C may call Python that no hook of the instrumented copies sees: callbacks, special methods, descriptors. The
profiling hook of the thread reports each Python function that begins. Where a profiler is at work already, there is no
net.
"""
from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .tape import Tape

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SITE = os.sep + "site-packages" + os.sep
_GENERATING = frozenset((*sys.stdlib_module_names, "numpy")) - {"__main__"}
_OBSERVER = "__kusari__"


class Net:
    """The net of one traced call. ``unobserved`` and ``importing`` count the contexts that are open."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.unobserved = 0
        self.importing = 0
        self._known: dict[int, CodeType] = {}  # code that may run
        self._spread = False

    def __enter__(self) -> Net:
        if sys.getprofile() is None:
            self._spread = True
            sys.setprofile(self._begins)
        return self

    def __exit__(self, *_: object) -> None:
        if self._spread:
            sys.setprofile(None)

    def allow(self, code: CodeType) -> None:
        """Let code run that is not observed."""
        self._known[id(code)] = code

    def _begins(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or id(frame.f_code) in self._known or self.unobserved or self.tape.fault is not None:
            return
        code = frame.f_code
        if _may_always(frame, code):
            self._known[id(code)] = code
        elif self.importing or _is_import(frame):
            if self.importing and code.co_name == "<module>" and self.tape.observation is not None:
                self.tape.observation.imported = True
        else:
            self.tape.note(f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno}) is called by code "
                           "that is not observed, and what it reads and changes is not known; call it outside, or in a "
                           "function decorated with static_code")


class Within:
    """A context that a net counts; not one of ``contextlib``, whose functions the net would see."""

    __slots__ = ("_name", "_net")

    def __init__(self, net: Net | None, name: str) -> None:
        self._net = net
        self._name = name

    def __enter__(self) -> None:
        if self._net is not None:
            setattr(self._net, self._name, getattr(self._net, self._name) + 1)

    def __exit__(self, *_: object) -> None:
        if self._net is not None:
            setattr(self._net, self._name, getattr(self._net, self._name) - 1)


def _is_import(frame: FrameType) -> bool:
    """Whether a frame runs since a module is imported."""
    caller: FrameType | None = frame.f_back
    while caller is not None and _OBSERVER not in caller.f_code.co_freevars:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            return True
        caller = caller.f_back
    return False


def _may_always(frame: FrameType, code: CodeType) -> bool:
    """Whether code is Kusari's own, a library's, an instrumented copy, or a comprehension in one."""
    if _OBSERVER in code.co_freevars or code.co_filename.startswith((_OURS, "<frozen ")):
        return True
    if code.co_filename.startswith("<"):  # generated
        module = frame.f_globals.get("__name__") or ""
        maker = frame.f_back
        return module.partition(".")[0] in _GENERATING or module.startswith("kusari.") or (
            maker is not None and maker.f_code.co_filename.startswith(_OURS))
    if code.co_filename.startswith(_NUMPY) or code.co_filename.startswith(_LIBRARY) and _SITE not in code.co_filename:
        return True
    caller = frame.f_back
    return caller is not None and _OBSERVER in caller.f_code.co_freevars and any(
        const is code for const in caller.f_code.co_consts)
