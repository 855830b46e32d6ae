"""Draws from a discrete distribution in constant time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend import using_device
from ..backends import cuda
from ..device_resident import DeviceResident, DeviceResidentsVisitor

__all__ = ["WalkerAlias"]


class WalkerAlias(DeviceResident):
    """Draws numbers in proportion to given weights, by Walker's alias method.

    The unit interval is cut into as many cells as there are weights, and each cell belongs to two numbers at most: one
    uniform draw finds the cell, and what is left of it decides between the two. Draws come from ``numpy.random``, or
    from ``cupy.random`` once it has been sent to a card.

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
        self.values = np.zeros(2 * count, np.int32)  # those of a cell stand together
        made = full = 0
        shares = (weights / weights.sum()).tolist()
        for number in sorted(range(count), key=lambda i: (shares[i], i)):
            share = shares[number] * count
            while share > 1 and full < made:
                self.values[2 * full + 1] = number
                share -= 1 - float(self.threshold[full])
                full += 1
            self.threshold[made] = share
            self.values[2 * made:2 * made + 2] = number
            made += 1

    def device_resident_accept(self, visitor: DeviceResidentsVisitor) -> None:
        """Show a visitor the tables, too."""
        super().device_resident_accept(visitor)
        self.threshold = visitor.visit_array(self.threshold)
        self.values = visitor.visit_array(self.values)

    @property
    def use_gpu(self) -> bool:
        """Whether it draws on a card.

        Raises:
            RuntimeError: It is on a device of ChainerX's: ask for ``device``.
        """
        if self.xp is not np and self.xp is not cuda.cupy:
            raise RuntimeError(f"use_gpu is for NumPy's and CuPy's devices, and this is on {self.device}; see device")
        return self.xp is not np

    def sample(self, shape: tuple[int, ...]) -> Any:
        """Return an int32 array of draws, on the device."""
        with using_device(self.device):
            return self.sample_xp(self.xp, shape)

    def sample_gpu(self, shape: tuple[int, ...]) -> Any:
        """Return draws on a card, which it has been sent to."""
        return self.sample_xp(cuda.cupy, shape)

    def sample_xp(self, xp: Any, shape: tuple[int, ...]) -> Any:
        """Return draws by the generator of an array module, that of the device."""
        places = xp.random.uniform(0, len(self.threshold), shape)
        cells = places.astype(np.int32)
        second = self.threshold[cells] < (places - cells).astype(np.float32)
        return self.values[2 * cells + second.astype(np.int32)]
