"""Axes of the values of a loop nest that are the same axis: the legality half of nest analysis."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Node, Value

Axes = tuple[int | None, ...]  # the class of each axis of a value; None for an axis of extent 1


class NotANest(Exception):
    """Nodes cannot run in one loop nest; the message says why."""


def is_squeeze(node: Node) -> bool:
    """Whether ``node`` is a reshape that only adds or removes axes of extent 1."""
    if node.op.name != "reshape":
        return False
    before, after = node.inputs[0].shape, node.output.shape
    return tuple(n for n in before if n != 1) == tuple(n for n in after if n != 1)


@dataclass(frozen=True)
class Alignment:
    """The common iteration domain of some nodes.

    ``axes`` names the domain's axis of every axis of every value; ``order`` lists the domain's axes from the outermost
    to the innermost, ``extents`` their lengths, ``reduced`` the axes that reductions run over.
    """

    axes: dict[Value, Axes]
    order: tuple[int, ...]
    extents: tuple[int, ...]
    reduced: frozenset[int]

    def strides(self, value: Value) -> tuple[int, ...]:
        """Elements between neighbours of ``value`` along each axis of the domain, 0 where it is broadcast."""
        step = 1
        found: dict[int, int] = {}
        for axis, n in zip(reversed(self.axes[value]), reversed(value.shape), strict=True):
            if axis is not None:
                found[axis] = step
            step *= max(n, 1)  # 0 would read as broadcast
        return tuple(found.get(a, 0) for a in self.order)

    def covers(self, value: Value) -> bool:
        """Whether ``value`` varies over the whole domain."""
        return sum(a is not None for a in self.axes[value]) == len(self.order)

    def is_row(self, value: Value) -> bool:
        """Whether ``value`` varies over exactly the axes that are not reduced: one element per row."""
        own = {a for a in self.axes[value] if a is not None}
        return len(own) == len(self.order) - len(self.reduced) and not own & self.reduced


class _Classes:
    """Equivalence classes of axes (union-find; the smallest number represents a class)."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.extent: list[int] = []

    def fresh(self, extent: int) -> int | None:
        if extent == 1:
            return None
        self.parent.append(len(self.parent))
        self.extent.append(extent)
        return len(self.parent) - 1

    def find(self, a: int) -> int:
        while self.parent[a] != a:
            self.parent[a] = a = self.parent[self.parent[a]]
        return a

    def join(self, a: int, b: int) -> int:
        a, b = sorted((self.find(a), self.find(b)))
        self.parent[b] = a
        return a


def _map_axes(node: Node, axes: dict[Value, Axes], classes: _Classes) -> Axes:
    shape = node.output.shape
    result: list[int | None] = []
    for j, n in enumerate(shape):
        found: int | None = None
        if n != 1:
            for v in node.inputs:
                k = j - len(shape) + len(v.shape)
                own = axes[v][k] if k >= 0 else None
                if own is not None:
                    found = own if found is None else classes.join(found, own)
        result.append(found)
    return tuple(result)


def _spread_axes(node: Node, axes: dict[Value, Axes], classes: _Classes) -> Axes:
    shape, (source,) = node.output.shape, node.inputs
    lead = len(shape) - len(source.shape)
    own = (None,) * lead + axes[source]
    return tuple(classes.fresh(n) if a is None else a for n, a in zip(shape, own, strict=True))


def align(nodes: Sequence[Node], outputs: Sequence[Value]) -> Alignment:
    """Return the common domain of ``nodes`` (in order, each value defined before its uses).

    ``outputs`` are the values that leave the nest. Raises ``NotANest`` when the nodes have no common domain, when two
    reductions run over different axes, or when an output is neither of the full domain nor one element per row.
    """
    classes = _Classes()
    axes: dict[Value, Axes] = {}
    reductions: list[tuple[Node, tuple[int, ...]]] = []
    made = {v for n in nodes for v in n.outputs}
    for node in nodes:
        if node.op.name == "slice":
            if node.inputs[0] in made:
                raise NotANest("a slice of a value that the nest computes")
            axes[node.output] = tuple(map(classes.fresh, node.output.shape))  # its offset is the load's concern
            continue
        for v in node.inputs:
            if v not in axes:
                axes[v] = tuple(map(classes.fresh, v.shape))
        if len(node.outputs) != 1:
            raise NotANest(f"{node.op.name} has {len(node.outputs)} outputs")
        out = node.output
        name = node.op.name
        if name == "map":
            axes[out] = _map_axes(node, axes, classes)
        elif name == "reduce":
            own = axes[node.inputs[0]]
            gone: tuple[int, ...] = node.attrs["axes"]
            over = tuple(a for i, a in enumerate(own) if i in gone and a is not None)
            if over:
                reductions.append((node, over))
            axes[out] = tuple(None if i in gone else a for i, a in enumerate(own))
        elif name == "broadcast_to":
            axes[out] = _spread_axes(node, axes, classes)
        elif name == "arange":
            axes[out] = tuple(map(classes.fresh, out.shape))
        elif is_squeeze(node):
            left = iter([a for a in axes[node.inputs[0]] if a is not None])
            axes[out] = tuple(None if n == 1 else next(left) for n in out.shape)
        else:
            raise NotANest(f"{name} does not run in a loop nest")
    return _domain(classes, axes, reductions, outputs)


def _domain(classes: _Classes, axes: dict[Value, Axes], reductions: list[tuple[Node, tuple[int, ...]]],
            outputs: Sequence[Value]) -> Alignment:
    find = classes.find
    roots: dict[int, None] = {}
    for v, own in axes.items():
        final = tuple(None if a is None else find(a) for a in own)
        axes[v] = final
        named = [a for a in final if a is not None]
        if len(set(named)) != len(named):
            raise NotANest(f"two axes of {v!r} are one axis of the domain")
        roots.update(dict.fromkeys(named))
    reduced = frozenset(find(a) for a in reductions[0][1]) if reductions else frozenset[int]()
    if any(frozenset(map(find, over)) != reduced for _, over in reductions):
        raise NotANest("reductions run over different axes")
    full = [v for v in (*outputs, *(n.inputs[0] for n, _ in reductions))
            if sum(a is not None for a in axes[v]) == len(roots)]
    if not full:
        raise NotANest("no value has the whole domain")
    order = tuple(a for a in axes[full[0]] if a is not None)
    result = Alignment(axes, order, tuple(classes.extent[a] for a in order), reduced)
    for node, _ in reductions:
        if not result.covers(node.inputs[0]):
            raise NotANest(f"the operand {node.inputs[0]!r} of a reduction does not have the whole domain")
    for v in outputs:
        if not result.covers(v) and not (reduced and result.is_row(v)):
            raise NotANest(f"the output {v!r} has neither the whole domain nor one element per row")
    return result
