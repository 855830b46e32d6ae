"""Means of gradients over several processes as part of a step, in buckets.

An optimizer whose gradients are such means has a ``_reducer``. ``reducer.part_of_step(parameters)`` returns an object
that says which gradients form a bucket, and starts and finishes the reduction of each. In the graph these are nodes of
Python: a bucket is started behind the node that makes its last gradient, and finished once ``reduction.ahead`` others
have been started behind it, at the latest behind the whole backward; the update of its parameters follows. Such nodes
keep their order, which is the same in every process whatever its graph looks like. Python of the user's, after which a
call may be taken back and be run again, comes before all of them.

Where processes read each other's memory, gradients are computed in it: they are states of the graph, and so are the
other process's, which have changed once a bucket has been waited for. The update reads both, and no mean is written
anywhere; parameters show it when it is asked for.
"""
from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from kusari.ir import Arg, Builder, Instruction, Node, Op, Symbol, Trait, Value, tensor_type
from kusari.ir.costs import node_picoseconds
from kusari.ir.symbol import expr_of

from ..arrays.bindings import ArrayBinding

__all__ = ["ENDS", "START", "StepReduction", "Mean", "means_alike", "under_way"]


def _begin(attrs: Any) -> tuple[Any, ...]:
    """Begin a reduction, once all processes have read the one before."""
    attrs["reduction"].begin()
    return ()


def _start(attrs: Any, *grads: Any) -> tuple[Any, ...]:
    """Start to reduce the gradients of a bucket."""
    attrs["reduction"].start(attrs["bucket"], () if attrs["in_place"] else grads)
    return ()


def _finish(attrs: Any, *outs: Any) -> tuple[Any, ...]:
    """Wait for a bucket; returns the means, in the arrays ``outs`` where these are there."""
    return tuple(attrs["reduction"].finish(attrs["bucket"], outs))


def _wait(attrs: Any, *others: Any) -> tuple[Any, ...]:
    """Wait for the gradients of other processes, which are in the memory that this one reads."""
    reduction, k = attrs["reduction"], attrs["bucket"]
    reduction.wait(k)
    if k == len(reduction.buckets) - 1:
        reduction.leave_open()
    return ()


BEGIN = Op("begin_reduction", _begin, Trait.OPAQUE | Trait.CONFINED)
START = Op("start_reduction", _start, Trait.OPAQUE | Trait.CONFINED)
FINISH = Op("finish_reduction", _finish, Trait.OPAQUE | Trait.CONFINED | Trait.FILLS)
WAIT = Op("wait_for_reduction", _wait, Trait.OPAQUE | Trait.CONFINED | Trait.WRITES)
ENDS = (FINISH, WAIT)


@dataclass(frozen=True, eq=False)
class Mean:
    """A gradient before it is computed: the mean of ``parts``, of which there are one or two."""

    parts: tuple[Value, ...]

    def formula(self, parts: Sequence[Any]) -> Any:
        """The mean of symbols for the parts."""
        # A product might be one operation with an addition behind it: it rounds otherwise than a mean that was written.
        return reduce(operator.add, parts) / len(parts) if len(parts) > 1 else parts[0]

    def value(self, b: Builder) -> Value:
        """Append the mean."""
        return b.map(expr_of(self.formula([Symbol(Arg(i)) for i in range(len(self.parts))])), *self.parts)


def means_alike(b: Builder, grads: Sequence[Value | Mean]) -> list[Mean]:
    """Return gradients as means of as many parts each, so that one formula has all of them."""
    if all(isinstance(g, Mean) for g in grads):
        found = [g for g in grads if isinstance(g, Mean)]
        if len({len(g.parts) for g in found}) == 1:
            return found
    return [Mean((g.value(b) if isinstance(g, Mean) else g,)) for g in grads]


