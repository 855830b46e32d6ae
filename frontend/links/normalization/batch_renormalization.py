"""Batch renormalization with its parameters."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...configuration import config
from .batch_normalization import BatchNormalization

__all__ = ["BatchRenormalization"]


class BatchRenormalization(BatchNormalization):
    """Normalizes each channel as batch normalization does, corrected towards the moving averages while training.

    Args:
        size: Number of channels, or shape of the channel dimensions.
        rmax: Greatest correction of the deviation; as ``dmax`` it may be assigned between calls.
        dmax: Greatest correction of the mean.
        decay: Decay rate of the moving averages.
        eps: Added to the variances.
        dtype: As for :class:`~kusari.links.BatchNormalization`, like all that follows.
        use_gamma: Whether to scale.
        use_beta: Whether to shift.
        initial_gamma: Initializer of the scale; by default 1.
        initial_beta: Initializer of the shift; by default 0.
        initial_avg_mean: Initializer of the mean; by default 0.
        initial_avg_var: Initializer of the variance; by default 1.

    See: :func:`~kusari.functions.batch_renormalization`.

    >>> L.BatchRenormalization(3, rmax=3, dmax=5)(np.ones((4, 3), "float32")).shape
    (4, 3)
    """

    def __init__(
        self,
        size: int | tuple[int, ...],
        rmax: float = 1,
        dmax: float = 0,
        decay: float = 0.9,
        eps: float = 2e-5,
        dtype: Any = None,
        use_gamma: bool = True,
        use_beta: bool = True,
        initial_gamma: Any = None,
        initial_beta: Any = None,
        initial_avg_mean: Any = None,
        initial_avg_var: Any = None,
    ) -> None:
        super().__init__(size, decay, eps, dtype, use_gamma, use_beta, initial_gamma, initial_beta, None,
                         initial_avg_mean, initial_avg_var)  # fmt: skip
        self.rmax = rmax
        self.dmax = dmax
        self._before: tuple[Any, ...] = ()  # the statistics that a call saw which is to be made again

    def forward(self, x: Any, finetune: bool = False) -> Any:
        """Normalize ``x``.

        Args:
            x: Input, batch first.
            finetune: While training, take exact means of the statistics instead of moving averages.
        """
        gamma, beta = self._scale_and_shift()
        if not config.train:
            return F.fixed_batch_normalization(x, gamma, beta, self.avg_mean, self.avg_var, self.eps)
        decay = self.decay
        if finetune:
            self.N += not config.in_recomputing
            decay = 1.0 - 1.0 / self.N
        if config._will_recompute:
            self._before = self.avg_mean.copy(), self.avg_var.copy()
        mean, var = self._before if config.in_recomputing else (self.avg_mean, self.avg_var)
        return F.batch_renormalization(x, gamma, beta, self.rmax, self.dmax, self.eps, mean, var, decay,
                                       update_statistics=True)
