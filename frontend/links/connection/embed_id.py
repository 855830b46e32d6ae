"""The embedding of identifiers."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...initializers import Normal, _get_initializer
from ...link import Link
from ...parameter import Parameter
from ...variable import as_array

__all__ = ["EmbedID"]


class EmbedID(Link):
    """Maps identifiers (of words, say) to vectors: a linear layer for one-hot inputs.

    Args:
        in_size: Number of identifiers.
        out_size: Size of the vectors.
        initialW: Initializer of ``W``; by default the normal distribution of deviation 1.
        ignore_label: An identifier that is mapped to zeros.

    Attributes:
        W: The vectors, of shape (in, out).

    >>> embed = L.EmbedID(3, 2, initialW=np.array([[0, 0], [1, 1], [2, 2]], "float32"))
    >>> embed(np.array([2, 1], "int32")).array
    array([[2., 2.],
           [1., 1.]], dtype=float32)
    """

    ignore_label: int | None = None

    def __init__(self, in_size: int, out_size: int, initialW: Any = None, ignore_label: int | None = None) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        with self.init_scope():
            self.W = Parameter(Normal(1.0) if initialW is None else _get_initializer(initialW), (in_size, out_size))

    @classmethod
    def from_params(cls, W: Any, ignore_label: int | None = None) -> EmbedID:
        """Return a layer with a copy of ``W``, an array or a variable of shape (in, out)."""
        return cls(W.shape[0], W.shape[1], as_array(W), ignore_label)

    def forward(self, x: Any) -> Any:
        """Return the vectors of the identifiers ``x`` (integers of any shape): shape ``x.shape + (out_size,)``."""
        return F.embed_id(x, self.W, ignore_label=self.ignore_label)
