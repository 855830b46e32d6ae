"""Joining: work repeated for every step of an unrolled loop is done once for all steps, where steps do not wait.

Products with one right factor become one product over the rows of all (``join_rows``), sums of products of few terms
one product of many terms (``join_terms``). Their operands are computed one behind the other in one buffer where memory
planning can arrange it, and slices of a joined result lie in it, so that nothing is copied.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kusari.ir import Builder, Graph, Node, TensorType, Value
from kusari.ir.costs import PAGE_BYTES

from .analysis import Analysis, Terms, in_place_of, rewrite_sums, with_runs
from .order import Partition, arrange, dependencies

JOINED_BYTES = 64 << 20  # of a joined operand or result; then another one begins
ENOUGH_ROWS = 256        # (or terms): a product with so many is fast enough by itself
COPIED_ELEMENTS = 8192   # in the time that one more instruction takes


def _even(items: Sequence[int], each: int) -> list[Sequence[int]]:
    """``items`` of ``each`` bytes in as few runs of about equal length as the limit allows."""
    most = max(2, JOINED_BYTES // max(each, 1))
    count = -(-len(items) // most)
    size = -(-len(items) // count)
    return [items[i:i + size] for i in range(0, len(items), size)]


# Terms

def _term_key(node: Node) -> Any:
    """A key that is equal for terms that may be joined; None for other nodes."""
    if node.op.name == "matmul" and node.attrs["transa"] and not node.attrs["transb"]:
        a, b = node.inputs
        if len(a.shape) == len(b.shape) == 2 and a.tensor.dtype == b.tensor.dtype and 0 < a.shape[0] <= ENOUGH_ROWS:
            (k, m), n = a.shape, b.shape[1]
            # Otherwise copying the operands may take longer than adding the products.
            return ("matmul", m, n, a.tensor.dtype) if k * (m + n) <= 2 * m * n + COPIED_ELEMENTS else None
    if node.op.name == "reduce" and node.attrs["fn"] == "sum" and node.attrs["axes"] == (0,):
        x = node.inputs[0]
        return ("reduce", x.shape[1:], x.tensor.dtype) if len(x.shape) > 1 and 0 < x.shape[0] <= ENOUGH_ROWS else None
    if node.op.name == "scatter_add":
        indices, updates = node.inputs
        if indices.shape and 0 < indices.shape[0]:
            return "scatter_add", node.attrs["shape"], indices.shape[1:], indices.tensor.dtype, updates.tensor.dtype
    return None


def join_terms(graph: Graph) -> Graph:
    """``aᵀb + cᵀd = [a; c]ᵀ[b; d]``, and so for ``scatter_add``: gradients of values that every step of a loop uses."""
    return rewrite_sums(graph, _joined_terms)


def _joined_terms(analysis: Analysis, b: Builder, leaves: Terms) -> tuple[list[Value], list[int]] | None:
    """The terms of the sum, joined, and the nodes that they replace; None when there is nothing to join."""
    nodes = analysis.nodes
    groups: dict[Any, list[int]] = {}
    rest: list[Value] = []
    shown: dict[int, list[int]] = {}  # the nodes of a term: its product and views of it
    for v, j in leaves:
        own: list[int] = []
        while j >= 0 and len(nodes[j].outputs) == 1 and analysis.only_reader(nodes[j].output) >= 0:
            own.append(j)
            if nodes[j].op.name != "reshape":
                break
            j = analysis.made.get(nodes[j].inputs[0], -1)
        key = _term_key(nodes[j]) if own and own[-1] == j else None
        if key is None or any(u in analysis.written for u in nodes[j].inputs) or analysis.partner(nodes[j]) is None:
            rest.append(v)
        else:
            groups.setdefault(key, []).append(j)
            shown[j] = own
    if all(len(g) < 2 for g in groups.values()):
        return None
    used: list[int] = []
    terms: list[Value] = []
    for group in groups.values():
        # Earlier joined operands decide the order of all: a sum alone does not pay for joining its own.
        group.sort(key=lambda j: analysis.place.get(analysis.partner(nodes[j]) or nodes[j].inputs[0], 0))
        for run in _even(group, max(v.tensor.nbytes for j in group for v in nodes[j].inputs)):
            if len(run) == 1:
                rest.append(nodes[shown[run[0]][0]].output)
                continue
            node = nodes[run[0]]
            joined = [analysis.concat(b, [nodes[j].inputs[k] for j in run]) for k in range(len(node.inputs))]
            (term,) = b.emit(node.op, *joined, **node.attrs)
            terms.append(b.reshape(term, leaves[0][0].shape))
            used += [i for j in run for i in shown[j]]
    return [*rest, *terms], used


# Rows

def _row_key(analysis: Analysis, i: int) -> Any:
    """A key that is equal for products (or gathers) that may be joined; None for other nodes."""
    node = analysis.nodes[i]
    if node.op.name == "matmul" and not node.attrs["transa"]:
        a, b = node.inputs
        if len(a.shape) != 2 or len(b.shape) != 2 or not 0 < a.shape[0] <= ENOUGH_ROWS or a in analysis.written:
            return None
        if a.tensor.size > 2 * b.tensor.size + COPIED_ELEMENTS:
            return None
        return "matmul", b, analysis.versions.before(i, b), node.attrs["transb"], a.tensor.dtype
    if node.op.name == "take":
        table, indices = node.inputs
        small = len(indices.shape) == 1 and 0 < indices.shape[0] <= ENOUGH_ROWS and indices not in analysis.written
        return ("take", table, analysis.versions.before(i, table), indices.type) if small else None
    return None


def join_rows(graph: Graph) -> Graph:
    """``aB, cB = [a; c]B`` for products that do not wait for each other, with the maps that follow all of them.

    The same for gathers from one table.
    """
    analysis = Analysis(graph)
    groups: dict[Any, list[int]] = {}
    for i in range(len(graph.nodes)):
        key = _row_key(analysis, i)
        if key is not None:
            groups.setdefault(key, []).append(i)
    groups = {key: own for key, own in groups.items() if len(own) > 1}
    if not groups:
        return graph
    partition = Partition(dependencies(graph))
    order = _concat_order(graph)
    bundles: dict[int, list[Node]] = {}
    for key, own in groups.items():
        k = 1 if key[0] == "take" else 0
        own.sort(key=lambda i: order.get(graph.nodes[i].inputs[k], i))
        each = max(v.tensor.nbytes for i in own for v in (graph.nodes[i].inputs[k], graph.nodes[i].output))
        for run in [run for some in _even(own, each) for run in partition.join_runs(some) if len(run) > 1]:
            nodes = _joined_rows(analysis, partition, run, k)
            bundles[partition.group[run[0]]] = nodes
    return partition.arranged(graph, bundles) if bundles else graph


def _concat_order(graph: Graph) -> Mapping[Value, int]:
    """The position of every value in the longest joined operand that it is a part of."""
    order: dict[Value, int] = {}
    concats = [n for n in graph.nodes if n.op.name == "concat" and n.attrs["axis"] == 0]
    for node in sorted(concats, key=lambda n: -len(n.inputs)):
        for v in node.inputs:
            order.setdefault(v, len(order))
    return order


def _joined_rows(analysis: Analysis, partition: Partition, run: list[int], k: int) -> list[Node]:
    """The joined nodes of a run, whose group the maps behind them join."""
    nodes = analysis.nodes
    first = nodes[run[0]]
    b = Builder(first.where)
    inputs = list(first.inputs)
    inputs[k] = analysis.concat(b, [nodes[i].inputs[k] for i in run])
    (whole,) = b.emit(first.op, *inputs, **first.attrs)
    shown = [nodes[i].output for i in run]
    while (stage := _next_stage(analysis, partition, run[0], shown, min(run))) is not None:
        reader = nodes[stage[0]]
        whole = b.map(reader.attrs["expr"], *(whole if v is shown[0] else v for v in reader.inputs))
        shown = [nodes[i].output for i in stage]
    at = 0
    for v in shown:
        rows = v.shape[0]
        b.part(whole, at, at + rows)
        b.nodes[-1] = replace(b.nodes[-1], outputs=(v,))
        analysis.parts[v] = whole, at, at + rows
        at += rows
    return b.nodes


def _next_stage(analysis: Analysis, partition: Partition, group: int, shown: Sequence[Value],
                start: int) -> list[int] | None:
    """The maps that apply to all slices of a joined result, each to one, with operands that all slices share."""
    nodes = analysis.nodes
    readers = [analysis.only_reader(v) for v in shown]
    if -1 in readers or len(set(readers)) < len(readers):
        return None
    form: Any = None  # the expression, and the other operands
    for i, v in zip(readers, shown, strict=True):
        node = nodes[i]
        if node.op.name != "map" or node.output.shape != v.shape or not all(
                u is v or _is_shared(analysis, u, v, start)
                and analysis.versions.before(i, u) == analysis.versions.before(start, u) for u in node.inputs):
            return None
        own = node.attrs["expr"], [None if u is v else u for u in node.inputs]
        if form not in (None, own):
            return None
        form = own
    g = partition.group[group]
    if any(len(partition.members[partition.group[i]]) > 1 or not partition.can_join(g, partition.group[i])
           for i in readers):
        return None
    # Besides the group, all wait for the same nodes, so that none keeps another from joining.
    partition.join(g, *(partition.group[i] for i in readers))
    return readers


def _is_shared(analysis: Analysis, u: Value, v: Value, start: int) -> bool:
    """Whether all slices see the same ``u``, which is computed before the first of them."""
    lead = len(v.shape) - len(u.shape)
    same = isinstance(u.type, TensorType) and (lead > 0 or lead == 0 and u.shape[0] == 1)
    return same and analysis.made.get(u, -1) < start


# Operands

def share_concats(graph: Graph) -> Graph:
    """A ``concat`` of neighbours in a larger one becomes a slice of it; so does one of slices that are neighbours."""
    graph = _concats_of_parts(graph)
    analysis = Analysis(graph)
    found = {i: n for i, n in enumerate(graph.nodes)
             if n.op.name == "concat" and n.attrs["axis"] == 0 and analysis.written.isdisjoint(n.inputs)}
    places: dict[Value, list[tuple[int, int]]] = {}
    for i, n in found.items():
        for k, v in enumerate(n.inputs):
            places.setdefault(v, []).append((i, k))
    instead: dict[int, list[Node]] = {}
    before = dependencies(graph)
    for i, n in found.items():
        best: tuple[int, int] | None = None
        for j, k in places[n.inputs[0]]:
            inputs, so_far = found[j].inputs, found[best[0]] if best else n
            fits = len(inputs) > len(so_far.inputs) and inputs[k:k + len(n.inputs)] == n.inputs
            if fits and not _waits(before, [analysis.made[v] for v in inputs if v in analysis.made], i):
                best = j, sum(v.shape[0] for v in inputs[:k])
        if best is None:
            continue
        b = Builder(n.where)
        b.part(found[best[0]].output, best[1], best[1] + n.output.shape[0])
        instead[i] = in_place_of(n, b.nodes)
        before[i].append(best[0])  # which may stand behind it
    if not instead:
        return graph
    return arrange(graph, [instead.get(i, [n]) for i, n in enumerate(graph.nodes)], [[i] for i in range(len(before))])


def _waits(before: Sequence[Sequence[int]], nodes: Iterable[int], goal: int) -> bool:
    """Whether one of ``nodes`` is ``goal``, or has to wait for it."""
    seen: set[int] = set()
    stack = list(nodes)
    while stack:
        i = stack.pop()
        if i == goal:
            return True
        if i not in seen:
            seen.add(i)
            stack += before[i]
    return False


def _concats_of_parts(graph: Graph) -> Graph:
    analysis = Analysis(graph)
    instead: dict[int, list[Node]] = {}
    for i, n in enumerate(graph.nodes):
        if n.op.name == "concat" and n.attrs["axis"] == 0 and all(v in analysis.parts for v in n.inputs):
            b = Builder(n.where)
            whole = analysis.concat(b, n.inputs)
            if not b.nodes:
                b.part(whole, 0, whole.shape[0])
            if b.nodes[-1].op.name == "part":
                instead[i] = in_place_of(n, b.nodes[-1:])
    return with_runs(graph, instead)


LEAST_PRODUCTS = 2  # for which it pays to transpose their common factor
NARROW_ROWS = 5, 28   # of products that take the matrix straight: fewer read each element once, more pack it each time
BATCH_ROWS = 29, 128  # of products that take it transposed: rows are packed, and the matrix passes by as it lies
PACKED_BYTES = 1 << 19        # of such rows
LARGE_MATRIX_BYTES = 1 << 23  # larger ones come from memory, and are best read from start to end
CONFLICT_LINES = 512          # of lines whole pages apart a cache has room for so many


def share_transposes(graph: Graph) -> Graph:
    """``aBᵀ, cBᵀ = aC, cC`` with ``C = Bᵀ`` computed once, for products of few rows; of more rows the other way."""
    analysis = Analysis(graph)
    groups: dict[Any, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if node.op.name == "matmul" and not node.attrs["transa"]:
            a, w = node.inputs
            transb = node.attrs["transb"]
            if len(a.shape) == len(w.shape) == 2 and min(w.shape) >= 16 and _prefers_other_form(a, w, transb):
                groups.setdefault((w, analysis.versions.before(i, w), transb), []).append(i)
    instead: dict[int, list[Node]] = {}
    for (w, _, transb), own in groups.items():
        if len(own) < LEAST_PRODUCTS:
            continue
        b = Builder(graph.nodes[own[0]].where)
        turned = b.transpose(w, (1, 0))
        for i in own:
            node = graph.nodes[i]
            attrs = {**node.attrs, "transb": not transb}
            instead[i] = [replace(node, inputs=(node.inputs[0], turned), attrs=attrs)]
        instead[own[0]].insert(0, b.nodes[0])
    return with_runs(graph, instead)


def _prefers_other_form(a: Value, w: Value, transb: bool) -> bool:
    """Whether the rows ``a`` are multiplied faster by the other form of a matrix.

    On one core with AVX-512, GFLOP/s straight and transposed: 24 rows of 200 by 800: 234, 205; 32 rows: 194, 231; 32
    rows of 512 by 2048: 138, 223; 32 rows of 2048 by 512: 163, 238. Transposed and straight: 20 rows of 1500 by 6000,
    which is 36 MB: 212, 86; of 1024 by 1024: 193, 123.
    """
    rows, k = a.shape
    if transb:
        line = w.shape[0] * w.tensor.dtype.itemsize
        far = w.tensor.nbytes > LARGE_MATRIX_BYTES or (line % PAGE_BYTES == 0 and k > CONFLICT_LINES)
        return NARROW_ROWS[0] <= rows <= NARROW_ROWS[1] and not far
    packed = k * (rows + 16) * a.tensor.dtype.itemsize
    return BATCH_ROWS[0] <= rows <= BATCH_ROWS[1] and 4 * rows <= k and packed <= PACKED_BYTES
