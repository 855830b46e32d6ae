"""The loss of a tree of binary decisions."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import backend
from ...backends.cuda import to_cpu
from ...broadcasting import broadcast_to
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable, as_variable
from ..activation.sigmoids import softplus
from ..array.cast import cast
from ..array.shape import expand_dims
from ..connection.embed_id import embed_id
from ..math.reduction import sum as sum_


class TreePaths:
    """The way to every leaf of a binary tree: numbers of the nodes, and 1 for left, -1 for right, 0 for no node.

    Nodes are numbered from the root, left parts before right ones.
    """

    def __init__(self, tree: Any) -> None:
        ways: dict[int, list[tuple[int, int]]] = {}
        self.nodes = 0
        self._walk(tree, (), ways)
        width = max((len(way) for way in ways.values()), default=0)
        self.paths = np.zeros((max(ways) + 1, width), np.int32)
        self.codes = np.zeros(self.paths.shape, np.float32)
        self.known = np.zeros(len(self.paths), bool)
        for leaf, way in ways.items():
            self.known[leaf] = True
            for i, (node, code) in enumerate(way):
                self.paths[leaf, i], self.codes[leaf, i] = node, code

    def _walk(self, tree: Any, way: tuple[tuple[int, int], ...], ways: dict[int, list[tuple[int, int]]]) -> None:
        if not isinstance(tree, tuple):
            if not isinstance(tree, (int, np.integer)) or tree < 0 or int(tree) in ways:
                raise ValueError(f"leaves of the tree must be labels, each of them once; got {tree!r}")
            ways[int(tree)] = list(way)
            return
        if len(tree) != 2:
            raise ValueError(f"nodes of the tree must be pairs; got {len(tree)} branches: {tree!r}")
        node = self.nodes
        self.nodes += 1
        for branch, code in zip(tree, (1, -1), strict=True):
            self._walk(branch, (*way, (node, code)), ways)


class PathsOf(FunctionNode):
    """The paths and codes of labels; no gradient."""

    pure = True

    def __init__(self, paths: TreePaths) -> None:
        super().__init__()
        self.paths = paths

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("t",))
        type_check.expect(in_types[0].dtype.kind == "i", in_types[0].ndim == 1)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        xp = backend.get_array_module(inputs[0])
        t = to_cpu(inputs[0])
        table = self.paths
        wrong = (t < 0) | (t >= len(table.known))
        if wrong.any() or not table.known[t].all():
            raise ValueError(f"the tree has no leaf {int(t[wrong][0] if wrong.any() else t[~table.known[t]][0])}; its "
                             f"{int(table.known.sum())} leaves are labels below {len(table.known)}")
        return xp.asarray(table.paths[t]), xp.asarray(table.codes[t])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None for _ in indexes)

    def onnx(self, g: Any, t: str) -> Any:
        return tuple(g.Gather(g.const(table), t, axis=0) for table in (self.paths.paths, self.paths.codes))


def tree_loss(x: Any, t: Any, W: Any, paths: TreePaths) -> Variable:
    """Return the summed loss of the decisions on the way to every label.

    Args:
        x: Vectors, (N, D).
        t: Labels, integers of shape (N,).
        W: One vector for every inner node, (nodes, D).
        paths: The tree.

    Raises:
        ValueError: A label is no leaf of the tree.
        InvalidType: The shapes or dtypes do not fit.
    """
    x, t, W = as_variable(x), as_variable(t), as_variable(W)
    if x.ndim != 2 or x.shape[0] != t.shape[0] or x.shape[1] != W.shape[1]:
        raise type_check.InvalidType("x: (N, D), t: (N,), W: (nodes, D)", f"{x.shape}, {t.shape}, {W.shape}",
                                     "\nInvalid operation is performed in: BinaryHierarchicalSoftmax (Forward)")
    nodes, codes = PathsOf(paths).apply((t,))
    picked = embed_id(nodes, W)
    scores = sum_(picked * broadcast_to(expand_dims(x, 1), picked.shape), axis=2)
    codes = cast(codes, scores.dtype)
    return sum_(softplus(-codes * scores) * codes * codes)


def huffman_tree(word_counts: Mapping[int, int] | Sequence[int]) -> Any:
    """Return the tree in which frequent words have short ways, for `kusari.links.BinaryHierarchicalSoftmax`.

    Args:
        word_counts: How often each word occurs, by its label.

    Raises:
        ValueError: There are no words.

    See: Huffman, `A Method for the Construction of Minimum-Redundancy Codes
    <https://doi.org/10.1109/JRPROC.1952.273898>`_, 1952.
    """
    import heapq
    counts = word_counts.items() if isinstance(word_counts, Mapping) else enumerate(word_counts)
    # Of equal counts comes first what came first, or has the part that did.
    heap: list[tuple[int, int, Any]] = [(count, i, word) for i, (word, count) in enumerate(counts)]
    if not heap:
        raise ValueError("there are no words to make a tree of")
    heapq.heapify(heap)
    while len(heap) > 1:
        (one, place, left), (two, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (one + two, place, (left, right)))
    return heap[0][2]
