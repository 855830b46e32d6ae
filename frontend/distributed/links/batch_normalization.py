"""Batch normalization over the batches of all ranks."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...configuration import config
from ...links import BatchNormalization
from ..communicators.pure_nccl_communicator import PureNcclCommunicator
from ..functions import allreduce

__all__ = ["MultiNodeBatchNormalization", "get_communication_backend"]


def get_communication_backend(comm: Any, communication_backend: str = "auto") -> str:
    """Return ``'mpi'`` or ``'nccl'``: by which statistics are added up where arrays are on cards.

    Raises:
        ValueError: There is no such backend, or the communicator does not have it.
    """
    if communication_backend not in ("mpi", "nccl", "auto"):
        raise ValueError(f"MultiNodeBatchNormalization does not support {communication_backend}.")
    has_nccl = isinstance(comm, PureNcclCommunicator)
    if communication_backend == "nccl" and not has_nccl:
        raise ValueError(f"nccl is not supported in MultiNodeBatchNormalization when using {type(comm).__name__}.")
    if communication_backend == "auto":
        return "nccl" if has_nccl else "mpi"
    return communication_backend


class MultiNodeBatchNormalization(BatchNormalization):
    """Batch normalization with the statistics of the batches of all ranks, as of one large batch.

    Ranks may have batches of different sizes. Outside training it is `kusari.links.BatchNormalization`.

    Args:
        size: Number of channels, or shape of the channel dimensions.
        comm: A communicator.
        decay, eps, dtype, use_gamma, use_beta, initial_gamma, initial_beta: As for ``BatchNormalization``.
        communication_backend: ``'mpi'``, ``'nccl'`` or ``'auto'``; statistics are few and go by MPI in each case.
        axis: The axes to take statistics over.
    """

    def __init__(self, size: Any, comm: Any, decay: float = 0.9, eps: float = 2e-5, dtype: Any = None,
                 use_gamma: bool = True, use_beta: bool = True, initial_gamma: Any = None, initial_beta: Any = None,
                 communication_backend: str = "auto", *, axis: Any = None) -> None:
        super().__init__(size, decay, eps, dtype, use_gamma, use_beta, initial_gamma, initial_beta, axis,
                         initial_avg_var=0)
        self.comm = comm
        self._communication_backend = get_communication_backend(comm, communication_backend)

    def forward(self, x: Any, *, finetune: bool = False, **kwargs: Any) -> Any:
        """Normalize ``x``; while training, all ranks have to do so together."""
        if not config.train or kwargs:
            return super().forward(x, finetune=finetune, **kwargs)
        if self.avg_mean is None:
            axes = self.axis or ()
            self._initialize_params(
                tuple(n for i, n in enumerate(x.shape) if i not in axes and i - len(x.shape) not in axes))
        known: Any = self.avg_mean
        gamma, beta = self._scale_and_shift()
        if finetune:
            self.N += 1
        decay = 1.0 - 1.0 / self.N if finetune else self.decay
        axes = (0, *range(known.ndim + 1, x.ndim)) if self.axis is None else self.axis
        shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
        wide = F.cast(x, known.dtype)
        mine = int(np.prod([x.shape[i] for i in axes]))
        count = int(self.comm.allreduce(np.array([mine]))[0])
        if count == 0:
            return F.cast(wide, x.dtype)
        mean = allreduce(self.comm, F.sum(wide, axis=axes)) / count
        centred = wide - F.broadcast_to(F.reshape(mean, shape), x.shape)
        variance = allreduce(self.comm, F.sum(centred * centred, axis=axes)) / count
        per_rank = count / self.comm.size
        self._note(mean.array, variance.array * (per_rank / max(per_rank - 1.0, 1.0)), decay)
        factor = F.reshape(gamma * (variance + self.eps) ** -0.5, shape)
        y = centred * F.broadcast_to(factor, x.shape) + F.broadcast_to(F.reshape(beta, shape), x.shape)
        return F.cast(y, x.dtype)

    def _note(self, mean: Any, variance: Any, decay: float) -> None:
        """Update the statistics that are used outside training."""
        if config.in_recomputing:
            return
        for kept, new in ((self.avg_mean, mean), (self.avg_var, variance)):
            kept *= decay
            kept += (1.0 - decay) * new
