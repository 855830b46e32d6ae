"""Regions of a graph that become one kernel each, limited by the nest analysis and by cost."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from kusari.ir import Call, Graph, Node, TensorType, Value, walk
from kusari.ir.alignment import Alignment, NotANest, align, is_squeeze
from kusari.ir.nest import TRANSCENDENTAL
from kusari.ir.product import ROOTS, epilogue_of, product_of

from .analysis import Uses
from .order import Partition, dependencies

MAX_CALLS = 400          # scalar calls of one kernel: compile time
NEAR_ELEMENTS = 8        # between neighbours in a slice that a nest reads in place, at most
MAX_BUFFERS = 32         # operands and outputs of one kernel: pointers, and streams of the prefetcher
EPILOGUE_OUTPUTS = 2
MAX_EPILOGUE_NODES = 24  # of a product's region
SIBLING_READERS = 4      # of one tensor that are tried: keeps long chains of readers cheap
SERIAL_POINTS = 1 << 16  # a larger domain without parallel axes should not hold expensive work
EPILOGUE_OPERANDS = 2    # of full size: more would stream through a root's cache blocks


def calls(node: Node) -> int:
    """Number of scalar calls at each point."""
    if node.op.name == "map":
        return sum(isinstance(e, Call) for e in walk(node.attrs["expr"]))
    return 1


def is_expensive(node: Node) -> bool:
    """Whether computing the node twice costs more than loading its value."""
    if node.op.name == "map":
        return any(isinstance(e, Call) and e.fn in TRANSCENDENTAL for e in walk(node.attrs["expr"]))
    return node.op.name == "reduce" or node.op.name in ROOTS


def is_free(node: Node) -> bool:
    """Whether the node costs nothing inside a nest, so that every consumer gets a copy of its own."""
    return node.op.name in ("arange", "broadcast_to") or is_squeeze(node) or is_near_slice(node)


def is_near_slice(node: Node) -> bool:
    """Whether the node is a slice whose neighbours along the last axis are near each other, as in interleaved gates."""
    return node.op.name == "slice" and bool(node.output.shape) and all(
        0 < step <= NEAR_ELEMENTS for step in node.attrs["steps"][-1:]) and _innermost(node) <= NEAR_ELEMENTS


def _innermost(node: Node) -> int:
    """Elements between neighbours along the innermost axis of a slice that is longer than 1."""
    step = 1
    for n, kept, jump in reversed(list(zip(node.inputs[0].shape, node.output.shape, node.attrs["steps"], strict=True))):
        if kept != 1:
            return step * abs(jump)
        step *= n
    return 1


def _plain(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.kind in "fiub" and v.type.dtype.itemsize <= 8


def fits_a_nest(node: Node) -> bool:
    """Whether nests may contain the node: its op and its dtypes."""
    return node.op.name in ("map", "reduce") and all(map(_plain, (*node.inputs, *node.outputs)))


def is_root(node: Node) -> bool:
    """Whether an epilogue may follow the node: a convolution or a matrix product of floats.

    Batches of a matrix product must not be broadcast in part.
    """
    if node.op.name not in ROOTS or not all(map(_plain, node.inputs)):
        return False
    dtypes = {v.tensor.dtype for v in (*node.inputs, *node.outputs)}
    if not node.attrs.get("wide") and (len(dtypes) != 1 or dtypes.pop().name not in ("float32", "float64")):
        return False
    if node.op.name == "matmul":
        return product_of(node) is not None
    return all(v.tensor.size for v in (*node.inputs, *node.outputs))


def _thin(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _within(part: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether ``part`` is a subsequence of ``whole``: a quick test before the exact one."""
    rest = iter(whole)
    return all(n in rest for n in part)


