"""Graphs in static single assignment form: an ordered tuple of nodes over typed values."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .op import Op
from .types import TensorType, Type


class Value:
    """One tensor (or token) of a graph; its identity is its name, ``hint`` only helps the reader."""

    __slots__ = ("type", "hint")

    def __init__(self, type: Type, hint: str = "") -> None:
        self.type = type
        self.hint = hint

    @property
    def tensor(self) -> TensorType:
        """The type, known to be a tensor's; raises ``TypeError`` for a token."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"expected a tensor value, got a {self.type!r}")
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a tensor value."""
        return self.tensor.shape

    @property
    def nbytes(self) -> int:
        """Bytes of a tensor value; a token has none."""
        return self.type.nbytes if isinstance(self.type, TensorType) else 0

    def __repr__(self) -> str:
        return f"<{self.hint or 'value'}: {self.type!r}>"


NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Node:
    """One application of an op; ``where`` is the user's ``file.py:31``."""

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRS)
    where: str = ""

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    @property
    def has_effect(self) -> bool:
        """Whether the node must stay, in order with other nodes with effects."""
        return self.op.has_effect

    def on(self, new: Mapping[Value, Value]) -> Node:
        """Return this node with operands replaced by those of ``new``; the same object if none of them is there."""
        inputs = tuple([new.get(v, v) for v in self.inputs])
        return self if inputs == self.inputs else Node(self.op, inputs, self.outputs, self.attrs, self.where)

    def __repr__(self) -> str:
        return f"<{self.op.name} at {self.where or '?'}>"


def copied(nodes: Iterable[Node], new: dict[Value, Value], where: str | None = None) -> list[Node]:
    """Return ``nodes``, at another place if ``where`` is given, on operands ``new``, which also receives their results.
    """
    made: list[Node] = []
    for n in nodes:
        outputs = tuple([Value(v.type, v.hint) for v in n.outputs])
        place = n.where if where is None else where
        made.append(Node(n.op, tuple([new[v] for v in n.inputs]), outputs, n.attrs, place))
        new.update(zip(n.outputs, outputs, strict=True))
    return made


def behind(nodes: Sequence[Node], values: Iterable[Value]) -> list[Node]:
    """Return those of some nodes, in their order, that ``values`` are computed by."""
    needed, found = set(values), list[Node]()
    for node in reversed(nodes):
        if any(v in needed for v in node.outputs):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]


@dataclass(frozen=True, eq=False)
class Graph:
    """A frozen program: nodes in execution order.

    ``inputs`` change at every call, ``params`` are bound to outside objects (parameters and state, which
    WRITES nodes may change), ``consts`` carry their arrays. Every value is defined once, before its uses.
    """

    name: str
    inputs: tuple[Value, ...]
    params: tuple[Value, ...]
    consts: tuple[tuple[Value, Any], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    def with_nodes(self, nodes: Sequence[Node], outputs: Sequence[Value] | None = None) -> Graph:
        """Return this graph with other nodes (and outputs); the same object when nothing differs."""
        outs = self.outputs if outputs is None else tuple(outputs)
        if outs == self.outputs and len(nodes) == len(self.nodes) and all(
                a is b for a, b in zip(nodes, self.nodes, strict=True)):
            return self
        return replace(self, nodes=tuple(nodes), outputs=outs)

    def sources(self) -> Iterator[Value]:
        """Yield the values no node defines: inputs, params, consts."""
        yield from self.inputs
        yield from self.params
        for value, _ in self.consts:
            yield value

    def roots(self) -> dict[Value, Value]:
        """Map each value to the owner of its buffer: the value that it is a view of, or itself."""
        roots = {v: v for v in self.sources()}
        for n in self.nodes:
            view = n.op.is_view
            for v in n.outputs:
                roots[v] = roots[n.inputs[0]] if view else v
        return roots

    def written(self) -> dict[Value, list[int]]:
        """The params that some node writes, each with the positions of those nodes, in order."""
        writes: dict[Value, list[int]] = {}
        for i, n in enumerate(self.nodes):
            if n.op.writes and n.inputs:
                writes.setdefault(n.inputs[0], []).append(i)
        return writes

    def producers(self) -> dict[Value, Node]:
        """Map each value that a node defines to that node."""
        return {v: n for n in self.nodes for v in n.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """Map each value to the nodes that read it, in order, each node once."""
        users: dict[Value, list[Node]] = {v: [] for v in self.sources()}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                users.setdefault(v, []).append(n)
            for v in n.outputs:
                users.setdefault(v, [])
        return users

    def to_networkx(self) -> Any:
        """Return a ``networkx.MultiDiGraph`` whose nodes are the `Value`s and `Node`s of this graph.

        An edge leads from each operand to the node that reads it and from the node to each result; its key is the
        operand's or result's number. Nodes have attributes ``kind`` (input, param, const, value or node), ``label``,
        and ``type`` or ``where``; the graph itself has ``inputs``, ``params`` and ``outputs``. Raises ``ImportError``
        where the package networkx is missing.
        """
        from .drawing import graph_to_networkx

        return graph_to_networkx(self)

    def _repr_html_(self) -> str:
        from .drawing import html_of

        return html_of(self)
