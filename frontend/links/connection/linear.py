"""The fully connected layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter
from ...variable import as_array

__all__ = ["Linear"]


class Linear(Link):
    """A fully connected layer: ``y = x W^T + b``.

    Args:
        in_size: Number of inputs; None (or left out) to see it from the first input.
        out_size: Number of outputs.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``, of shape (out, in); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (out,); by default zero.

    Attributes:
        W: Weight matrix.
        b: Bias vector; None with ``nobias``.

    >>> L.Linear(5)(np.ones((2, 3), "float32")).shape
    (2, 5)
    """

    def __init__(
        self,
        in_size: int | None,
        out_size: int | None = None,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
    ) -> None:
        super().__init__()
        if out_size is None:
            in_size, out_size = None, in_size
        self.in_size = in_size
        self.out_size: Any = out_size
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            if in_size is not None:
                self.W.initialize((out_size, in_size))
            if nobias:
                self.b = None
            else:
                self.b = Parameter(_get_initializer(0 if initial_bias is None else initial_bias), out_size)

    @classmethod
    def from_params(cls, W: Any, b: Any = None, nobias: bool = False) -> Linear:
        """Return a layer with copies of the given parameters.

        Args:
            W: Weights of shape (out, in), an array or a variable.
            b: Bias of shape (out,); zero if it is None.
            nobias: Whether to leave out the bias, also where ``b`` is given.

        >>> L.Linear.from_params(np.ones((2, 3), "float32"))(np.ones((1, 3), "float32")).array
        array([[3., 3.]], dtype=float32)
        """
        return cls(W.shape[1], W.shape[0], nobias, as_array(W), as_array(b))

    @property
    def printable_specs(self) -> Iterator[tuple[str, Any]]:
        """The settings that ``str(link)`` shows."""
        yield from (("in_size", self.in_size), ("out_size", self.out_size), ("nobias", self.b is None))

    def forward(self, x: Any, n_batch_axes: int = 1) -> Any:
        """Apply the layer.

        Args:
            x: Input; the axes after the batch axes are taken together, their size is the number of inputs.
            n_batch_axes: Number of leading axes that stay as they are.

        Returns:
            A variable of shape ``x.shape[:n_batch_axes] + (out_size,)``.
        """
        if self.W._array is None:
            self.in_size = math.prod(x.shape[n_batch_axes:])
            self.W.initialize((self.out_size, self.in_size))
        return F.linear(x, self.W, self.b, n_batch_axes=n_batch_axes)
