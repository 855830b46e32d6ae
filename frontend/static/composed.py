"""Functions composed of many others, as losses over paths and recurrent networks are: behind a static call they are
static functions of their own, each one schedule and one node of the graph."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import tape as _tape
from ..configuration import config
from ..variable import Variable
from .follow import Tail
from .function import StaticFunction

SOON_TRACED = 8   # signatures of one function behind one schedule: those beyond are traced when they come again
MOST_SEEN = 256   # signatures that are remembered for that


class Composed(StaticFunction):
    """A function of ours behind one schedule, which nobody has asked to be static: where it is not, nothing is said.

    Invariant: it is held by that schedule's `Tail`, and goes with it.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn, strict=False)
        self._seen: set[Any] = set()

    def _say(self, text: str) -> None:
        pass  # ``explain`` has the reason

    def _trace(self, owner: Any, key: Any, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen = self._seen
        if key not in seen:
            if len(seen) >= MOST_SEEN:
                seen.clear()
            seen.add(key)
            if len(seen) > SOON_TRACED:
                return self.fn(*args, **kwargs)
        return super()._trace(owner, key, leaves, args, kwargs)


def as_one(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """Return what to call in place of ``fn``: itself, but for arguments that follow a static call."""
    if not (config.follow_static and config.use_static_graph and config.enable_backprop) or config.debug or (
            _tape.current.__dict__ and _tape.watched()):
        return fn
    tail = next(_tails((*args, *kwargs.values())), None)
    if tail is None:
        return fn
    known = tail.composed.get(fn)
    if known is None:
        known = tail.composed[fn] = Composed(fn).decorated()
    return known


def _tails(values: Iterable[Any]) -> Iterator[Tail]:
    """What the Variables among ``values``, and in lists and tuples there, follow."""
    for x in values:
        if isinstance(x, Variable):
            creator = x.creator_node
            if creator is not None and creator._tail is not None:
                yield creator._tail
        elif type(x) in (list, tuple):
            yield from _tails(x)
