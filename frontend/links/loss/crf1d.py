"""The loss of a linear-chain conditional random field, with its parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter

__all__ = ["CRF1d"]


class CRF1d(Link):
    """Labels of sequences whose neighbours depend on each other.

    Args:
        n_label: Number of labels.
        initial_cost: Initializer of ``cost``; by default zero.

    Attributes:
        cost: How well each label goes before each other one, (labels, labels).

    See: :func:`~kusari.functions.crf1d`.

    >>> steps, labels = [np.zeros((1, 2), "float32")] * 2, [np.array([0], "int32")] * 2
    >>> L.CRF1d(2)(steps, labels).array.round(4)
    np.float32(1.3863)
    """

    def __init__(self, n_label: int, initial_cost: Any = None) -> None:
        super().__init__()
        with self.init_scope():
            self.cost = Parameter(_get_initializer(0 if initial_cost is None else initial_cost), (n_label, n_label))

    def forward(self, xs: Sequence[Any], ys: Sequence[Any], reduce: str = "mean", transpose: bool = False) -> Any:
        """Return the loss.

        Args:
            xs: Scores of each step, the sequences in the order of falling length; with ``transpose`` of each sequence,
                in any order.
            ys: Labels in the same arrangement.
            reduce: ``"mean"``, or ``"no"``: losses in the order of falling length.
            transpose: Whether sequences are given instead of steps.
        """
        if transpose:
            order = _by_length(xs)
            xs, ys = (F.transpose_sequence([v[i] for i in order]) for v in (xs, ys))
        return F.crf1d(self.cost, xs, ys, reduce)

    def argmax(self, xs: Sequence[Any], transpose: bool = False) -> Any:
        """Return the best scores, in the order of falling length, and the best labels, arranged as the scores given.

        Args:
            xs: As in `forward`.
            transpose: Whether sequences are given instead of steps.
        """
        if not transpose:
            return F.argmax_crf1d(self.cost, xs)
        order = _by_length(xs)
        score, path = F.argmax_crf1d(self.cost, F.transpose_sequence([xs[i] for i in order]))
        found: list[Any] = [None] * len(order)
        for place, labels in zip(order, F.transpose_sequence(path), strict=True):
            found[place] = labels.array
        return score, found


def _by_length(xs: Sequence[Any]) -> list[int]:
    return sorted(range(len(xs)), key=lambda i: -len(xs[i]))
