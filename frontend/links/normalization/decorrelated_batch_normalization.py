"""Decorrelated batch normalization with its statistics."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ... import functions as F
from ...configuration import config
from ...link import Link
from ...serializer import Deserializer

__all__ = ["DecorrelatedBatchNormalization"]


class DecorrelatedBatchNormalization(Link):
    """Makes groups of channels uncorrelated, with zero mean and unit variance.

    While training (``config.train``) it uses the statistics of the batch and keeps moving averages of them, or (with
    ``finetune=True``) their mean since :meth:`start_finetuning`. Otherwise it uses those.

    Args:
        size: Number of channels.
        groups: Number of groups; divides ``size``.
        decay: Decay rate of the moving averages.
        eps: Added to the variances.
        dtype: Dtype of the statistics.

    Attributes:
        avg_mean: Means used outside training; a persistent value.
        avg_projection: Projections used outside training; a persistent value.
        N: Number of batches seen by fine-tuning; a persistent value.

    Raises:
        ValueError: ``groups`` does not divide ``size``.

    See: :func:`~kusari.functions.decorrelated_batch_normalization`.

    >>> L.DecorrelatedBatchNormalization(4, groups=2)(np.random.randn(8, 4).astype("float32")).shape
    (8, 4)
    """

    avg_mean: Any
    avg_projection: Any

    def __init__(self, size: int, groups: int = 16, decay: float = 0.9, eps: float = 2e-5,
                 dtype: Any = np.float32) -> None:
        super().__init__()
        if groups < 1 or size % groups:
            raise ValueError(f"groups must divide the number of channels, got {groups} for {size}")
        c = size // groups
        self.decay = decay
        self.eps = eps
        self.groups = groups
        self.N = 0
        self.avg_mean = self.device.send(np.zeros((groups, c), dtype))
        self.avg_projection = self.device.send(np.tile(np.eye(c, dtype=dtype), (groups, 1, 1)))
        for name in ("avg_mean", "avg_projection", "N"):
            self.register_persistent(name)

    def forward(self, x: Any, *, finetune: bool = False) -> Any:
        """Normalize ``x``, of shape (N, channels, …).

        Args:
            x: Input.
            finetune: While training, take exact means of the statistics instead of moving averages.
        """
        if not config.train:
            return F.fixed_decorrelated_batch_normalization(x, self.avg_mean, self.avg_projection, self.groups)
        decay = self.decay
        if finetune:
            self.N += not config.in_recomputing
            decay = 1.0 - 1.0 / self.N
        return F.decorrelated_batch_normalization(x, groups=self.groups, eps=self.eps, running_mean=self.avg_mean,
                                                  running_projection=self.avg_projection, decay=decay)

    def serialize(self, serializer: Any) -> None:
        """Save or load the statistics; in files of old versions of Chainer all groups have the same."""
        own = {name: getattr(self, name) for name in ("avg_mean", "avg_projection")}
        if isinstance(serializer, Deserializer):
            for name, array in own.items():
                saved = serializer(name, None)
                if saved is not None and saved.ndim < array.ndim:
                    setattr(self, name, self.xp.empty(saved.shape, array.dtype))
            if self.groups > 1 and self.avg_mean.ndim < 2:
                warnings.warn("the file has statistics that are the same for all groups: each gets them", UserWarning,
                              stacklevel=2)
        super().serialize(serializer)
        for name, array in own.items():
            if getattr(self, name).shape != array.shape:
                array[...] = getattr(self, name)
                setattr(self, name, array)

    def start_finetuning(self) -> None:
        """Forget the batches that fine-tuning has seen."""
        self.N = 0
