"""Calls that go on define-by-run: a function gave a result of another shape than when it was traced, or raised.

By then compiled code has run the user's own functions and side-effect code in front of it. The call starts again,
define-by-run, from the state that it found, but Python that has run does not run again: its first results count.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import tape as _tape
from ...tape import recording
from ..trace.ops import is_opaque
from ..trace.python_nodes import STATIC_CODE
from ..trees import array_of, unflatten
from .undo import is_given_again

_GRAPH = frozenset(("inputs", "outputs", "rank", "_retained_output_data", "_node", "_owned_node", "_function"))


class Again:
    """A tape that records nothing: the functions and the code that have ``run`` give their results once more.

    ``run`` has nodes with results, in the order in which they ran, and the state of NumPy's random numbers behind each
    where others draw, too. Invariant: once all of them have been given, nothing watches the call any more.
    """

    def __init__(self, run: Sequence[tuple[Any, Any, Any]]) -> None:
        self._run = [entry for entry in run if is_given_again(entry[0])]

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to be given."""
        return bool(self._run)

    def _next(self, fits: Callable[[Any], bool]) -> tuple[Any, ...] | Exception | None:
        """Return the results of the next node, if it is one that ``fits``."""
        if not self._run or not fits(self._run[0][0]):
            return None
        _, results, left = self._run.pop(0)
        if left is not None:
            left.put()
        return results

    def _settle(self) -> None:
        if not self._run and _tape.current.tape is self:
            _tape.current.tape = None

    def before(self, function: Any, inputs: Any) -> bool:
        """Called right before ``function.forward``; returns whether that gives the results there are."""
        results = self._next(lambda node: "function" in node.attrs and _same(node.attrs["function"], function)) \
            if is_opaque(function) else None
        if results is None:
            return False
        if isinstance(results, Exception):
            function.__dict__["forward"] = functools.partial(_raise, results)
            return True
        changed = results[-1].changed
        applied: Any = results[-1].function
        _take_over(function, applied)
        if function.is_adapter:
            _take_over(function._function, applied._function)

        def forward(inputs: Any) -> tuple[Any, ...]:
            for i, array in changed:
                inputs[i][...] = array
            same = {id(array): inputs[i] for i, array in changed}
            return tuple([same.get(id(y), y) for y in results[:-1]])
        function.__dict__["forward"] = forward
        return True

    def after(self, given: bool, function: Any, inputs: Any, outputs: Any) -> None:
        """Called when ``function`` has made its outputs."""
        if given:
            del function.__dict__["forward"]
        self._settle()

    def code(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in place of side-effect code."""
        node = self._run[0][0] if self._run else None
        results = self._next(lambda node: node.op is STATIC_CODE and node.attrs["fn"] is fn)
        if results is None or node is None:
            with recording(None):
                return fn(*args, **kwargs)
        self._settle()
        if isinstance(results, Exception):
            raise results
        written = [array_of(x) for x in kwargs.get("outputs", ())]
        for array, new in zip(written, results, strict=False):
            array[...] = new
        return unflatten(node.attrs["result"], iter(results[len(written):]))

    def enter(self, inputs: Any) -> Any:
        """Called with the inputs of a function."""
        return inputs

    def take(self, variable: Any) -> Any:
        """Called when user code asks for a Variable's array."""
        return variable._array

    def _nothing(self, *args: Any) -> None:
        """Ignore any other event of a tape: nothing is recorded."""

    link = made = escape = note = report = constant = differentiating = _nothing


def _raise(error: Exception, _: Any) -> Any:
    raise error


def _same(a: Any, b: Any) -> bool:
    if a.is_adapter and b.is_adapter:
        a, b = a.function, b.function
    return type(a) is type(b)


def _take_over(new: Any, old: Any) -> None:
    """Let a function have what another one of its class has kept in its forward."""
    new.__dict__.update({k: v for k, v in old.__dict__.items() if k not in _GRAPH})


@contextmanager
def going_on(run: Sequence[tuple[Any, Any, Any]]) -> Generator[None]:
    """Inside, functions that have ``run`` already give their results again."""
    again: Any = Again(run)
    with recording(again if again.goes_on else None):
        yield
