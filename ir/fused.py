"""The ``fused`` op: a small graph that becomes one kernel."""
from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from .graph import Graph
from .interpret import interpret
from .op import Attrs, Op, Trait
from .primitives import PRIMITIVES


def _call(attrs: Attrs, *arrays: Any) -> tuple[Any, ...]:
    return tuple(interpret(attrs["body"], arrays))


def _types(attrs: Attrs, *types: Any) -> tuple[Any, ...]:
    body: Graph = attrs["body"]
    return tuple(v.type for v in body.outputs)


_known: WeakKeyDictionary[Graph, tuple[Any, ...]] = WeakKeyDictionary()


def structure(graph: Graph) -> tuple[Any, ...]:
    """Return a hashable description of a body, equal for bodies of the same computation.

    Many passes ask, so the answer is kept as long as the body lives.
    """
    found = _known.get(graph)
    if found is None:
        found = _known[graph] = _structure(graph)
    return found


def _structure(graph: Graph) -> tuple[Any, ...]:
    number = {v: i for i, v in enumerate(graph.sources())}
    rows: list[Any] = [tuple(v.type for v in graph.sources())]
    for n in graph.nodes:
        for v in n.outputs:
            number[v] = len(number)
        key = n.op.key(n.attrs) if n.op.key else id(n)
        rows.append((n.op.name, tuple(number[v] for v in n.inputs), tuple(v.type for v in n.outputs), key))
    return (*rows, tuple(number[v] for v in graph.outputs))


FUSED = Op("fused", _call, Trait.NONE, types=_types, key=lambda attrs: structure(attrs["body"]))
PRIMITIVES["fused"] = FUSED
