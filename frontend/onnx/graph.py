"""From a recording to an ONNX graph: every node by its ``onnx`` facet, or by what it is lowered to."""
from __future__ import annotations

from collections import Counter
from typing import Any

from kusari.ir import PRIMITIVES, Builder, Graph, Node, TensorType, Value

from ..function_names import SEVERAL
from ..functions.array.join import Concat, Separate, SplitAxis, Stack
from ..link import Link
from ..static.trace.ops import op_of
from . import onnx_helper
from .context import Context, ConverterParameter, known_as
from .emitter import Emitter
from .errors import ExportError, NoForm, UnsupportedFunctionsError
from .origin import origin_of
from .primitives import TABLE, reshape
from .replace_func import Faked


class GraphWriter:
    """Writes the nodes of one graph through an emitter.

    Invariant: ``names`` has every value written so far; functions that cannot be written are collected in
    ``unsupported``, and their outputs have names so that writing can go on to find the others. ``read`` has every
    value that is read: a facet may leave out the other outputs.
    """

    def __init__(self, g: Emitter, converters: dict[str, Any], roots: tuple[Link, ...] = ()) -> None:
        self.g = g
        self.converters = converters
        self.context = Context(g, roots)
        self.names: dict[Value, str] = {}
        self.unsupported: list[tuple[str, str, str]] = []
        self.read: set[Value] = set()
        self.made: dict[Value, Node] = {}
        self.functions: dict[Node, str] = {}  # class and number

    def define(self, value: Value, name: str) -> None:
        """Let ``name`` stand for ``value``."""
        self.names[value] = name
        if isinstance(value.type, TensorType):
            self.g.types[name] = value.type

    def write(self, graph: Graph, effects: bool = False) -> None:
        """Write the nodes that the outputs depend on; ``UnsupportedFunctionsError`` names all that cannot be.

        With ``effects`` nodes that write state are written too.
        """
        nodes = needed(graph, effects)
        self.read.update(graph.outputs, *(n.inputs for n in nodes))
        self.functions = numbered(self.g.dialect.order(nodes, graph.outputs))
        for node in nodes:
            self.g.where = node.where
            function = node.attrs.get("function")
            self.g.link, self.g.label = origin_of(function), "" if function is None else node.op.name
            self.g.function = self.functions[node]
            self.call_data(node)
            mark = len(self.g.nodes)
            reason = self.g.dialect.refusal(node) or self.node(node)
            if reason is None:
                self.call_results(node, mark)
            else:
                self.unsupported.append((node.op.name, node.where, reason))
                self.stand_in(node)
        self.g.function = ""
        if self.unsupported:
            lines = "\n".join(f"  {where}: {label}: {why}" for label, where, why in dict.fromkeys(self.unsupported))
            raise UnsupportedFunctionsError(
                f"functions without an ONNX form in opset {self.g.opset}:\n{lines}\n"
                "Use others, give the function an `onnx(self, g, *inputs)` method, or pass external_converters.",
                list(dict.fromkeys(self.unsupported)))

    def call_data(self, node: Node) -> None:
        """Name arrays from outside that only this function is given, as the dialect has them."""
        for place, name in self.g.dialect.data(node.op.name).items():
            old = self.names[node.inputs[place]] if place < len(node.inputs) else ""
            if old in self.g.stored and list(self.names.values()).count(old) == 1:
                new = self.g.free(self.g.dialect.constant(self.g.function, name, "param"))
                self.g.stored.add(new)
                self.g.constants[new] = self.g.constants.pop(old)
                self.define(node.inputs[place], new)

    def call_results(self, node: Node, mark: int) -> None:
        """Name what a function has made, by nodes from number ``mark`` on, as the dialect has it."""
        g, values = self.g, results(node)
        made = {name for proto in g.nodes[mark:] for name in proto.output}
        wanted: dict[str, str] = {}
        for v, name in zip(values, g.dialect.results(g.function, len(values)), strict=False):
            if self.names[v] not in made and v in self.read:  # it is an input as it was
                self.names[v] = g.Identity(self.names[v])
                made.add(self.names[v])
            if self.names[v] in made and self.names[v] != name:
                wanted.setdefault(self.names[v], g.free(name))
        if wanted and len(g.nodes) == mark + 1:
            g.nodes[mark].name = g.dialect.node(g.link, g.nodes[mark].name, g.function)
        g.rename(wanted, mark)
        self.names.update((v, wanted.get(self.names[v], self.names[v])) for v in values)

    def stand_in(self, node: Node) -> None:
        """Name the outputs of a node that was not written."""
        for v in node.outputs:
            self.define(v, self.g.fresh("missing"))

    def node(self, node: Node) -> str | None:
        """Write one node; returns the reason why it cannot be, or None."""
        self.made.update((v, node) for v in node.outputs)
        whole = self._rejoined(node)
        if whole is not None:
            self._take(node, (whole,))
            return None
        # What has been written to before is read as it is then.
        names = [self.g.writes.get(n, n) for n in (self.names[v] for v in node.inputs)]
        label, function = known_as(node)
        if node.op.name in self.converters:
            label, function = node.op.name, node.attrs.get("function") or function
        if label in self.converters:
            try:
                self._convert(node, self.converters[label], function, names)
            except NoForm as error:
                return str(error)
            return None
        self.g.dialect.note(label)
        if isinstance(function, Faked) and (known := function.known()) is not None:
            node = Node(op_of(known), node.inputs, node.outputs, {**node.attrs, "function": known}, node.where)
        ours = type(node.attrs.get("function")).__module__.startswith("kusari.")
        reason = "it has no ONNX form" if ours else "it is a function of your own without an onnx method"
        mark = len(self.g.nodes)
        for form in (node.op.onnx, TABLE.get(node.op.name) if PRIMITIVES.get(node.op.name) is node.op else None):
            if form is None:
                continue
            try:
                made = form(self.g, node.attrs, *names)
                if made is not NotImplemented:
                    self._take(node, (made,) if isinstance(made, str) else tuple(made))
                    return None
                reason = "it has no ONNX form with these options"
            except NoForm as error:
                reason = str(error)
            self.g.rewind(mark)
        if node.op.lower is not None:
            b = Builder(node.where)
            built = node.op.lower(b, node.attrs, *node.inputs)
            if built is not None:
                return self._lowered(node, b.nodes, (built,) if isinstance(built, Value) else tuple(built))
        return reason

    def _rejoined(self, node: Node) -> str | None:
        """Write what joins all parts that another node has taken apart, however many there are; None for the rest."""
        join, parts = node.attrs.get("function"), node.inputs
        source = self.made.get(parts[0]) if parts else None
        taken = None if source is None else source.attrs.get("function")
        if source is None or not isinstance(join, (Stack, Concat)) or not isinstance(taken, (Separate, SplitAxis)) or (
                parts != source.outputs or source.inputs[0] not in self.names):
            return None
        x, shape = self.names[source.inputs[0]], list(source.inputs[0].shape)
        axis = taken.axis % len(shape)
        if isinstance(taken, SplitAxis):  # equal sections: an axis of sections, and one of what is in each
            if len(set(v.shape for v in parts)) > 1:
                return None
            shape[axis:axis + 1] = [len(parts), parts[0].shape[axis]]
            x = reshape(self.g, x, tuple(shape))
        rank = len(shape)
        place = join.axis % (rank if isinstance(join, Stack) else rank - 1)
        order = [i for i in range(rank) if i != axis]
        order.insert(place, axis)
        y = x if axis == place else self.g.Transpose(x, perm=order)
        if isinstance(join, Concat):
            y = reshape(self.g, y, node.outputs[0].shape)
        return self.g.Identity(y) if y in (x, self.names[source.inputs[0]]) else y

    def _lowered(self, node: Node, inner: list[Node], outputs: tuple[Value, ...]) -> str | None:
        mark = len(self.g.nodes)
        self.read.update(outputs, *(n.inputs for n in inner))
        for n in inner:
            reason = self.node(n)
            if reason is not None:
                self.g.rewind(mark)
                return reason
        for old, new in zip(node.outputs, outputs, strict=True):
            self.define(old, self.names[new])
        return None

    def _take(self, node: Node, made: tuple[str | None, ...]) -> None:
        """Let the names that a facet returned stand for the node's outputs, with the types that were observed."""
        for i, v in enumerate(node.outputs):
            name = made[i] if i < len(made) else None
            if name is None:
                if v in self.read:
                    raise NoForm(f"its output {i} is read, which its ONNX form has not")
                self.names[v] = self.g.fresh("hidden")
                continue
            found = self.g.types.get(name)
            if found is not None and found.dtype != v.tensor.dtype:
                name = self.g.Cast(name, to=v.tensor.dtype)
            elif found is not None and found.shape != v.shape:
                raise NoForm(f"its ONNX form has shape {found.shape}, define-by-run {v.shape}")
            self.define(v, name)

    def _convert(self, node: Node, converter: Any, function: Any, names: list[str]) -> None:
        g, values = self.g, results(node)
        outputs = [g.free(name) for name in g.dialect.results(g.function, len(values))] or [
            g.fresh(node.op.name) for _ in values]
        self.context.node = node
        for place, array in node.attrs.get("hidden", {}).items():
            self.context.set_name(array, names[place])
        names = [name for place, name in enumerate(names) if place not in node.attrs.get("hidden", ())]
        onnx_helper.set_func_name(g.function)
        made = converter(ConverterParameter(function, g.opset, names, outputs, self.context))
        own: dict[str, str] = {}  # what it calls values between its nodes, it may do again for another function
        for proto in (made,) if hasattr(made, "op_type") else tuple(made or ()):
            if not hasattr(proto, "op_type"):
                raise ExportError(f"the converter of {node.op.name} must return ONNX nodes, got {proto!r}")
            proto.input[:] = [own.get(name, name) for name in proto.input]
            own.update((name, g.free(name)) for name in proto.output
                       if name and name not in outputs and name not in own)
            proto.output[:] = [own.get(name, name) for name in proto.output]
            proto.name = g.dialect.node(g.link, g.fresh(proto.op_type), proto.name)
            proto.doc_string = proto.doc_string or node.where
            g.append(proto)
        named = dict(zip(values, outputs, strict=True))
        self._take(node, tuple([named.get(v) for v in node.outputs]))


