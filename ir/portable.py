"""Plans and programs as plain data, which another process may read, and the digest by which it finds them.

Only graphs of primitives have such a form. Values are numbers: the sources in order, then the results of nodes in
order.
"""
from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, cast

import numpy as np

from .expr import Arg, Call, Expr, Lit, walk
from .graph import Graph, Node, Value
from .op import Op
from .plan import Arena, External, Plan, Slot
from .primitives import PRIMITIVES
from .program import Choice, Instruction, Kernel, Program
from .types import TensorType, parse_type

_PLAIN = frozenset((bool, int, float, str, type(None)))


class NotPortable(Exception):
    """A part of a graph has no form outside of this process; the message names it."""


def _own_strings(graph: Graph) -> list[str]:
    """The user's names and lines: the graph's name, hints of values, places of nodes."""
    return list(dict.fromkeys([graph.name, *(v.hint for v in _values(graph)), *(n.where for n in graph.nodes)]))


class _Writer:
    """Tables of common parts: types, attributes with their op. Strings of ``origin`` are written as numbers."""

    def __init__(self, origin: Graph) -> None:
        self.types: list[str] = []
        self.kinds: list[Any] = []
        self.strings: list[str] = []  # strings that are not the origin's
        self._type: dict[Any, int] = {}
        self._kind: dict[Any, int] = {}
        self._string = {s: i for i, s in enumerate(_own_strings(origin))}

    def string(self, s: str) -> int:
        found = self._string.get(s)
        if found is None:
            found = self._string[s] = len(self._string)
            self.strings.append(s)
        return found

    def type(self, v: Value) -> int:
        found = self._type.get(v.type)
        if found is None:
            if not isinstance(v.type, TensorType):
                raise NotPortable(f"a {v.type!r}")
            found = self._type[v.type] = len(self.types)
            self.types.append(repr(v.type))
        return found

    def kind(self, node: Node) -> int:
        op = node.op
        if op.key is None or PRIMITIVES.get(op.name) is not op:
            raise NotPortable(f"{op}")
        key = op, op.key(node.attrs)
        found = self._kind.get(key)
        if found is None:
            # The number comes last, as a body has kinds of its own.
            row = [op.name, {k: self.attribute(x) for k, x in node.attrs.items()}]
            found = self._kind[key] = len(self.kinds)
            self.kinds.append(row)
        return found

    def attribute(self, x: Any) -> Any:
        if type(x) in _PLAIN:
            return x
        if isinstance(x, tuple):
            return [self.attribute(e) for e in cast("tuple[Any, ...]", x)]
        if isinstance(x, (Arg, Lit, Call)):
            return {"expr": _steps(x)}
        if isinstance(x, Graph) and not x.consts and not x.params:
            return {"body": self.graph(x)}
        raise NotPortable(f"an attribute {x!r}")

    def graph(self, graph: Graph) -> dict[str, Any]:
        """The nodes and values of a graph as data, without the contents of its consts."""
        sources = list(graph.sources())
        number = {v: i for i, v in enumerate(sources)}
        hints = [(i, self.string(v.hint)) for i, v in enumerate(sources) if v.hint]
        nodes: list[Any] = []
        for node in graph.nodes:
            reads = [number[v] for v in node.inputs]
            for v in node.outputs:
                if v.hint:
                    hints.append((len(number), self.string(v.hint)))
                number[v] = len(number)
            nodes.append((self.kind(node), reads, [self.type(v) for v in node.outputs], self.string(node.where)))
        return {"name": self.string(graph.name), "inputs": [self.type(v) for v in graph.inputs],
                "params": [self.type(v) for v in graph.params], "consts": [self.type(v) for v, _ in graph.consts],
                "hints": hints, "nodes": nodes, "outputs": [number[v] for v in graph.outputs]}

    def text(self, **more: Any) -> str:
        return json.dumps({"types": self.types, "kinds": self.kinds, "strings": self.strings, **more},
                          separators=(",", ":"))