class StepReduction:
    """The reduction of the gradients of ``params`` as part of one step.

    ``states`` are values of the memory in which gradients are computed, with their bindings.
    """

    def __init__(self, reduction: Any, params: Sequence[Any]) -> None:
        self._reduction, self._params = reduction, params
        self._parts: list[list[Any]] | None = None
        self._places = {id(params[i]): (k, j) for k, members in enumerate(reduction.buckets)
                        for j, i in enumerate(members)}
        self.states: list[tuple[Value, ArrayBinding]] = []

    def holds(self) -> bool:
        """Whether gradients are reduced where they were when this was made."""
        return self._parts is None or self._reduction.is_in_place

    def nodes(self, grads: Mapping[int, Value], nodes: Sequence[Node], first: int,
              ) -> tuple[list[Node], dict[int, Value | Mean]]:
        """Return nodes with those of the reduction among them, and the means.

        ``grads`` maps ``id(parameter)`` to gradients; the backward begins with the node number ``first``.
        """
        reduction = self._reduction
        if not reduction.buckets:
            return [*nodes], dict(grads)
        made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
        every = [[grads[id(self._params[i])] for i in members] for members in reduction.buckets]
        last = max([i for i, node in enumerate(nodes) if node.op.is_opaque], default=-1)
        self._parts = reduction.in_place()
        if self._parts is None:
            begin = max([last, *(made.get(v, -1) for v in every[0])])
        else:  # before anything is written to what others read
            begin = min([i for own in every for v in own if (i := made.get(v, -1)) >= first], default=len(nodes)) - 1
            begin = max(begin, last)
        behind: dict[int, list[Node]] = {begin: [Node(BEGIN, (), (), {"reduction": reduction})]}
        finishing: list[list[Node]] = []
        means: dict[int, Value | Mean] = dict(grads)
        last = begin
        for k, (members, own) in enumerate(zip(reduction.buckets, every, strict=True)):
            places = [max(begin, made.get(v, -1)) for v in own]
            last = max([last, *places])
            attrs = {"reduction": reduction, "bucket": k, "in_place": self._parts is not None}
            found: Sequence[Value | Mean]
            if self._parts is None:
                found = values = [Value(tensor_type(v.tensor.dtype, v.shape), "mean") for v in own]
                finish = [Node(FINISH, (), tuple(values), attrs)]
            else:
                written, other, found, views = self._shared(k, own)
                b = Builder("gradients")
                for state, grad, place in zip(written, own, places, strict=True):
                    b.assign(state, grad)
                    behind.setdefault(place, []).append(b.nodes.pop())
                own, finish = written, [Node(WAIT, (other,), (), attrs), *views]
            there = behind.setdefault(last, [])
            there.append(Node(START, tuple(own), (), attrs))
            if k >= reduction.ahead:
                there += finishing.pop(0)
            finishing.append(finish)
            means.update((id(self._params[i]), v) for i, v in zip(members, found, strict=True))
        result = [*behind.get(-1, ())]
        for i, node in enumerate(nodes):
            result += [node, *behind.get(i, ())]
        return [*result, *(node for finish in finishing for node in finish)], means

    def _shared(self, k: int, own: Sequence[Value]) -> tuple[list[Value], Value, list[Mean], list[Node]]:
        """Return states for the gradients of a bucket, one for those of the other process, the means, and views of it.
        """
        reduction, b = self._reduction, Builder("gradients")
        assert self._parts is not None
        mine, theirs = self._parts[k][reduction.rank], self._parts[k][1 - reduction.rank]
        other = self._state(theirs, "other_gradients")
        written: list[Value] = []
        found: list[Mean] = []
        for grad, (at, end) in zip(own, reduction.spans(k), strict=True):
            written.append(self._state(mine[at:end].reshape(grad.shape), "own_gradient"))
            parts = [written[-1], b.reshape(b.part(other, at, end), grad.shape)]
            found.append(Mean(tuple(parts if reduction.rank == 0 else reversed(parts))))
        return written, other, found, b.nodes

    def _state(self, array: Any, hint: str) -> Value:
        value = Value(tensor_type(array.dtype, array.shape), hint)
        self.states.append((value, ArrayBinding(array)))
        return value

    def give(self, params: Sequence[Any]) -> None:
        """Let parameters show means that are nowhere yet as their gradients."""
        for p in params:
            p._grad = self._reduction.show(*self._places[id(p)])


def under_way(instructions: Sequence[Instruction]) -> list[str]:
    """Return a line on each bucket of a schedule: its bytes, and the kernels that run while it is added up.

    Their share is that of the schedule's time by the table of costs.
    """
    times = [0 if x.kernel is None else node_picoseconds(x.node) for x in instructions]
    lines: list[str] = []
    for k, (nbytes, begun, end) in enumerate(buckets_in([x.node for x in instructions])):
        count = sum(instructions[j].kernel is not None for j in range(begun, end))
        share = sum(times[begun:end]) / max(sum(times), 1)
        lines.append(f"bucket {k} of gradients, {nbytes} bytes: under way during {count} "
                     f"kernel{'s' * (count != 1)}, {share:.0%} of the step's time as counted")
    return lines


def buckets_in(nodes: Sequence[Node]) -> Iterator[tuple[int, int, int]]:
    """Yield the bytes of each bucket, and the positions at which it is started and finished."""
    begun: dict[int, tuple[int, int]] = {}
    for i, node in enumerate(nodes):
        if node.op is START:
            begun[node.attrs["bucket"]] = sum(v.tensor.nbytes for v in node.inputs), i
        elif node.op in ENDS:
            yield (*begun[node.attrs["bucket"]], i)