def numbered(nodes: list[Node]) -> dict[Node, str]:
    """Return each function's class and number: ``LinearFunction_0`` is the first of its class."""
    counts: Counter[str] = Counter()
    found: dict[Node, str] = {}
    for node in nodes:
        label, _ = known_as(node)
        found[node] = f"{label}_{counts[label]}"
        counts[label] += 1
    return found


def results(node: Node) -> list[Value]:
    """Return the outputs that Chainer's function has, without those for gradients and the token of users' functions."""
    function = type(node.attrs.get("function"))
    count = 1 if function.__module__.startswith("kusari.functions.") and node.op.name not in SEVERAL else None
    return [v for v in node.outputs if isinstance(v.type, TensorType)][:count]


def needed(graph: Graph, effects: bool = False) -> list[Node]:
    """Return the nodes that the outputs depend on, in order; with ``effects`` also nodes that may write to a param."""
    wanted = set(graph.outputs)
    params = set(graph.params) if effects else set()
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in wanted for v in node.outputs) or not params.isdisjoint(node.inputs):
            kept.append(node)
            wanted.update(node.inputs)
    return kept[::-1]


def prune(protos: list[Any], outputs: list[str]) -> list[Any]:
    """Return the ONNX nodes that the named outputs depend on, in order."""
    wanted = set(outputs)
    kept: list[Any] = []
    for proto in reversed(protos):
        if any(name in wanted for name in proto.output):
            kept.append(proto)
            wanted.update(proto.input)
    return kept[::-1]


def name_outputs(g: Emitter, names: list[str], wanted: tuple[str, ...], sources: set[str]) -> dict[str, str]:
    """Give the graph's outputs their names, by renaming what makes them (returned), or through an Identity."""
    renamed: dict[str, str] = {}
    for name, new in zip(names, wanted, strict=True):
        if name in sources or name in g.constants or name in renamed:
            proto = g.onnx.helper.make_node("Identity", [name], [new], name=g.fresh("Identity"))
            g.nodes.append(proto)
        else:
            renamed[name] = new
        g.types[new] = g.types[name]
    for proto in g.nodes:
        for names_ in (proto.input, proto.output):
            for i, n in enumerate(names_):
                if n in renamed:
                    names_[i] = renamed[n]
    return renamed
