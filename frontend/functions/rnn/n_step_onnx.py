"""A whole recurrent layer as the operator that ONNX has for it."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...function_node import FunctionNode
from ...tape import recording
from ...variable import as_variable

# Which of Kusari's matrices ONNX's gates are, in its order.
ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "Tanh": (0,), "Relu": (0,)}


class Layer(FunctionNode):
    """All directions of one layer over sequences of one length; made in exports only, and not differentiated.

    Inputs: ``x`` (steps, batch, inputs), a state (directions, batch, units) or two, then matrices and vectors of each
    direction. Outputs: ``y`` (steps, batch, directions * units) and the last states.
    """

    pure = True

    def __init__(self, kind: str, cells: int, gates: int, directions: int, run: Callable[..., tuple[Any, ...]]) -> None:
        super().__init__()
        self.kind = kind
        self.cells = cells
        self.gates = gates
        self.directions = directions
        self.run = run

    @property
    def label(self) -> str:
        return f"NStep{self.kind}"

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        with recording(None):
            return tuple([y._array for y in self.run(*[as_variable(x) for x in inputs])])

    def onnx(self, g: Any, x: str, *rest: str) -> Any:
        states, weights = rest[:self.cells], rest[self.cells:]
        first = g.const(np.array([0], np.int64))
        both = [weights[k * 4 * self.gates:(k + 1) * 4 * self.gates]
                for k in range(self.directions)]
        order, n = ORDERS[self.kind], self.gates

        def joined(offset: int) -> str:
            parts: list[str] = [g.Unsqueeze(_concat(g, [w[offset + j] for j in order], 0), first) for w in both]
            return _concat(g, parts, 0)
        W, R = joined(0), joined(n)
        biases: list[str] = [
            g.Unsqueeze(g.Concat(*[w[2 * n + j] for j in order], *[w[3 * n + j] for j in order], axis=0), first)
            for w in both]
        attributes: dict[str, Any] = {"hidden_size": g.type(states[0]).shape[2],
                                      "direction": "bidirectional" if self.directions == 2 else "forward"}
        operator = self.kind
        if operator in ("Tanh", "Relu"):
            operator, attributes["activations"] = "RNN", [operator] * self.directions
        elif operator == "GRU":
            attributes["linear_before_reset"] = 1
        y, *last = getattr(g, operator)(x, W, R, _concat(g, biases, 0), None, *states, outputs=1 + self.cells,
                                        **attributes)
        y = g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), g.const(np.array([0, 0, -1], np.int64)))
        return (y, *last)


def _concat(g: Any, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else g.Concat(*parts, axis=axis)
