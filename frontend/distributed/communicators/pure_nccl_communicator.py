"""The communicator that adds up gradients on cards by NCCL, through CuPy."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...backends import cuda
from ...configuration import global_config
from .gradients import Reduction, gradients_of, layout_of
from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["PureNcclCommunicator"]

_KINDS = {"float16": "NCCL_FLOAT16", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64"}


class PureNcclCommunicator(MpiCommunicatorBase):
    """Communicator that adds up gradients on cards by NCCL and those in host memory by MPI, in buckets.

    The configuration ``allreduce_grad_dtype`` is the dtype in which gradients travel: float16 or float32. By default
    it is that of the gradients, and float16 with ``config.dtype`` mixed16.
    """

    name = "pure_nccl"

    def __init__(self, mpi_comm: Any = None, channel: Any = None) -> None:
        super().__init__(mpi_comm, channel)
        self.reduction = _NcclReduction(self)
        with self.config_scope():
            self.allreduce_grad_dtype: Any = None

    def set_config(self, name: str, value: Any = True, **kwargs: Any) -> None:
        """Set a configuration: ``allreduce_grad_dtype``, or one that all communicators have.

        Raises:
            ValueError: The dtype is neither float16 nor float32 nor float64.
        """
        if name == "allreduce_grad_dtype" and value is not None:
            value = np.dtype(value)
            if value.name not in _KINDS:
                raise ValueError(f"allreduce_grad_dtype must be numpy.float16, numpy.float32, numpy.float64 or None, "
                                 f"but it is {value}")
        super().set_config(name, value, **kwargs)

    @property
    def travelling_dtype(self) -> Any:
        """The dtype in which gradients travel; None for their own."""
        if self.allreduce_grad_dtype is not None:
            return self.allreduce_grad_dtype
        return np.dtype(np.float16) if global_config.dtype is dtypes.mixed16 else None

    @property
    def rounded(self) -> Any:
        """The dtype to which gradients in host memory are rounded before they are added."""
        return self.travelling_dtype

    def added_as(self, dtype: str) -> str:
        """Return the dtype in which gradients in host memory are added: MPI has no float16."""
        chosen = self.travelling_dtype
        return super().added_as(dtype if chosen is None else chosen.name)


class _NcclReduction(Reduction):
    """Means of gradients: on cards by NCCL, where all of them are there."""

    _nccl: Any = None
    _stream: Any = None

    def start(self, model: Any, zero_fill: bool) -> Any:
        """Start to add up the gradients of a model."""
        named = gradients_of(model, zero_fill)
        if not named or not all(isinstance(p.grad, cuda.ndarray) for _, p in named):
            return super().start(model, zero_fill)
        self.check(layout_of((name, p.grad) for name, p in named))
        return _OnCards(self, [p for _, p in named])

    def connect(self) -> Any:
        """Return NCCL's communicator; the first time all ranks have to ask together."""
        if self._nccl is None:
            nccl = cuda.cupy.cuda.nccl
            key = nccl.get_unique_id() if self.comm.rank == 0 else None
            self._nccl = nccl.NcclCommunicator(self.comm.size, self.comm.bcast_obj(key), self.comm.rank)
            self._stream = cuda.cupy.cuda.Stream(non_blocking=True)
        return self._nccl

    def add_up(self, buffer: Any) -> None:
        """Start to replace a flat array on a card by its sum over the ranks."""
        connected = self.connect()
        nccl = cuda.cupy.cuda.nccl
        cuda.cupy.cuda.Stream.null.synchronize()  # the buffer is complete
        connected.allReduce(buffer.data.ptr, buffer.data.ptr, buffer.size,
                            getattr(nccl, _KINDS[np.dtype(buffer.dtype).name]), nccl.NCCL_SUM, self._stream.ptr)

    def synchronize(self) -> None:
        """Wait for what `add_up` has started."""
        self._stream.synchronize()


class _OnCards:
    """A reduction by NCCL that is under way."""

    def __init__(self, reduction: _NcclReduction, params: list[Any]) -> None:
        xp, chosen = cuda.cupy, reduction.comm.rounded
        self._reduction, self._params = reduction, params
        kinds: dict[str, list[int]] = {}
        for i, p in enumerate(params):
            kinds.setdefault(np.dtype(p.grad.dtype if chosen is None else chosen).name, []).append(i)
        self._buckets = []
        for name, positions in sorted(kinds.items()):
            buffer = xp.concatenate([params[i].grad.reshape(-1).astype(name) for i in positions])
            reduction.add_up(buffer)
            self._buckets.append((positions, buffer))

    def poll(self) -> None:
        """Do nothing: cards go on by themselves."""

    def finish(self) -> None:
        """Write the means to the parameters' gradients."""
        self._reduction.synchronize()
        for positions, buffer in self._buckets:
            at = 0
            for i in positions:
                grad = self._params[i].grad
                part = buffer[at:at + grad.size].reshape(grad.shape).astype(grad.dtype)
                self._params[i].grad = part * np.dtype(grad.dtype).type(1 / self._reduction.comm.size)
                at += grad.size
