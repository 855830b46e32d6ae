"""The link of the hierarchical softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...functions.loss.hierarchical_softmax import TreePaths, huffman_tree, tree_loss
from ...initializers import Uniform
from ...link import Link
from ...parameter import Parameter

__all__ = ["BinaryHierarchicalSoftmax"]


class BinaryHierarchicalSoftmax(Link):
    """Loss of words that are the leaves of a binary tree, with a logistic decision at every node.

    Morin & Bengio, `Hierarchical Probabilistic Neural Network Language Model
    <https://www.iro.umontreal.ca/~lisa/pointeurs/hierarchical-nnlm-aistats05.pdf>`_ (2005).

    Args:
        in_size: Size of the vectors.
        tree: Nested pairs of labels.
        dtype: Data type of ``W``; by default that of ``config.dtype``.

    Attributes:
        W: One vector for every inner node.

    >>> loss = L.BinaryHierarchicalSoftmax(3, ((0, 1), 2))
    >>> loss(np.zeros((2, 3), "float32"), np.array([0, 2])).array
    array(2.0794415, dtype=float32)
    """

    def __init__(self, in_size: int, tree: Any, dtype: Any = None) -> None:
        super().__init__()
        self.paths = TreePaths(tree)
        with self.init_scope():
            self.W = Parameter(Uniform(1, dtype=dtype), (self.paths.nodes, in_size))

    @staticmethod
    def create_huffman_tree(word_counts: Mapping[int, int] | Sequence[int]) -> Any:
        """Return the tree in which frequent words have short ways.

        Args:
            word_counts: How often each word occurs, by its label.

        >>> L.BinaryHierarchicalSoftmax.create_huffman_tree({0: 8, 1: 5, 2: 6, 3: 4})
        ((3, 1), (2, 0))
        """
        return huffman_tree(word_counts)

    def forward(self, x: Any, t: Any) -> Any:
        """Return the summed loss of vectors ``x``, (N, in_size), and labels ``t``, (N,)."""
        return tree_loss(x, t, self.W, self.paths)