def _steps(expr: Expr) -> list[Any]:
    """The distinct subtrees of an expression, operands first: each with its kind and the numbers of its operands."""
    number: dict[Expr, int] = {}
    steps: list[Any] = []
    for e in walk(expr):
        number[e] = len(number)
        if isinstance(e, Call):
            steps.append([e.fn, *(number[a] for a in e.args)])
        elif isinstance(e, Arg):
            steps.append(e.index)
        elif type(e.value) in _PLAIN:
            steps.append({"is": e.value})
        else:
            raise NotPortable(f"{e!r}")
    return steps


def digest_of(graph: Graph, *options: Any) -> str:
    """Return a digest that two graphs share if every pass treats them alike under the same ``options``, in any process.

    The user's names and lines take no part, only their equality. Contents of constants do. Raises ``NotPortable``.
    """
    writer = _Writer(graph)
    digest = hashlib.sha256(writer.text(graph=writer.graph(graph), options=options).encode())
    for _, array in graph.consts:
        if not isinstance(array, (np.ndarray, np.generic)):
            raise NotPortable("a constant on another device")
        digest.update(hashlib.sha256(cast("np.ndarray[Any, Any]", array).tobytes()).digest())
    return digest.hexdigest()


def write_program(plan: Plan, program: Program, origin: Graph) -> bytes:
    """Return ``plan``, made by the passes from ``origin``, and its program as data. Raises ``NotPortable``."""
    graph = plan.graph
    if graph.inputs != origin.inputs or graph.params != origin.params:
        raise NotPortable("a graph with other inputs than it had")
    given = {v: i for i, (v, _) in enumerate(origin.consts)}
    consts = [given[v] if v in given else b64encode(np.ascontiguousarray(a).tobytes()).decode("ascii")
              for v, a in graph.consts]
    values = _values(graph)
    number = {v: i for i, v in enumerate(values)}
    writer = _Writer(origin)
    nodes = writer.graph(graph)
    kernels = {kernel: i for i, kernel in enumerate(program.kernels)}
    at = {n: i for i, n in enumerate(graph.nodes)}
    made = {v: i for i, n in enumerate(graph.nodes) for v in n.outputs}
    instructions = [
        (at[i.node] if i.node in at else made[i.node.output], None if i.kernel is None else kernels[i.kernel],
         [number[v] for v in i.operands], i.choice is not None) for i in program.instructions]
    return writer.text(graph=nodes, contents=consts, slots=[_slot(plan.slots.get(v)) for v in values],
                       externals=[number[v] for v in plan.externals], size=plan.arena_size,
                       kernels=[(k.language, k.key) for k in kernels], instructions=instructions).encode()


def read_program(data: bytes, origin: Graph, write: Callable[[Plan], Program]) -> tuple[Plan, Program]:
    """Return the plan and program that ``write_program`` was given, on the values and lines of ``origin``.

    ``origin`` has the digest of the original graph, and ``write`` makes programs as the original one was made: it is
    called when a text, or the reason for a kernel, is asked for. Raises ``ValueError``, ``KeyError``, ``IndexError`` or
    ``TypeError`` for other data.
    """
    found: dict[str, Any] = json.loads(data)
    reader = _Reader(found, _own_strings(origin))
    consts: list[tuple[Value, Any]] = []
    kinds: list[int] = found["graph"]["consts"]
    for kind, what in zip(kinds, found["contents"], strict=True):
        if isinstance(what, int):
            consts.append(origin.consts[what])
        else:
            value = Value(reader.types[kind])
            array = np.frombuffer(b64decode(what), value.tensor.dtype).reshape(value.shape)
            consts.append((value, array.copy()))
    graph = reader.graph(found["graph"], origin.inputs, origin.params, consts)
    values = _values(graph)
    slots: dict[Value, Slot] = {}
    for v, s in zip(values, found["slots"], strict=True):
        if s is not None:
            slots[v] = Arena(s) if isinstance(s, int) else External(s[0], s[1])
    externals: list[int] = found["externals"]
    plan = Plan(graph, slots, tuple([values[i] for i in externals]), found["size"])
    return plan, _program(plan, values, found["kernels"], found["instructions"], write)


