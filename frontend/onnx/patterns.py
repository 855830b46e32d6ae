"""Operators of newer opsets in place of several older ones: Gelu from opset 20 on, Attention from 23 on.

A pattern replaces the node that makes its result; nodes that only it needed are pruned afterwards.
"""
from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np


class _Patterns:
    """The nodes of a graph by what they make."""

    def __init__(self, g: Any, nodes: list[Any]) -> None:
        self.g = g
        self.made = {name: node for node in nodes for name in node.output if name}

    def by(self, name: str, *operators: str) -> Any:
        """Return the node that makes ``name``, if it is one of these operators."""
        node = self.made.get(name)
        return node if node is not None and node.op_type in operators else None

    def number(self, name: str) -> float | None:
        """Return the number that a constant is; None for anything else."""
        array = self.g.value(name)
        if array is None or array.size != 1 or array.dtype.kind != "f":
            return None
        return float(array.reshape(-1)[0])

    def factors(self, name: str) -> tuple[Counter[str], float]:
        """Return what is multiplied to make ``name``, and the product of the constants among it."""
        found: Counter[str] = Counter()
        constant = 1.0
        waiting = [name]
        while waiting:
            name = waiting.pop()
            node, number = self.by(name, "Mul", "Div"), self.number(name)
            if number is not None:
                constant *= number
            elif node is not None and node.op_type == "Mul":
                waiting += node.input
            elif node is not None and (by := self.number(node.input[1])):
                constant /= by
                waiting.append(node.input[0])
            elif (power := self.by(name, "Pow")) is not None and self.number(power.input[1]) in (2.0, 3.0):
                found[power.input[0]] += int(self.number(power.input[1]) or 0)
            else:
                found[name] += 1
        return found, constant

    def plus(self, name: str) -> list[tuple[str, str]]:
        """Return the two sides of a sum in both orders; nothing if ``name`` is none."""
        node = self.by(name, "Add")
        return [] if node is None else [tuple(node.input), tuple(node.input)[::-1]]

    # -- Gelu ---------------------------------------------------------------------------------------------------

    def gelu(self, node: Any) -> tuple[str, str] | None:
        """Return the input and the kind of the Gelu that ``node`` completes: ``x (1 + erf(x / sqrt 2)) / 2``."""
        if node.op_type not in ("Mul", "Div"):
            return None
        found, constant = self.factors(node.output[0])
        if len(found) != 2 or set(found.values()) != {1} or not _close(constant, 0.5):
            return None
        for x, total in (tuple(found), tuple(found)[::-1]):
            for one, curve in self.plus(total):
                if self.number(one) == 1:
                    inner = self.by(curve, "Erf", "Tanh")
                    if inner is not None and (self._erf if inner.op_type == "Erf" else self._tanh)(inner.input[0], x):
                        return x, "none" if inner.op_type == "Erf" else "tanh"
        return None

    def _erf(self, name: str, x: str) -> bool:
        found, constant = self.factors(name)
        return found == Counter([x]) and _close(constant, 0.5 ** 0.5)

    def _tanh(self, name: str, x: str) -> bool:
        found, constant = self.factors(name)
        if len(found) != 1 or not _close(constant, (2 / math.pi) ** 0.5):
            return False
        for first, cube in self.plus(next(iter(found))):
            powers, factor = self.factors(cube)
            if first == x and powers == Counter({x: 3}) and _close(factor, 0.044715):
                return True
        return False

    # -- Attention ----------------------------------------------------------------------------------------------

    def attention(self, node: Any) -> tuple[list[str], float] | None:
        """Return the inputs and the scale of the attention that ``node``, a product with values, completes."""
        if node.op_type != "MatMul":
            return None
        softmax = self.by(node.input[0], "Softmax")
        if softmax is None or _attribute(softmax, "axis", -1) not in (-1, 3):
            return None
        value, scores, mask = node.input[1], softmax.input[0], ""
        for part, other in [(scores, ""), *self.plus(scores)]:
            found, scale = self.factors(part)
            product = self.by(next(iter(found)), "MatMul") if len(found) == 1 and set(found.values()) == {1} else None
            if product is None:
                continue
            turned = self.by(product.input[1], "Transpose")
            if turned is None or _attribute(turned, "perm", None) != [0, 1, 3, 2]:
                continue
            query, key, mask = product.input[0], turned.input[0], other
            shapes = [self.shape(name) for name in (query, key, value)]
            if any(s is None or len(s) != 4 for s in shapes) or not all(
                    self.g.type(name).dtype == np.float32 for name in (query, key, value)):
                continue
            q, k, v = shapes
            if q[:2] == k[:2] == v[:2] and k[2] == v[2] and (not mask or self._masks(mask, (*q[:3], k[2]))):
                return [query, key, value, *([mask] if mask else [])], scale
        return None

    def _masks(self, mask: str, scores: tuple[int, ...]) -> bool:
        shape = self.shape(mask)
        return shape is not None and len(shape) in (2, 4) and shape[-2:] == scores[-2:] and all(
            m in (1, n) for m, n in zip(shape[:-2], scores[:2], strict=False)) and self.g.type(mask).dtype == np.float32

    def shape(self, name: str) -> Any:
        """Return the shape of a name, None where it is not known."""
        kind = self.g.types.get(name)
        return None if kind is None else kind.shape


def _attribute(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return list(attribute.ints) if attribute.ints else attribute.i
    return default


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-5 * b


def modernized(g: Any, nodes: list[Any]) -> list[Any]:
    """Return the nodes with patterns replaced, as far as the opset of ``g`` has the operators."""
    if g.opset < 20:
        return nodes
    patterns = _Patterns(g, nodes)
    helper, result = g.onnx.helper, list[Any]()
    for node in nodes:
        made = None
        if (gelu := patterns.gelu(node)) is not None:
            made = helper.make_node("Gelu", [gelu[0]], [], **({"approximate": gelu[1]} if gelu[1] != "none" else {}))
        elif g.opset >= 23 and (attention := patterns.attention(node)) is not None:
            made = helper.make_node("Attention", attention[0], [], scale=float(attention[1]))
        if made is not None:
            made.output.append(node.output[0])
            link, slash, _ = node.name.rpartition("/")
            made.name = f"{link}{slash}{g.fresh(made.op_type)}"
            made.doc_string = node.doc_string
            made.metadata_props.extend(node.metadata_props)
        result.append(node if made is None else made)
    return result
