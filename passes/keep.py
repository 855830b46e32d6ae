"""Values that a forward keeps for its backward: those worth their memory traffic. Others are computed again."""
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kusari.ir import Arg, Builder, Call, Graph, Node, TensorType, Trait, Value, walk
from kusari.ir.alignment import is_squeeze
from kusari.ir.costs import BYTE_PICOSECONDS, INSTRUCTION_PICOSECONDS, point_picoseconds

from .lower import lower
from .min_cut import cheapest
from .order import written_values

WORTH_INSTRUCTIONS = 2.5  # must be saved in all, for those it may add
_EXACT = frozenset(("equal", "not_equal"))


@dataclass(frozen=True)
class Kept:
    """Values to keep and nodes to repeat.

    ``saved`` stay from forward to backward, ``again`` run in front of the backward. ``copies`` are to be added to the
    forward: they preserve saved params and inputs as they were then.
    """

    saved: tuple[Value, ...]
    again: tuple[Node, ...] = ()
    copies: tuple[Node, ...] = ()


def choose_kept(forward: Graph, backward: Sequence[Node], results: Sequence[Value], recompute: bool = True,
                changing: Collection[Value] = ()) -> Kept:
    """Return the cheapest ``Kept`` for ``backward``, a continuation of ``forward`` whose outputs are ``results``.

    A value kept is written once and read once, a value computed again costs its arithmetic, and its operands must be
    available. Only elementwise nodes run again, as they share a kernel with their readers. A value that is compared for
    equality is kept, as it must not differ in its last place; params and inputs that repeated nodes read are copied,
    since an update, or the caller, may change them in between. So are values that are ``changing``, which the caller
    owns and the backward reads as they are then. Without ``recompute`` nothing runs again.
    """
    choice = _Choice(forward, backward, results, changing)
    return choice.kept() if recompute else Kept(choice.needed)


@dataclass(frozen=True)
class _Traits:
    """Whether a node is part of any loop nest, and its cost if it is elementwise, else -1."""

    fuses: bool = False
    cost: int = -1
    exact: bool = False


class _Choice:
    """One choice. Invariant: a value that is not ``free`` in the end is kept, or can be computed again."""

    def __init__(self, forward: Graph, backward: Sequence[Node], results: Sequence[Value],
                 changing: Collection[Value]) -> None:
        self._forward = forward
        self._made = forward.producers()
        self._written = written_values(forward)
        self._changing = changing
        self._outside = {*forward.params, *forward.inputs, *changing}  # may change before the backward
        self._known: dict[Any, _Traits] = {}
        self._reads: dict[Value, None] = {v: None for n in backward for v in n.inputs}
        self.needed = tuple(v for v in dict.fromkeys((*self._reads, *results)) if v in self._made)
        outside = set(forward.outputs)
        self._stored = {v for n in forward.nodes if not self._traits(n).fuses for v in n.inputs} | outside
        self._pinned = {v for n in backward if not self._traits(n).fuses or self._traits(n).exact for v in n.inputs}
        self._pinned.update(results)

    def _traits(self, node: Node) -> _Traits:
        """The traits of ``node``; nodes of the same op, attributes and types are analysed once."""
        if node.op.key is None or node.has_effect:
            return _Traits()
        key = (node.op, node.op.key(node.attrs), tuple(v.type for v in node.inputs))
        if key not in self._known:
            self._known[key] = _traits_of(node)
        return self._known[key]

    def _cost(self, v: Value) -> int:
        """The cost of computing ``v`` again from available operands; -1 if that is impossible."""
        node = self._made.get(v)
        if node is None or v in self._pinned or v in self._changing or len(node.outputs) != 1 or any(
                u in self._written for u in node.inputs):
            return -1
        return self._traits(node).cost

    def _price(self, v: Value) -> int:
        """The cost of having ``v`` in the backward without computing it."""
        if not isinstance(v.type, TensorType):
            return 0
        read = 0 if v in self._pinned or v in self._reads and v not in self._made else v.type.nbytes * BYTE_PICOSECONDS
        written = v in self._made and v not in self._stored or v in self._outside
        return read + (v.type.nbytes * BYTE_PICOSECONDS if written else 0)

    def kept(self) -> Kept:
        """Find the cheapest choice."""
        everything = Kept(self.needed)
        wanted = [v for v in self.needed if self._cost(v) >= 0]
        if not wanted:
            return everything
        costs: dict[Value, int] = {}
        stack = list(wanted)
        while stack:
            v = stack.pop()
            if v not in costs:
                costs[v] = self._cost(v)
                if costs[v] >= 0:
                    stack.extend(self._made[v].inputs)
        prices = {v: self._price(v) for v in costs}
        prices.update((v, 0) for v in self.needed if costs.get(v, -1) < 0 and v not in self._changing)  # kept anyway
        operands = {v: self._made[v].inputs for v, cost in costs.items() if cost >= 0}
        again = cheapest(costs, prices, operands, wanted)
        if not again:
            return everything
        base = {u for v in again for u in self._made[v].inputs if u not in again}
        saved = dict.fromkeys(v for v in self.needed if v not in again)
        before = sum(prices[v] for v in wanted)
        after = sum(costs[v] for v in again) + sum(prices[v] for v in {*base, *(v for v in wanted if v not in again)})
        if before - after < WORTH_INSTRUCTIONS * INSTRUCTION_PICOSECONDS:
            return everything
        return self._result(again, saved, base)

    def _result(self, again: set[Value], saved: dict[Value, None], base: set[Value]) -> Kept:
        copied: dict[Value, Value] = {}
        b = Builder()
        nodes: list[Node] = []
        for node in self._forward.nodes:
            if not any(v in again for v in node.outputs):
                continue
            for v in node.inputs:
                if v in self._outside and v not in copied:
                    copied[v] = b.map(Arg(0), v)
                    copied[v].hint = v.hint
                    saved[copied[v]] = None
                elif v in base and v in self._made:
                    saved[v] = None
            nodes.append(node.on(copied))
        return Kept(tuple(saved), tuple(nodes), tuple(b.nodes))


def _traits_of(node: Node) -> _Traits:
    if not all(isinstance(v.type, TensorType) for v in (*node.inputs, *node.outputs)):
        return _Traits()
    nodes = lower(Graph("node", tuple(dict.fromkeys(node.inputs)), (), (), (node,), node.outputs)).nodes
    cost, elementwise, exact = 0, True, False
    for n in nodes:
        if n.op.name == "map":
            cost += point_picoseconds(n.attrs["expr"]) * n.output.tensor.size
            exact = exact or any(isinstance(e, Call) and e.fn in _EXACT for e in walk(n.attrs["expr"]))
        elif n.op.name == "reduce":
            elementwise = False
        elif not (n.op.name in ("broadcast_to", "arange", "full") or is_squeeze(n)) or n.op.traits & Trait.OPAQUE:
            return _Traits()
    return _Traits(True, cost if elementwise and nodes else -1, exact)
