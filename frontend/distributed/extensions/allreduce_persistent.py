"""Means of persistent values, such as the statistics of batch normalization."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...training.extension import PRIORITY_WRITER, Extension
from ...utils.arrays import is_array

__all__ = ["AllreducePersistent"]


class AllreducePersistent(Extension):
    """Extension that replaces the persistent arrays of a model by their means over all ranks.

    Numbers and arrays of integers stay as they are. It runs before evaluators.

    Args:
        model: The link.
        comm: A communicator.
    """

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER + 1

    def __init__(self, model: Any, comm: Any) -> None:
        self.model = model
        self.comm = comm

    def __call__(self, trainer: Any = None) -> None:
        """Take the means."""
        for _, link in sorted(self.model.namedlinks()):
            for name in sorted(link._persistent):
                value = getattr(link, name)
                if is_array(value) and np.dtype(value.dtype).kind == "f":
                    self.comm.multi_node_mean(None, value)
