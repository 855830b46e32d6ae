"""The call that is traced: instrumented copies of the user's functions run once, on the very arguments."""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from .... import tape as _tape
from ....configuration import config
from ....tape import recording
from ...collector import without_collector
from ...guards.guard import MISSING
from ..observation import FRAMES_PER_CALL, Observation, Unguarded
from ..recorder import Tape
from . import calls
from .observer import Observer


def call_traced(fn: Callable[..., Any], tape: Tape, observation: Observation, args: tuple[Any, ...],
                kwargs: dict[str, Any], owned: bool = False) -> Any:
    """Call ``fn`` under ``tape``, observed; return its result, or raise its exception.

    ``owned`` says that the first argument is the object whose schedules these are, not one that changes.
    """
    settings = dict(vars(config))
    for x in (*args[owned:], *kwargs.values()):
        observation.argument(x)
    with recording(tape), without_collector(), _Deeper():
        result = calls.call(Observer(observation), fn, args, kwargs)
    if observation.leaves_generators():
        tape.note("a generator that the call has begun goes on after it", tape.where)
    if settings != (now := dict(vars(config))):
        name = next(n for n in {**settings, **now} if settings.get(n, MISSING) is not now.get(n, MISSING))
        tape.note(f"config.{name} changes inside the static function, which replays cannot repeat; use using_config",
                  tape.where)
    return result


def observed(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``fn`` so that the tape of this thread, if any, sees NumPy's results on arrays of Variables."""
    tape = _tape.current.tape
    if tape is None:
        return fn(*args, **kwargs)
    with without_collector(), _Deeper():
        return calls.call(Observer(Unguarded(fn, tape)), fn, args, kwargs)


class _Deeper:
    """A context in which recursion may be as deep as without observation; the limit is that of all threads."""

    lock = threading.Lock()
    open = 0

    def __enter__(self) -> None:
        with self.lock:
            _Deeper.open += 1
            if _Deeper.open == 1:
                sys.setrecursionlimit(sys.getrecursionlimit() * FRAMES_PER_CALL)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            _Deeper.open -= 1
            if _Deeper.open == 0:
                sys.setrecursionlimit(sys.getrecursionlimit() // FRAMES_PER_CALL)
