"""Fusion: regions of maps, reductions and matmul epilogues become single ``fused`` nodes."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

from kusari.ir import FUSED, Builder, Graph, Node, Value, structure
from kusari.ir.alignment import NotANest, align

from .canonical import canonical, on_own_values
from .order import arrange
from .regions import Regions
from .tidy import needed

SPLIT_ELEMENTS = 1 << 15  # more are reduced to one element in two steps, so that threads can share the work
PARALLEL_ROWS = 16        # that the first step leaves at least
CHEAP_CALLS = 3           # of a value that is computed again rather than stored for another kernel, at most


def split_reductions(graph: Graph) -> Graph:
    """Reduce a large tensor to one element in two steps: ``sum(x) = sum(sum(x, some axes))``.

    The result does not depend on the number of threads. The first step takes the axes that other reductions of tensors
    of that shape run over, so that it can share a kernel with them, or else the inner ones. A tensor with a single
    axis, or with fewer rows, stays as it is: its kernel shares the reduced elements among threads.
    """
    shared: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for node in graph.nodes:
        if node.op.name == "reduce" and node.output.tensor.size > 1:
            shared.setdefault(node.inputs[0].shape, []).append(node.attrs["axes"])
    nodes: list[Node] = []
    for node in graph.nodes:
        first = _first_axes(node, shared.get(node.inputs[0].shape, [])) if node.op.name == "reduce" else ()
        if not first:
            nodes.append(node)
            continue
        b = Builder(node.where)
        rows = b.reduce(node.attrs["fn"], node.inputs[0], first)
        nodes.extend(b.nodes)
        last = tuple(a for a in node.attrs["axes"] if a not in first)
        nodes.append(Node(node.op, (rows,), node.outputs, {**node.attrs, "axes": last}, node.where))
    return graph.with_nodes(nodes)


def _first_axes(node: Node, others: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The axes of the first step; empty when one step is enough."""
    shape = node.inputs[0].shape
    axes: tuple[int, ...] = node.attrs["axes"]
    if node.inputs[0].tensor.size < SPLIT_ELEMENTS or node.output.tensor.size != 1:
        return ()

    def is_fit(first: tuple[int, ...]) -> bool:
        rows = prod(shape[a] for a in axes if a not in first)
        return rows >= PARALLEL_ROWS and rows < node.inputs[0].tensor.size and set(first) < set(axes)
    inner = [axes[k:] for k in range(1, len(axes))]
    return next((first for first in [*others, *inner] if is_fit(first)), ())


def fuse(graph: Graph) -> Graph:
    """Join maps, reductions and epilogues into ``fused`` nodes; the same graph when there is nothing to join."""
    return _fused(graph, True)


def fuse_nests(graph: Graph) -> Graph:
    """Join maps and reductions only: products and convolutions stay nodes of their own, for libraries to compute."""
    return _fused(graph, False)


def _fused(graph: Graph, epilogues: bool) -> Graph:
    graph = split_reductions(graph)
    regions = Regions(graph, epilogues)
    partition = regions.grow()
    groups = dict.fromkeys(partition.group)
    bodies = {g: _initial_body(regions, partition.members[g]) for g in groups
              if not regions.free[partition.members[g][0]]}
    _duplicate(regions, bodies)
    return _assemble(graph, regions, bodies)


def _initial_body(regions: Regions, members: list[int]) -> list[int]:
    """Members with their free nodes; a node that stays alone takes only copies that save memory traffic."""
    body = regions.body(members)
    if len(members) > 1:
        return body
    if all(regions.nodes[i].op.name == "reshape" or i in members for i in body):
        return members
    outputs = list(regions.nodes[members[0]].outputs)
    with suppress(NotANest):
        align([regions.nodes[i] for i in body], outputs)
        return body
    return members


def _duplicate(regions: Regions, bodies: dict[int, list[int]]) -> None:
    """Compute a cheap value again in every region that reads it, where its operands are smaller than it is.

    Later regions come first, so that chains of cheap values follow.
    """
    for g in sorted(bodies, reverse=True):
        members = regions.partition.members[g]
        if not regions.nest[members[-1]] or any(regions.root[i] for i in members):
            continue
        tried: set[int] = set()
        while True:
            body = bodies[g]
            inside = set(body)
            entering = regions.entering(body)
            found = -1
            for v in entering:
                j = regions.made.get(v, -1)
                fresh = j >= 0 and j not in inside and j not in tried
                if fresh and _is_cheap(regions, j) and _smaller(regions, j, entering):
                    found = j
                    break
            if found < 0:
                break
            tried.add(found)
            wider = sorted({*body, *regions.body([found])})
            with suppress(NotANest):
                align([regions.nodes[i] for i in wider], regions.escaping(members))
                bodies[g] = wider


