"""The first step of a training that goes on from a file: compiled, as it would have been without the interruption.

A static function runs define-by-run when it is traced, which rounds otherwise than the compiled code that runs from the
next call on. A training that goes on in a new process is traced at a step that has been compiled before; so its first
step is rehearsed: made, taken back, and made again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import tape as _tape
from .epochs import Traced
from .link import Link
from .link.namespace import namespace_of
from .saved_state import SavedState
from .variable import Variable

__all__ = ["rehearse"]

_MOST = 4  # a call may be traced twice, and what follows it once more
_COMPILED = frozenset(("_steps", "_compiled", "_patience", "_reducer"))  # names of an optimizer's own code


def rehearse(optimizer: Any, step: Callable[[], None], arguments: Any,
             anywhere: Callable[[bool], bool] = lambda traced: traced) -> None:
    """Make a step of an optimizer, ``step()``; if calls are traced in it, take it back and make it again.

    Taken back are parameters, gradients, states of update rules, counters, attributes of links and hooks with the
    containers and generators in them, random numbers, and gradients of the Variables among ``arguments``. Other effects
    of the user's code happen once more. ``anywhere`` is told whether calls were traced here, and returns whether they
    were in any process that takes part.
    """
    for _ in range(_MOST):
        state = _state(optimizer, arguments) if len(_tape.static_functions()) else None
        before = Traced.version
        step()
        if not anywhere(state is not None and Traced.version is not before) or state is None:
            return
        state.restore()
    step()


def _state(optimizer: Any, arguments: Any) -> SavedState | None:
    """Return the state that a step changes; None where arrays are none of NumPy's, or not there yet."""
    leaves = [optimizer.target, *_leaves(arguments)]
    links = {id(x): x for leaf in leaves if isinstance(leaf, Link) for x in leaf.links()}.values()
    params = [p for link in links for p in link.params()]
    rules = [p.update_rule for p in params if p.update_rule is not None]
    every = [x._hooks for x in (optimizer, *rules) if x._hooks is not None]
    hooks = [h for each in every for h in (*each.pre.values(), *each.post.values()) if hasattr(h, "__dict__")]
    owners = (*links, optimizer, optimizer.hyperparam, *rules, *(r.hyperparam for r in rules), *hooks)
    namespaces = list({id(x): namespace_of(x) for x in owners}.values())
    values = [v for d in namespaces for v in d.values()]
    inner = [v for x in values if isinstance(x, (list, dict)) for v in (x.values() if isinstance(x, dict) else x)]
    variables = [x for x in (*leaves, *values, *inner) if isinstance(x, Variable)]
    if not all(isinstance(v._array, np.ndarray) for v in variables):
        return None
    return SavedState(namespaces, values, variables, _COMPILED)


def _leaves(x: Any) -> Iterator[Any]:
    """Yield what lists, tuples and dictionaries contain, and the objects of bound methods."""
    if isinstance(x, (list, tuple)):
        for y in x:
            yield from _leaves(y)
    elif isinstance(x, dict):
        for y in x.values():
            yield from _leaves(y)
    else:
        yield getattr(x, "__self__", x)
