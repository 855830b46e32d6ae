"""Merging kernels that differ little: the first and the last step of a loop run the kernels of those between."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from kusari.ir import Arg, Call, Expr, Graph, Node, Value, fold, structure, substitute, used_args
from kusari.ir.product import ROOTS

from .canonical import canonical

MOST_OUTPUTS = 8        # of bodies that are compared
LITTLE_BYTES = 1 << 18  # written without a reader, or read as zeros, to save a kernel


def share_bodies(graph: Graph) -> Graph:
    """A fused node takes the body of at least as many similar nodes of which its own body is a part.

    A part leaves out an output, which then has no reader, or a term of a sum, which is then a constant zero.
    """
    bodies: list[Graph] = [n.attrs["body"] for n in graph.nodes if n.op.name == "fused"]
    by_form = {structure(body): body for body in bodies}
    count = Counter([by_form[structure(body)] for body in bodies])
    zeros = {v.type: v for v, a in graph.consts if v.tensor.size > 1 and not a.any()}
    instead: dict[Graph, tuple[Graph, Graph, Value | None]] = {}
    for whole in count:
        if len(whole.outputs) <= MOST_OUTPUTS and not any(n.op.name in ROOTS for n in whole.nodes):
            for part, left in _parts(whole):
                if left is not None and left.type not in zeros:
                    continue
                small = by_form.get(structure(part))
                if small is not None and small is not whole and count[small] <= count[whole] and small not in instead:
                    instead[small] = whole, part, left
    # Only one step: a body that replaces others stays.
    kept = {whole for whole, _, _ in instead.values()}
    nodes = list(graph.nodes)
    for i, n in enumerate(nodes):
        small = by_form[structure(n.attrs["body"])] if n.op.name == "fused" else None
        if small is not None and small in instead and small not in kept:
            whole, part, left = instead[small]
            known = dict(zip(part.inputs, n.inputs, strict=True))
            if left is not None:
                known[left] = zeros[left.type]
            made = dict(zip(part.outputs, n.outputs, strict=True))
            outputs = tuple(made.get(v) or Value(v.type, v.hint) for v in whole.outputs)
            inputs = tuple([known[v] for v in whole.inputs])
            nodes[i] = replace(n, inputs=inputs, outputs=outputs, attrs={"body": whole})
    return graph.with_nodes(nodes) if any(a is not b for a, b in zip(nodes, graph.nodes, strict=True)) else graph


def _parts(whole: Graph) -> Iterator[tuple[Graph, Value | None]]:
    """Bodies on the values of ``whole``: without an output, or without an input that is only added to others."""
    for left in whole.outputs if len(whole.outputs) > 1 else ():
        outputs = tuple(v for v in whole.outputs if v is not left)
        part = canonical(Graph(whole.name, whole.inputs, (), (), whole.nodes, outputs))
        if len(part.inputs) == len(whole.inputs) and left.tensor.nbytes <= LITTLE_BYTES:
            yield part, None
    for v in whole.inputs:
        part = _without(whole, v) if v.tensor.nbytes <= LITTLE_BYTES else None
        if part is not None:
            yield part, v


def _without(whole: Graph, term: Value) -> Graph | None:
    """``whole`` where ``term`` is zero, if it is only ever added to others."""
    same: dict[Value, Value] = {}
    nodes: list[Node] = []
    found = False
    for n in whole.nodes:
        if term not in n.inputs:
            nodes.append(n)
            continue
        at = n.inputs.index(term)
        rest = (*n.inputs[:at], *n.inputs[at + 1:])
        expr = _less(n.attrs["expr"], at) if n.op.name == "map" and term.type == n.output.type else None
        if expr is None or term in rest:
            return None
        found = True
        expr = substitute(expr, [Arg(i - (i > at)) for i in range(len(n.inputs))])
        if not isinstance(expr, Arg):
            nodes.append(replace(n, inputs=rest, attrs={**n.attrs, "expr": expr}))
        elif n.output in whole.outputs or rest[expr.index].type != n.output.type:
            return None
        else:
            same[n.output] = rest[expr.index]
    if not found:
        return None
    part = canonical(Graph(whole.name, whole.inputs, (), (), tuple([n.on(same) for n in nodes]), whole.outputs))
    return part if len(part.inputs) == len(whole.inputs) - 1 else None


def _less(expr: Expr, at: int) -> Expr | None:
    """``expr`` where operand ``at``, which is a term of sums and nothing else, is zero."""
    term = Arg(at)
    left: Expr = fold(expr, lambda e: e, lambda fn, xs: (
        xs[1 - xs.index(term)] if fn == "add" and term in xs else Call(fn, tuple(xs))))
    return None if left == expr or at in used_args(left) else left