def _program(plan: Plan, values: Sequence[Value], kernels: list[tuple[Any, str]],
             table: list[tuple[int, int | None, list[int], bool]], write: Callable[[Plan], Program]) -> Program:
    """The program whose instructions are (node, kernel, operands, whether there was a choice of kernels)."""
    whole = cache(partial(write, plan))
    first: dict[int | None, int] = {}
    for i, (_, k, _, _) in enumerate(table):
        first.setdefault(k, i)

    def kernel_of(i: int) -> Kernel:
        kernel = whole().instructions[i].kernel
        assert kernel is not None
        return kernel

    def choice_of(i: int) -> Choice:
        choice = whole().instructions[i].choice
        assert choice is not None
        return choice()
    known = [Kernel.of_key(language, key, partial(kernel_of, first[k])) for k, (language, key) in enumerate(kernels)]
    instructions: list[Instruction] = []
    for i, (at, k, operands, chosen) in enumerate(table):
        node = plan.graph.nodes[at]
        instructions.append(Instruction(None if k is None else known[k], tuple([values[v] for v in operands]),
                                        plan.remaining(node), partial(choice_of, i) if chosen else None))
    return Program(plan.graph.name, tuple(instructions))


def _values(graph: Graph) -> list[Value]:
    return [*graph.sources(), *(v for n in graph.nodes for v in n.outputs)]


def _slot(slot: Slot | None) -> Any:
    return None if slot is None else slot.offset if isinstance(slot, Arena) else (slot.index, slot.offset)


class _Reader:
    """Reads the tables of ``_Writer``. Equal bodies are one graph, as nests are kept per graph."""

    def __init__(self, tables: dict[str, Any], strings: list[str]) -> None:
        self.types = [parse_type(t) for t in tables["types"]]
        self.strings = [*strings, *tables["strings"]]
        self.kinds: list[tuple[Op, dict[str, Any]]] = []
        for name, attrs in tables["kinds"]:
            self.kinds.append((PRIMITIVES[name], {k: self.attribute(x) for k, x in attrs.items()}))

    def attribute(self, x: Any) -> Any:
        if isinstance(x, list):
            return tuple([self.attribute(e) for e in cast("list[Any]", x)])
        if isinstance(x, dict):
            what = cast("dict[str, Any]", x)
            if "expr" in what:
                return _expr(what["expr"])
            types: list[int] = what["body"]["inputs"]
            inputs = tuple([Value(self.types[t]) for t in types])
            return self.graph(what["body"], inputs, (), ())
        return x

    def graph(self, data: dict[str, Any], inputs: tuple[Value, ...], params: tuple[Value, ...],
              consts: Sequence[tuple[Value, Any]]) -> Graph:
        values: list[Value] = [*inputs, *params, *(v for v, _ in consts)]
        nodes: list[Node] = []
        types, kinds, strings = self.types, self.kinds, self.strings
        table: list[tuple[int, list[int], list[int], int]] = data["nodes"]
        for kind, reads, made, place in table:
            op, attrs = kinds[kind]
            outputs = tuple([Value(types[t]) for t in made])
            nodes.append(Node(op, tuple([values[i] for i in reads]), outputs, attrs, strings[place]))
            values += outputs
        for i, hint in data["hints"]:
            values[i].hint = strings[hint]
        results: list[int] = data["outputs"]
        outputs = tuple([values[i] for i in results])
        return Graph(strings[data["name"]], inputs, params, tuple(consts), tuple(nodes), outputs)


def _expr(steps: list[Any]) -> Expr:
    made: list[Expr] = []
    for s in steps:
        if isinstance(s, int):
            made.append(Arg(s))
        elif isinstance(s, dict):
            made.append(Lit(cast("dict[str, Any]", s)["is"]))
        else:
            row = cast("list[Any]", s)
            operands: list[int] = row[1:]
            made.append(Call(row[0], tuple([made[i] for i in operands])))
    return made[-1]
