"""The thread's recording tape, if any: how `FunctionNode.apply` lets a tracer watch.

A tape is any object with ``before(function, inputs) -> template``, ``after(template, function, inputs, outputs)``,
``enter(inputs) -> inputs``, ``take(variable) -> array``, ``link(link)``, ``forget(link, names)``,
``made(parameter)``, ``note(reason)`` and ``escape(variable, what)``.
"""
from __future__ import annotations

import threading
from typing import Any


class _Current(threading.local):
    """The tape of each thread; None nearly always."""

    tape: Any = None


current = _Current()


def active() -> Any:
    """Return the tape of this thread, or None."""
    return current.tape


def constant(array: Any) -> Any:
    """Return ``array``, and promise the tape, if any, that it depends on shapes and dtypes only."""
    if current.tape is not None:
        current.tape.constant(array)
    return array


def is_static(function: Any) -> bool:
    """Whether calling ``function`` calls one decorated with ``static_graph``: itself, or a link's ``forward``."""
    kind = type(function)
    return bool(getattr(function, "is_static_function", False) or getattr(
        getattr(kind, "forward", None), "is_static_function", False) or getattr(
        kind.__call__, "is_static_function", False))
