"""Means of gradients over several processes as part of a step, in buckets.

An optimizer whose gradients are such means has a ``_reducer``. ``reducer.part_of_step(parameters)`` returns an object
that says which gradients form a bucket, and starts and finishes the reduction of each. In the graph these are nodes of
Python: a bucket is started behind the node that makes its last gradient, and finished behind the whole backward. Such
nodes keep their order, which is the same in every process whatever its graph looks like.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kusari.ir import Node, Op, Trait, Value, tensor_type

__all__ = ["reduced"]


def _start(attrs: Any, *grads: Any) -> tuple[Any, ...]:
    """Start to reduce the gradients of a bucket."""
    attrs["reduction"].start(attrs["bucket"], grads)
    return ()


def _finish(attrs: Any) -> tuple[Any, ...]:
    """Wait for a bucket; returns the means."""
    return tuple(attrs["reduction"].finish(attrs["bucket"]))


START = Op("start_reduction", _start, Trait.OPAQUE)
FINISH = Op("finish_reduction", _finish, Trait.OPAQUE)


def reduced(reduction: Any, params: Sequence[Any], grads: dict[int, Value], nodes: Sequence[Node],
            ) -> tuple[list[Node], dict[int, Value]]:
    """Return the nodes of a forward and a backward with a reduction's among them, and the means.

    ``grads`` maps ``id(parameter)`` to gradients; ``params`` are the parameters of the reduction, in its order.
    """
    made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    behind: dict[int, list[Node]] = {}
    last = -1
    finishing: list[Node] = []
    means = dict(grads)
    for k, members in enumerate(reduction.buckets):
        own = [grads[id(params[i])] for i in members]
        last = max([last, *(made.get(v, -1) for v in own)])
        attrs = {"reduction": reduction, "bucket": k}
        behind.setdefault(last, []).append(Node(START, tuple(own), (), attrs))
        found = [Value(tensor_type(v.tensor.dtype, v.shape), "mean") for v in own]
        finishing.append(Node(FINISH, (), tuple(found), attrs))
        means.update((id(params[i]), v) for i, v in zip(members, found, strict=True))
    result = [*behind.get(-1, ())]
    for i, node in enumerate(nodes):
        result += [node, *behind.get(i, ())]
    return result + finishing, means
