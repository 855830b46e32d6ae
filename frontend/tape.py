"""The observers of a thread's calls: the recording tape, if any, and hooks.

A tape is any object with ``before(function, inputs) -> template``, ``after(template, function, inputs, outputs)``,
``enter(inputs) -> inputs``, ``take(variable) -> array``, ``link(link)``, ``made(parameter)``,
``initialize(parameter, array)``, ``differentiating(function)``, ``note(reason)`` and ``escape(variable, what)``. If it
has an attribute ``memo``, that does the work of backwards: ``backward(function, target_input_indexes, grad_outputs)``
and ``sum(x, y)``.
"""
from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any


class Hooks(dict[str, Any]):
    """The function hooks of a thread by name; they are to be asked for also while a profile has one for all threads."""

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(_Current.function_hooks)


class _Current(threading.local):
    """The tape and the hooks of each thread; None nearly always.

    Invariant: the instance dictionary of a thread that nothing watches is empty, or `watched` says so.
    """

    tape: Any = None
    # By name, those entered with ``with``. The class's are a profile's, for all threads; compiled code runs beside it.
    function_hooks: dict[str, Any] | None = None
    link_hooks: dict[str, Any] | None = None


current = _Current()
# What static functions put here once there are some: whether compiled code runs in place of a function's forward (once
# there is some), what is called in place of a function composed of others, an optimizer's update compiled, all of them,
# the sections of a report on some of them.
following: Any = None
as_one: Any = None
compiled_update: Any = None
static_functions: Callable[[], Sequence[Any]] = tuple
# What looks at the code around an update, whether an update has been made along with its loss, and what forgets that.
look: Any = None
updated: Any = None
forget: Any = None
# By thread, the update that comes next and has been made already: the optimizer, the frame, and where in its code.
updates: dict[int, tuple[Any, Any, tuple[int, int]]] = {}
reports: Callable[..., Sequence[Any]] = tuple


def watched() -> bool:
    """Whether a tape or a hook watches this thread; asked only where ``current.__dict__`` is not empty."""
    return current.tape is not None or bool(own_hooks() or current.link_hooks)


def own_hooks() -> dict[str, Any] | None:
    """Return the function hooks of this thread alone; None where there are none."""
    found = current.__dict__.get("function_hooks")
    return found if found is not None and len(found) else None


def active_hooks() -> list[Any]:
    """Return the function hooks of this thread, and that of a profile."""
    return [*(_Current.function_hooks or {}).values(), *(own_hooks() or {}).values()]


def hook_all_threads(hooks: dict[str, Any] | None) -> None:
    """Set the hooks of all threads; None for no more of them."""
    _Current.function_hooks = hooks


def active() -> Any:
    """Return the tape of this thread, or None."""
    return current.tape


@contextmanager
def recording(tape: Any) -> Iterator[None]:
    """Install ``tape`` (None to suspend recording) as this thread's tape."""
    before, current.tape = current.tape, tape
    try:
        yield
    finally:
        if before is None:
            current.__dict__.pop("tape", None)  # nothing watches this thread any more
        else:
            current.tape = before


def constant(array: Any) -> Any:
    """Return ``array``, and promise the tape, if any, that it depends on shapes and dtypes only."""
    if current.tape is not None:
        current.tape.constant(array)
    return array


def named(name: str, *attributes: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that applies others and is one class of Chainer's: exports may have it as one function.

    Of its arguments ``attributes`` are what that class has as such, all other Variables and arrays are its inputs.
    """
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def function(*args: Any, **kwargs: Any) -> Any:
            whole = getattr(current.tape, "whole", None)
            return fn(*args, **kwargs) if whole is None else whole(fn, None, args, kwargs, name, attributes)
        return function
    return decorate


def composed(onnx: Callable[..., Any] | None = None, name: str = "") -> Callable[
        [Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that applies many others: where it follows a static call, it is compiled as a whole.

    ``onnx(g, …)`` emits it as a whole, too, for an export that asks for no gradients: it has the parameters of the
    function, and is given names in place of arrays. ``name`` is what Chainer calls it.
    """
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def function(*args: Any, **kwargs: Any) -> Any:
            if onnx is not None and (whole := getattr(current.tape, "whole", None)) is not None:
                return whole(fn, onnx, args, kwargs, name)
            if following is None:
                return fn(*args, **kwargs)
            return as_one(fn, args, kwargs)(*args, **kwargs)
        return function
    return decorate


def static_function(function: Any) -> Any:
    """Return the ``StaticFunction`` behind what ``static_graph`` has returned, bound or not; None for others."""
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is not FunctionType:
        return None
    found = function.__dict__.get("static")
    return found if getattr(found, "function", None) is function else None  # not what is wrapped around it


def static_call(function: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the ``StaticFunction`` that calling ``function`` comes down to, and what it is called with first.

    That is ``function`` itself, bound or not, or the ``forward`` of a link without hooks of its own; else None.
    """
    kind = type(function)
    if kind is MethodType or kind is FunctionType:
        static = static_function(function)
        return None if static is None else (static, (function.__self__,) if kind is MethodType else ())
    static = static_function(kind.__call__)
    if static is None:
        static = static_function(getattr(kind, "forward", None))
        if static is None or getattr(function, "_local_link_hooks", None):
            return None
        own = function.forward  # not by the object's dictionary: who asks for that may change it unseen
        if type(own) is not MethodType or own.__func__ is not static.function or own.__self__ is not function:
            return None
    return static, (function,)
