"""The communicator that adds up gradients on cards by NCCL, through CuPy."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...backends import cuda
from ...configuration import global_config
from .gradients import Layout, Reduction, buckets_of, gradients_of, layout_of
from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["PureNcclCommunicator"]

CARD_BUCKET_BYTES = 1 << 24  # at least: each bucket of a step is a graph more, and small ones are all latency
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

    on_cards = True
    _nccl: Any = None
    _stream: Any = None

    def start(self, model: Any, zero_fill: bool) -> Any:
        """Start to add up the gradients of a model."""
        named = gradients_of(model, zero_fill)
        if not named or not all(isinstance(p.grad, cuda.ndarray) for _, p in named):
            return super().start(model, zero_fill)
        self.check(layout_of((name, p.grad) for name, p in named))
        return _OnCards(self, [p for _, p in named])

    def part_of_step(self, named: Sequence[tuple[str, Any]]) -> Any:
        """Return the reduction of the gradients of some parameters for a compiled step."""
        if not named or not all(isinstance(p.array, cuda.ndarray) for _, p in named):
            return super().part_of_step(named)
        return _CardRun(self, layout_of((name, p.array) for name, p in named))

    def connect(self) -> Any:
        """Return NCCL's communicator; the first time all ranks have to ask together."""
        if self._nccl is None:
            nccl = cuda.cupy.cuda.nccl
            key = nccl.get_unique_id() if self.comm.rank == 0 else None
            self._nccl = nccl.NcclCommunicator(self.comm.size, self.comm.bcast_obj(key), self.comm.rank)
            self._stream = cuda.cupy.cuda.Stream(non_blocking=True)
        return self._nccl

    def add_up(self, grads: Sequence[Any], dtype: Any) -> tuple[Any, Any]:
        """Start to add up gradients over the ranks, in a dtype, on a stream of its own, behind all that is under way.

        Returns the flat array that will be the sum, and the event behind it. The host waits for nothing.
        """
        connected = self.connect()
        nccl = cuda.cupy.cuda.nccl
        buffer = cuda.cupy.concatenate([grad.reshape(-1).astype(dtype) for grad in grads])
        self._stream.wait_event(cuda.cupy.cuda.get_current_stream().record())
        connected.allReduce(buffer.data.ptr, buffer.data.ptr, buffer.size,
                            getattr(nccl, _KINDS[np.dtype(buffer.dtype).name]), nccl.NCCL_SUM, self._stream.ptr)
        return buffer, self._stream.record()

    def means(self, total: tuple[Any, Any], kinds: Sequence[tuple[Any, Any]]) -> Iterator[Any]:
        """Yield the means, of shapes and dtypes, that a sum has in order; the current stream waits for it."""
        buffer, done = total
        cuda.cupy.cuda.get_current_stream().wait_event(done)
        at = 0
        for shape, dtype in kinds:
            size = prod(shape)
            part = buffer[at:at + size].reshape(shape).astype(dtype)
            yield part * np.dtype(dtype).type(1 / self.comm.size)
            at += size


class _OnCards:
    """A reduction by NCCL that is under way."""

    def __init__(self, reduction: _NcclReduction, params: list[Any]) -> None:
        chosen = reduction.comm.rounded
        self._reduction, self._params = reduction, params
        kinds: dict[str, list[int]] = {}
        for i, p in enumerate(params):
            kinds.setdefault(np.dtype(p.grad.dtype if chosen is None else chosen).name, []).append(i)
        self._sums = [(positions, reduction.add_up([params[i].grad for i in positions], name))
                      for name, positions in sorted(kinds.items())]

    def poll(self) -> None:
        """Do nothing: cards go on by themselves."""

    def finish(self) -> None:
        """Write the means to the parameters' gradients."""
        for positions, total in self._sums:
            params = [self._params[i] for i in positions]
            means = self._reduction.means(total, [(p.grad.shape, p.grad.dtype) for p in params])
            for p, mean in zip(params, means, strict=True):
                p.grad = mean


class _CardRun:
    """The reduction of gradients of one layout by NCCL, bucket by bucket, as part of a compiled step.

    Buckets are copies, added up on a stream of their own while kernels go on; only streams wait.
    """

    ahead = math.inf  # transfers have the whole backward to hide behind
    rank = 0          # of the parts in place, which there are none of

    def __init__(self, reduction: _NcclReduction, layout: Layout) -> None:
        comm, chosen = reduction.comm, reduction.comm.rounded
        self._reduction, self._layout = reduction, layout
        found = buckets_of(layout, max(comm.bucket_bytes, CARD_BUCKET_BYTES),
                           lambda dtype: dtype if chosen is None else np.dtype(chosen).name)
        self.buckets = [positions for positions, _ in found]
        self._kinds = [bucket for _, bucket in found]
        self._sums: dict[int, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """Begin to add up gradients."""
        self._reduction.check(self._layout)

    def start(self, k: int, grads: Sequence[Any]) -> None:
        """Copy the gradients of a bucket and start to add them up."""
        self._sums[k] = self._reduction.add_up(grads, self._kinds[k].dtype)

    def finish(self, k: int, outs: Sequence[Any] = ()) -> list[Any]:
        """Return the means of a bucket, which are ``outs`` where these are arrays to write them to."""
        kinds = [(shape, dtype) for _, dtype, shape in self._kinds[k].layout]
        means = list(self._reduction.means(self._sums.pop(k), kinds))
        for out, mean in zip(outs, means, strict=False):
            out[...] = mean
        return list(outs) or means

    def in_place(self) -> None:
        """Return None: gradients are not computed in memory that ranks share."""
