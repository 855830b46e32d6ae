"""Results that share memory in define-by-run: arrays that functions have made, and views of them.

Gradients of define-by-run read arrays where they are. So changing ``F.reshape(h, …)`` in place changes ``h``, and the
values that the gradient of ``h`` reads. Replays return such results as the same views of one array.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Graph, Node, TensorType, Value, copied

from .captured import owner
from .overlap import address_of, has_address

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
        """Return the view of ``array``, the root."""
        if self.shape == array.shape and self.strides == array.strides:
            return array
        if isinstance(array, np.ndarray):
            return np.ndarray(self.shape, array.dtype, array, self.offset, self.strides)
        return type(array)(self.shape, array.dtype, array.data + self.offset, self.strides)

    @property
    def repeats(self) -> bool:
        """Whether an element is repeated, which makes an array read-only."""
        return any(s == 0 and n > 1 for s, n in zip(self.strides, self.shape, strict=True))


class Aliases:
    """The memory of the values of one trace, as far as functions have made views of results of functions."""

    def __init__(self) -> None:
        self.views: dict[Value, View] = {}
        self.sources: dict[Value, Value] = {}  # of all views, the operand that each is one of
        self.of_users: dict[Value, Value] = {}  # the same of views that functions of the user's have made

    def made(self, inputs: Any, outputs: Any, of_user: bool = False) -> None:
        """Take in the results of a function, pairs of a value and an array, and its operands."""
        sources = self.of_users if of_user else self.sources
        for value, y in outputs:
            memory = owner(y)
            for source, x in inputs:
                if type(x) is type(y) and has_address(x) and y.size and owner(x) is memory:
                    sources[value] = source
                    if x.dtype == y.dtype and not of_user:
                        self._view(value, y, source, x)
                    break

    def _view(self, value: Value, y: Any, source: Value, x: Any) -> None:
        view = self.views.get(source)
        if view is None:
            if not x.flags.c_contiguous:
                return
            view = self.views[source] = View(source, x.shape, 0, x.strides)
        offset = view.offset + address_of(y) - address_of(x)
        self.views[value] = View(view.root, y.shape, offset, y.strides)

    def root(self, value: Value) -> Value:
        """Return the value in whose memory one lies."""
        view = self.views.get(value)
        return value if view is None else view.root


@dataclass(frozen=True)
class Read:
    """The source of a value that gradients read as it is at the backward.

    ``result`` is its number among the ``held`` arrays of a call, ``node`` its number among the nodes of the results (-1
    if there is none to ask), ``view`` the part of that array which is the value.
    """

    result: int
    node: int = -1
    view: View | None = None

    def of(self, results: Any) -> Any:
        """Return the array as it was returned, given the held arrays."""
        array = results[self.result]
        return array if self.view is None else self.view(array)


@dataclass(frozen=True)
class Exposed:
    """Memory of functions' results that callers may change: that of ``root``.

    In it lie results of the call, by number, and values that gradients read as they are at the backward.
    """

    root: Value
    results: list[int]
    reads: list[Value]

    def is_shared(self, outputs: Sequence[Value]) -> bool:
        """Whether it must be one array, of which its values are views: not where a single value takes all of it."""
        several = len({*self.reads, *[outputs[i] for i in self.results]}) > 1
        return several and (bool(self.reads) or any(outputs[i] is self.root for i in self.results))


def exposed_memory(recording: Any, made: Collection[Value], reads: Iterable[Value]) -> list[Exposed]:
    """Return the memory that callers may change, of the values ``made`` by functions.

    Arguments that are returned as they are, results that lie in such, and repeated elements are not of it.
    """
    graph, memory = recording.graph, recording.aliases
    found: dict[Value, Exposed] = {}
    for i, v in enumerate(graph.outputs):
        root, view = memory.root(v), memory.views.get(v)
        if i in recording.apart and i not in recording.same and root in made and not (view and view.repeats):
            found.setdefault(root, Exposed(root, [], [])).results.append(i)
    for v in dict.fromkeys(reads):
        if isinstance(v.type, TensorType) and memory.root(v) in found:
            found[memory.root(v)].reads.append(v)
    return list(found.values())


class ForwardOutputs:
    """The arrays that a compiled forward returns: its results, then arrays shared by several of them, or by gradients.

    ``values`` are the outputs of its graph. ``views`` has, for outputs that are views of another one or that itself,
    the number of the other. ``read`` are the values that gradients read as they are at the backward, ``held`` the
    numbers of the outputs in whose memory those lie, and ``changing`` all values that callers may change.
    """

    def __init__(self, recording: Any, reads: Iterable[Value]) -> None:
        graph, memory = recording.graph, recording.aliases
        made = {v for n in graph.nodes for v in n.outputs}
        values = list(graph.outputs)
        self.views: dict[int, tuple[int, View]] = {}
        read: dict[Value, Read] = {}  # with the numbers of outputs
        exposed = exposed_memory(recording, made, reads)
        for part in exposed:
            if part.is_shared(graph.outputs):
                for i in part.results:
                    self.views[i] = len(values), memory.views[graph.outputs[i]]
                    values[i] = part.root
                for v in part.reads:
                    read[v] = Read(len(values), _number_of_node(recording, v), memory.views[v])
                values.append(part.root)
            elif part.reads:
                read[part.reads[0]] = Read(part.results[0], _number_of_node(recording, part.reads[0]))
        self.values = tuple(values)
        self.held = tuple(sorted({r.result for r in read.values()}))
        self.read = {v: replace(r, result=self.held.index(r.result)) for v, r in read.items()}
        roots = {part.root for part in exposed}
        self.changing = frozenset([v for v in made if memory.root(v) in roots])


@dataclass(frozen=True)
class Shown:
    """The result ``number`` of a call that is a view of the array of ``source``, an input or a param of the graph.

    ``steps`` are the nodes that make it of that array, each with the number of its output.
    """

    number: int
    source: Value
    steps: tuple[tuple[Node, int], ...]

    def __call__(self, array: Any) -> Any:
        """Return the view of ``array``, or a copy where its layout makes one of it in define-by-run, too."""
        for node, i in self.steps:
            array = node.op.call(node.attrs, array)[i]
        return array


def shown_in(recording: Any) -> list[Shown]:
    """Return the results that are views of arguments, or of arrays that are bound: their memory is not copied."""
    graph, memory, found = recording.graph, recording.aliases.sources, list[Shown]()
    sources, made = {*graph.inputs, *graph.params}, graph.producers()
    for number, value in enumerate(graph.outputs):
        steps: list[tuple[Node, int]] = []
        v = value
        while v in memory and v in made and len(made[v].inputs) == 1 and made[v].inputs[0] is memory[v]:
            steps.append((made[v], made[v].outputs.index(v)))
            v = memory[v]
        if steps and v in sources:
            found.append(Shown(number, v, tuple(reversed(steps))))
    return found


def handed_on(graph: Graph, memory: Aliases) -> Node | None:
    """Return the function of the user's by which a result is a view of memory that others see, too; else None.

    Those are callers, of their arguments and of other results: a replay gives them arrays that are apart.
    """
    found: dict[Value, list[Value | None]] = {v: [None] for v in (*graph.inputs, *graph.params)}
    for v in dict.fromkeys(graph.outputs):
        root, made_by = v, None
        while (source := memory.sources.get(root, memory.of_users.get(root))) is not None:
            made_by = root if root in memory.of_users else made_by
            root = source
        found.setdefault(root, []).append(made_by)
    makers = [v for own in found.values() if len(own) > 1 for v in own if v is not None]
    return graph.producers()[makers[0]] if makers else None


def _number_of_node(recording: Any, value: Value) -> int:
    """The number of the node of ``value`` among the nodes of a call; -1 if it has none."""
    i = next((i for i, v in enumerate(recording.graph.outputs) if v is value and i not in recording.same), -1)
    return sum(recording.differentiable[:i]) if i >= 0 and recording.differentiable[i] else -1


def through_views(recording: Any, backward: Backward) -> tuple[Backward, frozenset[Value]]:
    """Let a backward look at arguments and parameters through views wherever the forward did.

    Define-by-run retains views, and sees changes of their memory. Also returns the inputs and params of the graph with
    views among the values that the backward reads.
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
    """Return the nodes that compute ``value`` from ``sources``; None if one of them has an effect."""
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
