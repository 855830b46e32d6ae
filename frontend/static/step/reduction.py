"""Means of gradients over several processes as part of a step, in buckets.

An optimizer whose gradients are such means has a ``_reducer``. ``reducer.part_of_step(parameters)`` returns an object
that says which gradients form a bucket, and starts and finishes the reduction of each. In the graph these are nodes of
Python: a bucket is started behind the node that makes its last gradient, and finished once ``reduction.ahead`` others
have been started behind it, at the latest behind the whole backward; the update of its parameters follows. Such nodes
keep their order, which is the same in every process whatever its graph looks like. Python of the user's, after which a
call may be taken back and be run again, comes before all of them.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kusari.ir import Instruction, Node, Op, Trait, Value, tensor_type
from kusari.ir.costs import node_picoseconds

__all__ = ["FINISH", "START", "reduced", "under_way"]


def _start(attrs: Any, *grads: Any) -> tuple[Any, ...]:
    """Start to reduce the gradients of a bucket."""
    attrs["reduction"].start(attrs["bucket"], grads)
    return ()


def _finish(attrs: Any, *outs: Any) -> tuple[Any, ...]:
    """Wait for a bucket; returns the means, in the arrays ``outs`` where these are there."""
    return tuple(attrs["reduction"].finish(attrs["bucket"], outs))


START = Op("start_reduction", _start, Trait.OPAQUE | Trait.CONFINED)
FINISH = Op("finish_reduction", _finish, Trait.OPAQUE | Trait.CONFINED | Trait.FILLS)


def reduced(reduction: Any, params: Sequence[Any], grads: dict[int, Value], nodes: Sequence[Node],
            ) -> tuple[list[Node], dict[int, Value]]:
    """Return the nodes of a forward and a backward with a reduction's among them, and the means.

    ``grads`` maps ``id(parameter)`` to gradients; ``params`` are the parameters of the reduction, in its order.
    """
    made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    behind: dict[int, list[Node]] = {}
    last = max([i for i, node in enumerate(nodes) if node.op.is_opaque], default=-1)
    finishing: list[Node] = []
    means = dict(grads)
    for k, members in enumerate(reduction.buckets):
        own = [grads[id(params[i])] for i in members]
        last = max([last, *(made.get(v, -1) for v in own)])
        attrs = {"reduction": reduction, "bucket": k}
        there = behind.setdefault(last, [])
        there.append(Node(START, tuple(own), (), attrs))
        if k >= reduction.ahead:
            there.append(finishing.pop(0))
        found = [Value(tensor_type(v.tensor.dtype, v.shape), "mean") for v in own]
        finishing.append(Node(FINISH, (), tuple(found), attrs))
        means.update((id(params[i]), v) for i, v in zip(members, found, strict=True))
    result = [*behind.get(-1, ())]
    for i, node in enumerate(nodes):
        result += [node, *behind.get(i, ())]
    return result + finishing, means


def under_way(instructions: Sequence[Instruction]) -> list[str]:
    """Return a line on each bucket of a schedule: its bytes, and the kernels that run while it is added up.

    Their share is that of the schedule's time by the table of costs.
    """
    times = [0 if x.kernel is None else node_picoseconds(x.node) for x in instructions]
    begun: dict[int, int] = {}
    lines: list[str] = []
    for i, x in enumerate(instructions):
        if x.node.op is START:
            begun[x.node.attrs["bucket"]] = i
        elif x.node.op is FINISH:
            k = x.node.attrs["bucket"]
            between = range(begun[k], i)
            count = sum(instructions[j].kernel is not None for j in between)
            share = sum(times[j] for j in between) / max(sum(times), 1)
            nbytes = sum(v.tensor.nbytes for v in x.node.outputs)
            lines.append(f"bucket {k} of gradients, {nbytes} bytes: under way during {count} "
                         f"kernel{'s' * (count != 1)}, {share:.0%} of the step's time as counted")
    return lines
