"""Stacking: slices that an unrolled loop takes from an axis, or puts there, become neighbours in memory, step by step.

Without it each ``x[:, t]`` is a copy by a kernel that knows its ``t``, and the gradient of each is an array of the size
of ``x``, nearly all zeros, so that a loop's time would grow with the square of its length.
"""
from __future__ import annotations

from collections.abc import Sequence

from kusari.ir import Builder, Graph, Node, Value

from .algebra import simplify_algebra
from .analysis import Analysis, Terms, in_place_of, rewrite_sums, total, with_runs
from .order import written_values

FEWEST_STEPS = 8  # of an axis that is brought to the front: fewer, as gates of an LSTM, are read where they lie


def _cut(node: Node, shape: Sequence[int]) -> int:
    """The only axis of ``shape`` of which a ``slice`` (or ``pad_slice``) takes a part, without gaps; else -1."""
    attrs = node.attrs
    places = enumerate(zip(attrs["starts"], attrs["stops"], attrs["steps"], shape, strict=True))
    cut = [i for i, (start, stop, step, n) in places if (start, stop, step) != (0, n, 1)]
    return cut[0] if len(cut) == 1 and attrs["steps"][cut[0]] == 1 else -1


# Sums

def stack_pads(graph: Graph) -> Graph:
    """``pad(a) + pad(b) + … = concat(a, b, …)`` where zeros meet values: gradients of the slices of one value."""
    stacked = rewrite_sums(graph, _stacked)
    return graph if stacked is graph else simplify_algebra(stacked)


def _stacked(analysis: Analysis, b: Builder, leaves: Terms) -> tuple[list[Value], list[int]] | None:
    """Fewer terms of the same sum, and the nodes that they replace; None if nothing changes."""
    nodes = analysis.nodes
    terms: list[Value] = []
    found: dict[int, dict[tuple[int, int], list[int]]] = {}  # axis: (start, stop): makers, in the order of the sum
    for v, j in leaves:
        pad = j >= 0 and nodes[j].op.name == "pad_slice" and nodes[j].inputs[0] not in analysis.written
        axis = _cut(nodes[j], v.shape) if pad else -1
        if axis < 0:
            terms.append(v)
        else:
            attrs = nodes[j].attrs
            found.setdefault(axis, {}).setdefault((attrs["starts"][axis], attrs["stops"][axis]), []).append(j)
    used: list[int] = []
    for axis, places in found.items():
        own = [j for makers in places.values() for j in makers]
        order = sorted(places)
        if len(own) < 2 or any(a[1] > z[0] for a, z in zip(order, order[1:], strict=False)):
            terms += [nodes[j].output for j in own]
            continue
        used += own
        runs: list[list[tuple[int, int]]] = []
        for place in order:
            if runs and runs[-1][-1][1] == place[0]:
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            pieces = [total(b, [nodes[j].inputs[0] for j in places[place]]) for place in run]
            y = b.concat(pieces, axis) if len(run) > 1 else pieces[0]
            shape = leaves[0][0].shape
            starts, stops = [0] * len(shape), list(shape)
            starts[axis], stops[axis] = run[0][0], run[-1][1]
            whole = (starts[axis], stops[axis]) == (0, shape[axis])
            terms.append(y if whole else b.one("pad_slice", y, shape=shape, starts=tuple(starts), stops=tuple(stops),
                                               steps=(1,) * len(shape)))
    return (terms, used) if len(terms) < len(leaves) else None


# Axes

def lead_axes(graph: Graph) -> Graph:
    """``x[:, t] = xᵀ[t]`` and ``stack((a, b, …), 1) = stack((a, b, …), 0)ᵀ``: the axis of steps comes first.

    There a step is a ``part``, a view, and stacked values may be computed directly in the result.
    """
    written = written_values(graph)
    slices: dict[tuple[Value, int], list[int]] = {}
    instead: dict[int, list[Node]] = {}
    for i, node in enumerate(graph.nodes):
        if node.op.name == "slice" and node.inputs[0] not in written:
            axis = _cut(node, node.inputs[0].shape)
            if axis > 0 and node.output.shape[axis] == 1:
                slices.setdefault((node.inputs[0], axis), []).append(i)
        elif node.op.name == "concat" and node.attrs["axis"] > 0 and len(node.inputs) >= FEWEST_STEPS:
            axis = int(node.attrs["axis"])
            if all(v.shape[axis] == 1 for v in node.inputs):
                instead[i] = _stack(node, axis)
    for (x, axis), own in slices.items():
        starts = {graph.nodes[i].attrs["starts"][axis] for i in own}
        if len(starts) < FEWEST_STEPS or 2 * len(starts) < x.shape[axis]:
            continue
        b = Builder(graph.nodes[own[0]].where)
        front = b.transpose(x, (axis, *(a for a in range(len(x.shape)) if a != axis)))
        made = b.nodes
        for i in own:
            instead[i] = [*made, *_step(graph.nodes[i], axis, front)]
            made = []
    return simplify_algebra(with_runs(graph, instead)) if instead else graph


def _stack(node: Node, axis: int) -> list[Node]:
    b = Builder(node.where)
    shape = node.output.shape
    lead, rest = shape[:axis], shape[axis + 1:]
    rows = b.concat([b.reshape(v, (1, *lead, *rest)) for v in node.inputs], 0)
    b.transpose(rows, (*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
    return in_place_of(node, b.nodes)


def _step(node: Node, axis: int, front: Value) -> list[Node]:
    b = Builder(node.where)
    start = node.attrs["starts"][axis]
    rank = len(front.shape)
    row = b.slice(front, (start, *(0,) * (rank - 1)), (start + 1, *front.shape[1:]), (1,) * rank)
    b.reshape(row, node.output.shape)  # none is needed where all other axes have extent 1
    return in_place_of(node, b.nodes)