def _is_cheap(regions: Regions, j: int) -> bool:
    node = regions.nodes[j]
    return (node.op.name == "map" and regions.nest[j] and not regions.costly[j] and regions.calls[j] <= CHEAP_CALLS
            and not any(v in regions.written for v in node.inputs))


def _smaller(regions: Regions, j: int, entering: Sequence[Value]) -> bool:
    node = regions.nodes[j]
    known = set(entering)
    extra = sum(v.tensor.nbytes for v in regions.entering(regions.body([j])) if v not in known)
    return extra < node.output.tensor.nbytes


def _assemble(graph: Graph, regions: Regions, bodies: dict[int, list[int]]) -> Graph:
    """Write the nodes of the result in an order that respects data and effects."""
    if all(len(body) == 1 for body in bodies.values()):
        return graph
    nodes = graph.nodes
    home = {i: g for g in bodies for i in regions.partition.members[g]}
    entering = {g: regions.entering(body) for g, body in bodies.items()}
    wanted = dict.fromkeys(graph.outputs)
    live: dict[int, None] = {}  # the first node of a region or a free node that stays, found from the end
    stack = [home[i] for i, n in enumerate(nodes) if n.has_effect]
    stack.extend(home.get(regions.made[v], regions.made[v]) for v in graph.outputs if v in regions.made)
    while stack:
        g = stack.pop()
        if g in live:
            continue
        live[g] = None
        for v in entering.get(g, nodes[g].inputs):
            wanted[v] = None
            if v in regions.made:
                stack.append(home.get(regions.made[v], regions.made[v]))
    order = sorted(live)
    # Steps of a loop share their bodies, which are made and analysed once.
    forms: dict[Any, Graph] = {}
    known: dict[Any, tuple[Graph, tuple[int, ...]]] = {}
    made = [[_node(regions, bodies[g], regions.partition.members[g], wanted, forms, known) if g in bodies else nodes[g]]
            for g in order]
    origins = [regions.partition.members[g] if g in bodies else [g] for g in order]
    return arrange(graph, made, origins)


def _node(regions: Regions, body: list[int], members: list[int], wanted: dict[Value, None],
          bodies: dict[Any, Graph], known: dict[Any, tuple[Graph, tuple[int, ...]]]) -> Node:
    """The node of one region: its body without values that have no reader any more.

    ``known`` are bodies, with the values that were bound to their inputs.
    """
    nodes = regions.nodes
    if len(body) == 1:
        return nodes[body[0]]
    outputs = [v for i in members for v in nodes[i].outputs if v in wanted]
    kept = [body[k] for k in needed([nodes[i] for i in body], outputs)]
    entering, inputs, body_nodes = _bound([nodes[i] for i in kept])
    form = regions.form(kept, outputs)
    if form not in known:
        made = canonical(Graph("body", inputs, (), (), body_nodes, tuple(outputs)))
        place = {v: k for k, v in enumerate(inputs)}
        fresh = on_own_values(made)
        known[form] = bodies.setdefault(structure(fresh), fresh), tuple([place[v] for v in made.inputs])
    inner, order = known[form]
    return Node(FUSED, tuple([entering[k] for k in order]), tuple(outputs), {"body": inner}, nodes[members[-1]].where)


def _bound(nodes: Sequence[Node]) -> tuple[list[Value], tuple[Value, ...], tuple[Node, ...]]:
    """The values that enter a body, its inputs, and its nodes on these.

    Every slice gets an input of its own, so that each input is one operand with one set of strides.
    """
    made = {v for n in nodes for v in n.outputs}
    own: dict[tuple[Value, int], Value] = {}  # inputs, by the value that enters and the number of its slice, if any
    result: list[Node] = []
    for k, n in enumerate(nodes):
        if n.op.name == "slice":
            x = n.inputs[0]
            own[x, k + 1] = Value(x.type, x.hint)
            n = n.on({x: own[x, k + 1]})
        else:
            own.update(((v, 0), v) for v in n.inputs if v not in made)
        result.append(n)
    return [v for v, _ in own], tuple(own.values()), tuple(result)
