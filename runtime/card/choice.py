"""Nodes of a plan as work of a library: common to products and convolutions."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kusari.ir import Arg, Instruction, Node, Plan, Value
from kusari.ir.product import Epilogue, Rounding, epilogue_of

from .kernels import cupy
from .launches import Place, Refused

#: Where the result lies that is scratch.
SCRATCH = Place(None, -1)

#: From a node with an epilogue to the value that stands for its root alone, and the rows that do the rest.
Split = Callable[[Node], "tuple[Value, tuple[Instruction, ...]] | None"]

#: From a nest and one of its results to the rows that write this one.
Only = Callable[[Node, Value], "tuple[Instruction, ...] | None"]


@dataclass(frozen=True)
class Mask:
    """The bits of a ReLU, where its result ``value`` is positive: memory that plans do not have.

    The call for the value writes them, and the calls for its gradients read them.
    """

    value: Value
    rows: int
    columns: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class Chosen:
    """The work of a node by a library: the function to call, and the places of its operands and of its ``result``.

    ``result_bytes`` are not zero if the result is scratch, and ``behind`` are rows that read it as ``value``. ``kind``
    says of which nodes this is one. Kernels of ours that do the same need those of ``first`` in front of them. It
    ``keeps`` a mask among the places, and reads it otherwise.
    """

    library: str
    kind: str
    function: Any
    name: str
    flops: int
    places: tuple[Place | Mask | None, ...]
    result: Place
    workspace_bytes: int
    result_bytes: int
    value: Value | None = None
    behind: tuple[Instruction, ...] = ()
    first: tuple[Instruction, ...] = ()
    keeps: bool = False


class Chooser(ABC):
    """The nodes of one plan on a card that a library may compute.

    ``place`` is where a value lies; ``split`` writes what follows a root. ``kind`` names the nodes. Factors in float32
    may be rounded to ``rounding``. Of ``left`` nodes kernels compute a part that calls might have computed: its name,
    and why. A backward reads the values that are ``kept``; bits of its own forward are in ``masks``. With ``joins``
    nodes behind others may be computed with these. Values are ``left_out`` of memory as the nodes that read them do
    without, if the library computes them.
    """

    kind: ClassVar[str]

    joins = True

    def __init__(self, plan: Plan, device: int, place: Callable[[Value], Place], split: Split, only: Only,
                 rounding: Rounding) -> None:
        self.plan, self.device, self.place, self._split, self._only = plan, device, place, split, only
        self.rounding: Rounding = rounding
        self.left: dict[Node, tuple[str, str]] = {}
        self.users, self.made = plan.graph.users(), plan.graph.producers()
        self.kept: Collection[Value] = ()
        self.masks: dict[Value, Mask] = {}
        self.left_out: dict[Value, tuple[Node, ...]] = {}
        self.capability = int(cupy().cuda.Device(device).compute_capability)
        self.cuda = cupy().cuda.runtime.runtimeGetVersion() // 1000

    @abstractmethod
    def has(self, node: Node) -> bool:
        """Whether a node is one that the library might compute, with or without an epilogue."""

    @abstractmethod
    def choose(self, node: Node) -> Chosen:
        """Return how the library computes a node; raises ``Refused`` with the reason why it does not."""

    def choose_both(self, before: Node, node: Node) -> Chosen | None:
        """Return how the library computes a node and the one right before it at once, or None; may refuse."""
        return None

    def with_totals(self, chosen: Chosen, node: Node, total: Node) -> Chosen | None:
        """Return how a node that is ``chosen`` and the sums of its result right behind it are computed, or None.

        It may refuse.
        """
        return None

    def overlap(self, a: Value, b: Value) -> bool:
        """Whether two values share memory."""
        first, second = self.place(a), self.place(b)
        return (first.index == second.index and first.offset < second.offset + b.tensor.nbytes
                and second.offset < first.offset + a.tensor.nbytes)

    def parts(self, node: Node, epilogue: Epilogue) -> tuple[Value | None, Value | None, tuple[Instruction, ...]]:
        """Return the result that is the root alone or None, the value that stands for it, and the rows of the rest.

        Raises ``Refused``.
        """
        plain = [v for v, e in zip(node.outputs, epilogue.exprs, strict=True) if e == Arg(0)]
        result = plain[0] if plain else None
        if result is not None and any(self.overlap(v, result) for v in node.inputs):
            raise Refused("the result lies where an operand is")
        if len(plain) == len(node.outputs):
            return result, None, ()
        found = self._split(node)
        if found is None or any(r.kernel is None or r.kernel.shared for r in found[1]):
            raise Refused("its epilogue has no kernel of its own")
        return result, *found


def epilogue_in(node: Node) -> tuple[Epilogue, Mapping[Value, Value]]:
    """Return the root of a node with its epilogue, and the values behind those of the node's body."""
    if node.op.name != "fused":
        return Epilogue(node, (Arg(0),), ()), {v: v for v in node.inputs}
    body = node.attrs["body"]
    return epilogue_of(body), dict(zip(body.inputs, node.inputs, strict=True))


def has_root(node: Node, names: frozenset[str]) -> bool:
    """Whether a node is one of these ops, with or without an epilogue."""
    return node.op.name in names or node.op.name == "fused" and any(
        n.op.name in names for n in node.attrs["body"].nodes)
