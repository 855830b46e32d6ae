"""Dialects of exports: all that a file has besides the computation, and that an export takes or warns of.

`KUSARI` is the default. `ONNX_CHAINER` writes names, parameters and constants as programs know them from ONNX-Chainer.
"""
from __future__ import annotations

import heapq
import itertools
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from kusari.ir import Node, Value

from ..variable import Variable
from .errors import ExportError


class Dialect:
    """Kusari's: parameters are their paths, values are operators with numbers, nodes lie below their links."""

    default_opset: int | None = None
    keys_are_names = True    # whether arguments and results in a dict are called by their keys
    own_outputs = False      # whether outputs without a name given are called as the functions that make them
    complete = False         # whether the file has all of a model's parameters, and constants as nodes
    bakes = False            # whether data that a model reads may be constants
    shares_symbols = True    # whether symbolic dimensions of one name must be one extent
    names_constants = False  # whether constants of converters are called as these wish
    outside = "const"        # the stem of names of arrays that functions are given

    def parameter(self, path: str) -> str:
        """Return the name of a parameter, of a persistent value or of a state."""
        return path

    def value(self, function: str, operator: str) -> str:
        """Return the stem of names of what an operator makes within a function."""
        return operator

    def constant(self, function: str, name: str = "", kind: str = "const") -> str:
        """Return the name of a constant of a function, or the stem of it."""
        return "const"

    def node(self, link: str, name: str, given: str = "") -> str:
        """Return what a node is called: below ``link``, by a ``name`` that is free; a converter may have ``given``."""
        return f"{link.rstrip('/')}/{name}" if link.strip("/") else name

    def results(self, function: str, count: int) -> list[str]:
        """Return the names of a function's results; none where these are called as what makes them."""
        return []

    def data(self, label: str) -> dict[int, str]:
        """Return names of arrays that a function may be given, by the places of inputs."""
        return {}

    def order(self, nodes: list[Node], outputs: Sequence[Value]) -> list[Node]:
        """Return the nodes in the order in which functions are numbered."""
        return nodes

    def check_result(self, result: Any) -> None:
        """Raise ``ExportError`` for a result that a model may not have."""

    def refusal(self, node: Node) -> str | None:
        """Return why a function is not to be exported, or None."""
        return None

    def note(self, label: str) -> None:
        """Warn where runtimes compute a function's operator in different ways."""

    def mismatch(self, error: ExportError, converted: bool) -> None:
        """Raise the error of a model that computes something else; ``converted``: by converters of the user's."""
        raise error


class ChainerDialect(Dialect):
    """ONNX-Chainer's: a function is ``LinearFunction_0``, its result too, and ``param_l1_W`` a parameter."""

    default_opset = 11
    keys_are_names = False
    own_outputs = True
    complete = True
    bakes = True
    shares_symbols = False
    names_constants = True
    outside = "v"

    def parameter(self, path: str) -> str:
        return "param" + path.replace("/", "_")

    def value(self, function: str, operator: str) -> str:
        return f"{function}_tmp" if function else operator

    def constant(self, function: str, name: str = "", kind: str = "const") -> str:
        return "_".join([part for part in (function, kind, name) if part])

    def node(self, link: str, name: str, given: str = "") -> str:
        return given or name

    def results(self, function: str, count: int) -> list[str]:
        return [function] if count == 1 else [f"{function}_{i}" for i in range(count)]

    def data(self, label: str) -> dict[int, str]:
        return dict(enumerate(STATISTICS, 3)) if label.endswith("BatchNormalization") else {}

    def order(self, nodes: list[Node], outputs: Sequence[Value]) -> list[Node]:
        """Back from the outputs, what is farthest from the inputs first, turned round."""
        made = {v: node for node in nodes for v in node.outputs}
        rank: dict[Node, int] = {}
        for node in nodes:
            rank[node] = max([rank[made[v]] + 1 for v in node.inputs if v in made], default=0)
        pushed = itertools.count()
        found: dict[Node, None] = {}
        waiting: list[tuple[int, int, Node]] = []
        values: Iterable[Value] = outputs
        while True:
            for v in values:
                if v in made:
                    heapq.heappush(waiting, (-rank[made[v]], next(pushed), made[v]))
            if not waiting:
                break
            node = heapq.heappop(waiting)[2]
            values = () if node in found else node.inputs
            found[node] = None
        return [*reversed(found), *(node for node in nodes if node not in found)]

    def check_result(self, result: Any) -> None:
        parts = list(result.values()) if isinstance(result, dict) else result
        if not isinstance(result, (Variable, tuple, list, dict)):
            raise ExportError(f"Unexpected output type from the model: {type(result).__name__}; return a Variable")
        for part in [] if isinstance(parts, Variable) else parts:
            if not isinstance(part, Variable):
                raise ExportError(f"every result of the model must be Chainer Variable, got {type(part).__name__}")

    def refusal(self, node: Node) -> str | None:
        kinds = "".join(map(_kind_of_index, getattr(node.attrs.get("function"), "entries", ())))
        if kinds.count("a") < 2 or re.match("i*a+[^a]*$", kinds):
            return None
        return "several arrays of indices must come first, as in ONNX-Chainer; kusari.onnx.export takes them anywhere"

    def note(self, label: str) -> None:
        if label in _NOTES:
            warnings.warn(_NOTES[label], UserWarning, stacklevel=2)

    def mismatch(self, error: ExportError, converted: bool) -> None:
        if not converted:
            raise error
        warnings.warn(f"{error}; as external_converters wish, if they mean it", UserWarning, stacklevel=2)


def _kind_of_index(entry: Any) -> str:
    if entry == "@" or type(entry) is tuple and entry[0] == "#":
        return "a"
    return "i" if type(entry) is int else "-"


STATISTICS = ("avg_mean", "avg_var")
_NOTES = {
    "ResizeImages": "resize_images is exported with its corners aligned, which not every runtime takes notice of",
    "ROIPooling2D": "roi_pooling_2d is exported as MaxRoiPool, and not every runtime divides regions alike",
}

KUSARI = Dialect()
ONNX_CHAINER = ChainerDialect()