class Regions(Uses):
    """Grows regions of a graph node by node in execution order.

    Invariant: every region is a single node, a legal nest, or a root with elementwise nodes on its product; the regions
    do not depend on each other in a circle. Without ``epilogues`` there are no roots.
    """

    def __init__(self, graph: Graph, epilogues: bool = True) -> None:
        super().__init__(graph)
        # A copy of a free node runs where its consumer does, which may be after its operand was written.
        self.free = [is_free(n) and not any(v in self.written for v in n.inputs) for n in graph.nodes]
        self.nest = [fits_a_nest(n) for n in graph.nodes]
        self.root = [epilogues and is_root(n) for n in graph.nodes]
        self.costly = [is_expensive(n) for n in graph.nodes]
        self.calls = [calls(n) for n in graph.nodes]
        self.partition = Partition(self._needs(dependencies(graph)))
        self.update = self._updates()
        self.rooted = {i for i, root in enumerate(self.root) if root}  # all nodes of their regions
        self._kinds = [-1] * len(self.nodes)
        self._known_kinds: dict[Any, int] = {}
        self._verdicts: dict[tuple[int, ...], bool] = {}
        self._readers: dict[Value, tuple[int, ...]] = {}
        self._fronts: dict[int, tuple[int, ...]] = {}
        self._thin: dict[int, tuple[int, ...]] = {}

    def _needs(self, before: list[list[int]]) -> list[list[int]]:
        """The dependencies of each node without free nodes, whose readers inherit their dependencies."""
        result: list[list[int]] = []
        for needs in before:
            found: dict[int, None] = {}
            for j in needs:
                found.update(dict.fromkeys(result[j] if self.free[j] else [j]))
            result.append(list(found))
        return result

    def _updates(self) -> list[bool]:
        """The maps that only serve new state: they stay apart, to become one kernel for all parameters."""
        marks = [False] * len(self.nodes)
        for i in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[i].op.name != "map" and not self.free[i]:
                continue
            users = self.users.get(self.nodes[i].output, [])
            marks[i] = bool(users) and all(marks[j] or self.nodes[j].op.name == "assign" for j in users)
        return marks

    def source(self, v: Value) -> Value:
        """The value behind ``v`` and the free nodes that only change its shape."""
        while (i := self.made.get(v, -1)) >= 0 and self.free[i] and (
                self.nodes[i].op.name in ("reshape", "broadcast_to")):
            v = self.nodes[i].inputs[0]
        return v

    def readers(self, v: Value) -> tuple[int, ...]:
        """The nodes that read ``v``, directly or through free nodes; -1 is the caller of the graph."""
        if v in self._readers:
            return self._readers[v]
        found: dict[int, None] = {}
        stack = [v]
        while stack:
            u = stack.pop()
            if u in self.outputs:
                found[-1] = None
            for j in self.users.get(u, ()):
                if self.free[j]:
                    stack.append(self.nodes[j].output)
                else:
                    found[j] = None
        self._readers[v] = tuple(found)
        return self._readers[v]

    def body(self, members: Sequence[int]) -> list[int]:
        """The members, and the free nodes in front of members in a nest, in execution order.

        A slice begins a nest, so nothing in front of it belongs; an epilogue has no slices.
        """
        found = set(members)
        for i in members:
            if self.nest[i]:
                found.update(self._fronts[i] if i in self._fronts else self._front(i))
        if any(self.root[i] for i in members):
            return sorted(i for i in found if self.nodes[i].op.name != "slice")
        return sorted(found)

    def _front(self, i: int) -> tuple[int, ...]:
        """The free nodes in front of node ``i``, up to slices."""
        found: dict[int, None] = {}
        stack = [i]
        while stack:
            for v in self.nodes[stack.pop()].inputs:
                j = self.made.get(v, -1)
                if j >= 0 and self.free[j] and j not in found:
                    found[j] = None
                    if self.nodes[j].op.name != "slice":
                        stack.append(j)
        self._fronts[i] = tuple(found)
        return self._fronts[i]

    def escaping(self, members: Sequence[int]) -> list[Value]:
        """The values of ``members`` with readers outside."""
        own = set(members)
        return [v for i in members for v in self.nodes[i].outputs if not own.issuperset(self.readers(v))]

    def entering(self, body: Sequence[int]) -> list[Value]:
        """The values a body reads from outside, in order of first use."""
        made = {v for i in body for v in self.nodes[i].outputs}
        return list(dict.fromkeys(v for i in body for v in self.nodes[i].inputs if v not in made))

    # Legality

    def legal(self, members: Sequence[int], growing: bool = False) -> bool:
        """Whether ``members`` may be one kernel, and gain by it.

        An epilogue that is still ``growing`` may have more outputs than a kernel, as later nodes may use them up.
        """
        if sum(self.calls[i] for i in members) > MAX_CALLS:
            return False
        body = self.body(members)
        outputs = self.escaping(members)
        entering = self.entering(body)
        if self._returns(members, entering):
            return False
        if len(entering) + len(outputs) > MAX_BUFFERS or len({v.tensor.device for v in (*entering, *outputs)}) > 1:
            return False
        # Steps of a loop ask the same question again and again.
        form = (int(growing), *self.form(body, outputs))
        if form not in self._verdicts:
            self._verdicts[form] = self._fits(members, body, outputs, entering, growing)
        return self._verdicts[form]

    def form(self, body: Sequence[int], outputs: Sequence[Value]) -> tuple[int, ...]:
        """The computation of a body, in numbers: equal for equal bodies."""
        number: dict[Value, int] = {}
        form: list[int] = []
        for i in body:
            node = self.nodes[i]
            if self._kinds[i] < 0:
                key = node.op.key(node.attrs) if node.op.key else i
                kind = (node.op, key, tuple([v.type for v in node.inputs]), tuple([v.type for v in node.outputs]))
                self._kinds[i] = self._known_kinds.setdefault(kind, len(self._known_kinds))
            form.append(self._kinds[i])
            for v in node.inputs:
                form.append(number.setdefault(v, len(number)))
            for v in node.outputs:
                number[v] = len(number)
        form.append(-1)
        form += [number[v] for v in outputs]
        return tuple(form)

    def _fits(self, members: Sequence[int], body: Sequence[int], outputs: Sequence[Value],
              entering: Sequence[Value], growing: bool) -> bool:
        """Whether a body runs in one nest, or as one product, and gains by it."""
        roots = [i for i in members if self.root[i]]
        try:
            if roots:
                few = growing or len(outputs) <= EPILOGUE_OUTPUTS
                return few and len(roots) == 1 and self._epilogue(roots[0], body, outputs, entering)
            space = align([self.nodes[i] for i in body], outputs)
        except NotANest:
            return False
        return self._gains(members, space)

    def _returns(self, members: Sequence[int], entering: Sequence[Value]) -> bool:
        """Whether a member's value comes in again through free nodes outside, as a slice of it that is sliced again."""
        stack = [self.made[v] for v in entering if v in self.made and self.free[self.made[v]]]
        while stack:
            found = [self.made[v] for v in self.nodes[stack.pop()].inputs if v in self.made]
            if any(j in members for j in found):
                return True
            stack += [j for j in found if self.free[j]]
        return False

    def _epilogue(self, root: int, body: Sequence[int], outputs: Sequence[Value], entering: Sequence[Value]) -> bool:
        product, wide = self.nodes[root].output, self.nodes[root].attrs.get("wide")  # whose results may be halves again
        if any(v.shape != product.shape or v.tensor.dtype != product.tensor.dtype and not wide for v in outputs):
            return False
        graph = Graph("body", tuple(entering), (), (), tuple(self.nodes[i] for i in body), tuple(outputs))
        full = [o for o in epilogue_of(graph).operands if o.value.tensor.size == product.tensor.size]
        return len(full) <= EPILOGUE_OPERANDS

    def _gains(self, members: Sequence[int], space: Alignment) -> bool:
        """Whether one kernel is faster than several; see the constants above."""
        size = prod(space.extents)
        costly = [i for i in members if self.costly[i] and self.nodes[i].op.name == "map"]
        if space.reduced and len(space.reduced) == len(space.order) and size > SERIAL_POINTS and costly:
            return False
        for i in costly:
            v = self.nodes[i].output
            own = space.axes[v]
            narrow = not space.covers(v) and not (space.reduced and space.is_row(v))
            if narrow and space.order[-1] in own and size > 2 * v.tensor.size:
                return False
        return True

    # Growth

    def grow(self) -> Partition:
        """Join every node with its producers, then regions that read the same tensor; return the partition.

        Products choose their epilogues first. Siblings come last: a node that joined one too early might be kept from
        the readers of its result.
        """
        for i, root in enumerate(self.root):
            if root:
                self._grow_epilogue(i)
        for others in (self._producers, self._siblings):
            for i, inside in enumerate(self.nest):
                if inside and i not in self.rooted:
                    for j in others(i):
                        self._try(j, i)
        return self.partition

    def _grow_epilogue(self, root: int) -> None:
        """Give a product the largest worthwhile epilogue among those found by adding one reader after the other."""
        p = self.partition
        members, best = [root], 1
        tried: set[int] = set()
        while len(members) < MAX_EPILOGUE_NODES:
            readers = sorted({j for i in members for j in self.readers(self.nodes[i].output)} - tried - {-1, *members})
            found = next((j for j in readers if self.nest[j] and not self.update[j]), None)
            if found is None:
                break
            tried.add(found)
            # Its other operands must not come from the region by a detour.
            own = [p.group[i] for i in members]
            if any(p.waits(p.group[j], own) for j in p.needs(found) if j not in members):
                continue
            wider = sorted([*members, found])
            if self._compatible(root, found) and self.legal(wider, growing=True):
                # The order of joining is the order of nodes, so a prefix of the joined nodes is a region too.
                members.append(found)
                if self.legal(wider) and self._worth_storing(self.escaping(wider)):
                    best = len(members)
        if best > 1:
            self.rooted.update(p.members[p.join(*(p.group[i] for i in members[:best]))])

    def _worth_storing(self, outputs: Sequence[Value]) -> bool:
        """Whether a product's kernel should write all of ``outputs``: none that its readers could compute as well."""
        return all(self.costly[self.made[v]] or any(j < 0 or not self.nest[j] for j in self.readers(v))
                   for v in outputs[1:])

    def _producers(self, i: int) -> list[int]:
        """The nodes whose results node ``i`` reads, the latest first."""
        found = [self.made.get(self.source(v), -1) for v in self.nodes[i].inputs]
        return sorted({j for j in found if j >= 0 and self.nest[j] and j not in self.rooted}, reverse=True)

    def _siblings(self, i: int) -> list[int]:
        """The latest few nodes before ``i`` that read a tensor it reads; ``arange`` does not count as one."""
        found: dict[int, None] = {}
        for v in map(self.source, self.nodes[i].inputs):
            made = self.made.get(v)
            if v.tensor.size > 1 and (made is None or self.nodes[made].op.name != "arange"):
                readers = [r for r in self.readers(v) if 0 <= r < i and self.nest[r] and r not in self.rooted]
                found.update(dict.fromkeys(readers[-SIBLING_READERS:]))
        return sorted(found, reverse=True)

    def _try(self, j: int, i: int) -> None:
        p = self.partition
        a, b = p.group[j], p.group[i]
        if a == b or self.update[i] != self.update[j]:
            return
        if not self._compatible(j, i) or not p.can_join(a, b):
            return
        if self.legal(sorted(p.members[a] + p.members[b])):
            p.join(a, b)

    def _compatible(self, j: int, i: int) -> bool:
        """A quick test: of two nodes in one nest, the smaller domain is a part of the larger one."""
        a, b = self._largest(j), self._largest(i)
        if self.root[j]:
            return _thin(self.nodes[j].output.shape) == b
        return a == b or _within(a, b) or _within(b, a)

    def _largest(self, i: int) -> tuple[int, ...]:
        """The extents above 1 of the largest tensor that a node reads or writes."""
        if i not in self._thin:
            node = self.nodes[i]
            self._thin[i] = _thin(max([v.shape for v in (*node.inputs, *node.outputs)], key=_points))
        return self._thin[i]


def _points(shape: tuple[int, ...]) -> tuple[int, int]:
    return (prod(shape), len(shape))
