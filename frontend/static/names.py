"""Names in modules that mean something else to the user's Python while it is traced, and to nobody else.

They are taken out of their modules meanwhile, so that whoever reads one asks ``__getattr__``, where it is known who
asks: other threads, libraries and compiled code, to which another object than the one it expects could do harm, get
what always was there. Compiled code runs in nobody's frame: the instruction at which the frame stands is another.
"""
from __future__ import annotations

import dis
import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from .. import tape as _tape
from .made import MAKERS
from .reach import is_foreign


class _Names:
    """Those of one module, with ``meaning(name, original)`` that says what the user's code gets."""

    def __init__(self, module: ModuleType, names: Iterator[str], meaning: Callable[[str, Any], Any]) -> None:
        self.module = module
        self.originals = {name: getattr(module, name) for name in names}
        self.meaning = meaning
        self.otherwise = vars(module).get("__getattr__")

    def __call__(self, name: str) -> Any:
        """Stands for the ``__getattr__`` of the module."""
        try:
            original = self.originals[name]
        except KeyError:
            if self.otherwise is not None:
                return self.otherwise(name)
            raise AttributeError(f"module {self.module.__name__!r} has no attribute {name!r}") from None
        if _tape.current.tape is not None:
            frame = sys._getframe(1)
            if not is_foreign(frame.f_globals.get("__name__")) and _attributes(frame.f_code).get(frame.f_lasti) == name:
                return self.meaning(name, original)
        return original

    def take_out(self) -> None:
        """Let whoever reads one of the names ask."""
        vars(self.module)["__getattr__"] = self
        for name in self.originals:
            del vars(self.module)[name]

    def put_back(self) -> None:
        """Let the module be as it was."""
        vars(self.module).update(self.originals)
        if self.otherwise is None:
            del vars(self.module)["__getattr__"]
        else:
            vars(self.module)["__getattr__"] = self.otherwise


@functools.lru_cache(maxsize=1024)
def _attributes(code: CodeType) -> dict[int, str]:
    """Return which instructions read attributes of which names."""
    steps = list(dis.get_instructions(code))
    asked: set[int] = set()  # what is compared by ``is``: it has to be the very object
    for k, i in enumerate(steps):
        if i.opname == "IS_OP":
            first, depth = k, 0
            while first > 0 and depth < 1:  # back to where the second operand begins
                first -= 1
                depth += dis.stack_effect(steps[first].opcode, steps[first].arg, jump=False)
            asked |= {steps[k - 1].offset, steps[first - 1].offset}
    return {i.offset: i.argval for i in steps if i.opname in ("LOAD_ATTR", "LOAD_METHOD") and i.offset not in asked}


class _Generator:
    """What makes generators of random numbers, as the user's code gets it: it tells of those that have no seed."""

    def __init__(self, name: str, original: Any) -> None:
        self._name = name
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tape = _tape.current.tape
        if tape is not None and (self._name == "SystemRandom" or all(x is None for x in (*args, *kwargs.values()))):
            tape.note(f"random numbers may be drawn from a generator that the call makes ({self._name}), and replays "
                      "would not draw again; use functions, a function decorated with static_code, or pass the numbers "
                      "as an argument")
        _tape.current.tape = None  # some ask for entropy first and take the seed then
        try:
            return self._original(*args, **kwargs)
        finally:
            _tape.current.tape = tape

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _place() -> str:
    """Where the user's code is."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_foreign(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


class _Entropy:
    """What all other numbers that nobody can foretell come from, as a function that tells of being called."""

    def __init__(self, holder: Any, name: str) -> None:
        self._holder, self._name = holder, name
        self._original = getattr(holder, name)

    def take_out(self) -> None:
        """Let the tape of a thread that asks hear of it."""
        original = self._original

        def asked(*args: Any, **kwargs: Any) -> Any:
            tape = _tape.current.tape
            if tape is not None and all(x is None for x in (*args[1:], *kwargs.values())):
                tape.note("random numbers may be drawn from the system or from a generator without a seed, and replays "
                          "would not draw again; use functions, a function decorated with static_code, or pass the "
                          "numbers as an argument", _place())
            return original(*args, **kwargs)
        setattr(self._holder, self._name, functools.wraps(original)(asked))

    def put_back(self) -> None:
        """Let it be as it was."""
        setattr(self._holder, self._name, self._original)


_ALL = (_Entropy(random, "_urandom"), _Entropy(os, "urandom"), _Entropy(random.Random, "seed"),
        _Names(np, iter(MAKERS), lambda name, _: MAKERS[name]),
        _Names(np.random, iter(("default_rng", "RandomState", "SeedSequence", "MT19937", "PCG64", "PCG64DXSM", "SFC64",
                               "Philox")), _Generator),
        _Names(random, iter(("Random", "SystemRandom")), _Generator))
_lock = threading.Lock()
_tracing = 0


@contextmanager
def noticed() -> Iterator[None]:
    """Inside, the tape of a thread hears of arrays and generators that the user's code makes."""
    global _tracing
    with _lock:
        _tracing += 1
        if _tracing == 1:
            for names in _ALL:
                names.take_out()
    try:
        yield
    finally:
        with _lock:
            _tracing -= 1
            if _tracing == 0:
                for names in _ALL:
                    names.put_back()
