"""Draws from a discrete distribution in constant time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.cpu import CpuDevice

__all__ = ["WalkerAlias"]


class WalkerAlias:
    """Draws numbers in proportion to given weights, by Walker's alias method.

    The unit interval is cut into as many cells as there are weights, and each cell belongs to two numbers at most: one
    uniform draw finds the cell, and what is left of it decides between the two. Draws come from ``numpy.random``.

    Args:
        probs: Weights, in any scale.

    Raises:
        ValueError: There is no weight, one is negative, or all are zero.

    >>> np.random.seed(0)
    >>> kusari.utils.WalkerAlias([1, 0, 3]).sample((4,))
    array([0, 2, 2, 0], dtype=int32)
    """

    def __init__(self, probs: Sequence[float] | np.ndarray) -> None:
        weights = np.array(probs, np.float32)
        if weights.ndim != 1 or not weights.size or weights.min() < 0 or not weights.sum() > 0:
            raise ValueError("the weights must be one row of numbers of which none is negative and not all are zero, "
                             f"got {probs!r}")
        count = weights.size
        # In ascending order, so that what is more than a cell fills up cells that were not full.
        self.threshold = np.ones(count, np.float32)
        self.values = np.zeros((count, 2), np.int32)
        made = full = 0
        shares = (weights / weights.sum()).tolist()
        for number in sorted(range(count), key=lambda i: (shares[i], i)):
            share = shares[number] * count
            while share > 1 and full < made:
                self.values[full, 1] = number
                share -= 1 - float(self.threshold[full])
                full += 1
            self.threshold[made] = share
            self.values[made] = number
            made += 1

    @property
    def device(self) -> CpuDevice:
        """The device it draws on, the processor."""
        return CpuDevice()

    def sample(self, shape: tuple[int, ...]) -> Any:
        """Return an int32 array of draws."""
        places = np.random.uniform(0, len(self.threshold), shape)
        cells = places.astype(np.int32)
        second = (self.threshold[cells] < places - cells).astype(np.int32)
        return self.values[cells, second]
