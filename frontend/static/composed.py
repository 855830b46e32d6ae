"""Functions composed of many others, as losses over paths and recurrent networks are: behind a static call they are
static functions of their own, each one schedule and one node of the graph."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..variable import Variable
from .follow.follow import Tail
from .function import StaticFunction
from .mode import may_run


class Composed(StaticFunction):
    """A function of ours behind one schedule. The user has not decorated it, so it falls back without a warning.

    Invariant: it is held by that schedule's `Tail`, and goes with it.
    """

    soon = 8  # a loss may see sequences of other lengths in every call

    def say(self, text: str) -> None:
        pass  # ``explain`` has the reason


def as_one(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """Return the function to call in place of ``fn``: itself, unless an argument is in the tail of a static call."""
    if not may_run(gradients=True, following=True):
        return fn
    tail = next(_tails((*args, *kwargs.values())), None)
    if tail is None:
        return fn
    known = tail.composed.get(fn)
    if known is None:
        known = tail.composed[fn] = Composed(fn, strict=False).decorated()
    return known


def _tails(values: Iterable[Any]) -> Iterator[Tail]:
    """The tails of the Variables among ``values``, and in lists and tuples there."""
    for x in values:
        if isinstance(x, Variable):
            creator = x.creator_node
            if creator is not None and creator._tail is not None:
                yield creator._tail
        elif type(x) in (list, tuple):
            yield from _tails(x)
