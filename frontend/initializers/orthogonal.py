"""The orthogonal initializer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import backend
from ..initializer import Initializer

__all__ = ["Orthogonal"]


class Orthogonal(Initializer):
    """Fills with a random matrix whose rows or columns are orthogonal, times ``scale``.

    An array of more than two dimensions is seen as a matrix of ``shape[0]`` outputs.
    Saxe et al., `Exact solutions to the nonlinear dynamics of learning in deep linear neural networks
    <https://arxiv.org/abs/1312.6120>`_ (2013).

    Args:
        scale: Length of the orthogonal vectors.
        dtype: See :class:`~kusari.Initializer`.
        mode: ``'projection'`` (inputs ≥ outputs), ``'embedding'`` (inputs ≤ outputs), ``'basis'`` (equal), or
            ``'auto'`` for whichever the shape asks.
        rng: Random state to draw from instead of the global one.

    Raises:
        ValueError: ``mode`` is unknown or does not fit the shape, or the array is empty.
    """

    _WRONG = {
        "auto": lambda n_in, n_out: False,
        "projection": lambda n_in, n_out: n_in < n_out,
        "embedding": lambda n_in, n_out: n_in > n_out,
        "basis": lambda n_in, n_out: n_in != n_out,
    }

    def __init__(self, scale: float = 1.1, dtype: Any = None, mode: str = "auto", **kwargs: Any) -> None:
        super().__init__(dtype)
        if mode not in self._WRONG:
            raise ValueError(f"Invalid mode: {mode!r}. Choose from {', '.join(map(repr, self._WRONG))}.")
        self.scale = scale
        self.mode = mode
        self.rng = kwargs.pop("rng", None)
        if kwargs:
            raise TypeError(f"Orthogonal() got unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")

    def __call__(self, array: Any) -> None:
        array = self._elements_of(array)
        if array.size == 0:
            raise ValueError(f"Array to be initialized must be non-empty. Actual shape: {array.shape}")
        outputs = array.shape[0] if array.ndim else 1
        inputs = math.prod(array.shape[1:])
        if self._WRONG[self.mode](inputs, outputs):
            raise ValueError(
                f"Cannot make orthogonal {self.mode}. shape = {array.shape}, "
                f"interpreted as {inputs}-dim input and {outputs}-dim output."
            )
        xp = backend.get_array_module(array)
        generator = xp.random if self.rng is None else self.rng
        matrix = generator.normal(size=(outputs, inputs))
        wide = inputs > outputs
        q, r = xp.linalg.qr(matrix.T if wide else matrix)
        # The signs make the distribution uniform over the orthogonal matrices.
        q *= xp.copysign(np.float64(self.scale), xp.diag(r))
        array[...] = (q.T if wide else q).reshape(array.shape)
