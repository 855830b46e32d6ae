"""Results that lie in one memory, in define-by-run: views of what functions have made, and that itself.

Gradients of define-by-run read arrays where they are. So whoever changes ``F.reshape(h, …)`` in place changes ``h``,
and what the gradient of ``h`` reads. Replays hand such results out as the same views of one array.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Node, TensorType, Value, copied

from .captured import owner

if TYPE_CHECKING:
    from ..gradients.differentiate import Backward


@dataclass(frozen=True)
class View:
    """How a value lies in the memory of its root, which is in C order: ``offset`` and ``strides`` are bytes."""

    root: Value
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    def __call__(self, array: Any) -> Any:
        """Return the view of ``array``, which the root is."""
        if self.shape == array.shape and self.strides == array.strides:
            return array
        return np.ndarray(self.shape, array.dtype, array, self.offset, self.strides)

    @property
    def repeats(self) -> bool:
        """Whether an element stands in several places; nobody can write to such an array."""
        return any(s == 0 and n > 1 for s, n in zip(self.strides, self.shape, strict=True))


class Aliases:
    """How the values of one trace lie in memory, as far as functions have made views of what functions made."""

    def __init__(self) -> None:
        self._roots: dict[Value, Value] = {}
        self._offsets: dict[Value, int] = {}
        self.views: dict[Value, View] = {}

    def made(self, inputs: Any, outputs: Any) -> None:
        """Take in what a function has made, pairs of a value and an array, from what it was given."""
        for value, y in outputs:
            memory = owner(y)
            for source, x in inputs:
                if type(x) is np.ndarray and y.size and x.dtype == y.dtype and owner(x) is memory:
                    self._view(value, y, source, x)
                    break

    def _view(self, value: Value, y: Any, source: Value, x: Any) -> None:
        view = self.views.get(source)
        if view is None:
            if not x.flags.c_contiguous:
                return
            view = self.views[source] = View(source, x.shape, 0, x.strides)
        offset = view.offset + y.ctypes.data - x.ctypes.data
        self.views[value] = View(view.root, y.shape, offset, y.strides)

    def root(self, value: Value) -> Value:
        """Return the value in whose memory one lies."""
        view = self.views.get(value)
        return value if view is None else view.root


@dataclass(frozen=True)
class Read:
    """Where a value stands that gradients read as it is then.

    ``result`` is the place among what is ``held`` of what a call hands out, ``node`` that among the nodes of its
    results (-1 where it is not to be looked at), ``view`` how the value lies in what stands there.
    """

    result: int
    node: int = -1
    view: View | None = None

    def of(self, results: Any) -> Any:
        """Return the array as it was handed out, given what is held."""
        array = results[self.result]
        return array if self.view is None else self.view(array)


class Handed:
    """What a compiled forward hands out: its results, then the arrays that more than one of them, or gradients, lie in.

    ``values`` are the outputs of its graph. Those at ``views`` are views of the one that comes at the place given, or
    that itself. ``read`` has the values that gradients read as they are then, ``held`` says which outputs those lie in,
    and ``changing`` are all values that callers may change.
    """

    def __init__(self, recording: Any, reads: Any) -> None:
        graph, memory = recording.graph, recording.aliases
        made = {v for n in graph.nodes for v in n.outputs}
        places: dict[Value, list[int]] = {}
        for i, v in enumerate(graph.outputs):
            view = memory.views.get(v)
            if i in recording.apart and i not in recording.same and memory.root(v) in made and not (
                    view is not None and view.repeats):
                places.setdefault(memory.root(v), []).append(i)
        wanted: dict[Value, list[Value]] = {}
        for v in dict.fromkeys(reads):
            if isinstance(v.type, TensorType) and memory.root(v) in places:
                wanted.setdefault(memory.root(v), []).append(v)
        values = list(graph.outputs)
        self.views: dict[int, tuple[int, View]] = {}
        self.read: dict[Value, Read] = {}
        for root, found in places.items():
            own = {graph.outputs[i] for i in found}
            reading = wanted.get(root, [])
            if len(own.union(reading)) > 1 and (reading or root in own):
                for i in found:
                    self.views[i] = len(values), memory.views[graph.outputs[i]]
                    values[i] = root
                for v in reading:
                    self.read[v] = Read(len(values), self._node(recording, v), memory.views[v])
                values.append(root)
            elif reading:
                self.read[reading[0]] = Read(found[0], self._node(recording, reading[0]))
        self.values = tuple(values)
        self.held = tuple(sorted({r.result for r in self.read.values()}))
        self.read = {v: Read(self.held.index(r.result), r.node, r.view) for v, r in self.read.items()}
        self.changing = frozenset([v for v in made if memory.root(v) in places])

    @staticmethod
    def _node(recording: Any, value: Value) -> int:
        """Which of the nodes of a call is that of ``value``."""
        i = next((i for i, v in enumerate(recording.graph.outputs) if v is value and i not in recording.same), -1)
        return sum(recording.differentiable[:i]) if i >= 0 and recording.differentiable[i] else -1


def through_views(recording: Any, backward: Backward) -> tuple[Backward, frozenset[Value]]:
    """Let a backward look at arguments and parameters through views wherever the forward did.

    Define-by-run retains views, and sees what is changed in their memory. Returns the inputs and params of the graph
    of which there are views among what is read, too.
    """
    graph, memory = recording.graph, recording.aliases
    sources, made = {*graph.inputs, *graph.params}, graph.producers()
    wanted = {v for n in backward.nodes for v in n.inputs} | {g for g in backward.grads if g is not None}
    chains: dict[Value, list[Node]] = {}
    for v in wanted:
        if v in made and memory.root(v) in sources and (chain := _chain(v, made, sources)) is not None:
            chains[v] = chain
    if not chains:
        return backward, frozenset()
    needed = {n for chain in chains.values() for n in chain}
    now: dict[Value, Value] = {v: v for v in sources}
    nodes = copied([n for n in graph.nodes if n in needed], now)
    now = {v: now[v] for v in chains}
    nodes += [replace(n, inputs=tuple([now.get(v, v) for v in n.inputs])) for n in backward.nodes]
    grads = tuple([None if g is None else now.get(g, g) for g in backward.grads])
    return replace(backward, nodes=tuple(nodes), grads=grads), frozenset([memory.root(v) for v in chains])


def _chain(value: Value, made: Any, sources: set[Value]) -> list[Node] | None:
    """Return the nodes that make ``value`` of ``sources``; None where one of them has an effect."""
    found: list[Node] = []
    pending = [value]
    while pending:
        v = pending.pop()
        if v in sources:
            continue
        node = made.get(v)
        if node is None or node.has_effect:
            return None
        found.append(node)
        pending += node.inputs
    return found
