"""Gradients of a model replaced by their means over the ranks, in buckets: flat arrays of neighbouring gradients.

All ranks make the same buckets, from the names, shapes and dtypes of their parameters. That these are the same is
compared in the first updates; later on each bucket carries a number made of them, and so a sum that shows whether
all ranks have meant the same.
"""
from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...configuration import config
from ..errors import CollectiveMismatch
from .messages import flat, restored

if TYPE_CHECKING:
    from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["BUCKET_BYTES", "CHECKED_UPDATES", "Bucket", "Reduction", "Run", "layout_of", "members", "require_same"]

BUCKET_BYTES = 1 << 20
CHECKED_UPDATES = 10
_CODES = 1 << 12  # times the number of ranks they are exact in float32

Layout = tuple[tuple[str, str, tuple[int, ...]], ...]


def layout_of(named: Iterable[tuple[str, Any]]) -> Layout:
    """Return names, dtypes and shapes of arrays."""
    return tuple([(name, np.dtype(array.dtype).name, tuple(array.shape)) for name, array in named])


def require_same(comm: MpiCommunicatorBase, operation: str, layout: Layout) -> None:
    """Raise unless all ranks have parameters of the same names, dtypes and shapes.

    Raises:
        CollectiveMismatch: They have not; the message names the first that differs.
    """
    found: list[Layout] = comm.agree(operation, None, lambda: layout)
    for rank, other in enumerate(found):
        if other != found[0]:
            first, here = dict((n, (d, s)) for n, d, s in found[0]), dict((n, (d, s)) for n, d, s in other)
            name = next(n for n, _, _ in (*found[0], *other) if first.get(n) != here.get(n))
            raise CollectiveMismatch(
                f"{operation}: ranks do not have the same arrays: {name} is {_shown(first.get(name))} on rank 0 and "
                f"{_shown(here.get(name))} on rank {rank}. A gradient is missing where a parameter was not used or is "
                "not initialized; zero_fill=True makes it zero where the parameter has an array.")


def _shown(kind: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{kind[0]}{list(kind[1])}"


class Bucket:
    """Gradients that are reduced as one flat array, whose last element is the layout's number."""

    def __init__(self, dtype: Any, layout: Layout, code: int) -> None:
        self.layout = layout
        self.code = code
        self.sizes = [int(np.prod(shape, dtype=np.int64)) for _, _, shape in layout]
        self.buffer = np.empty(sum(self.sizes) + 1, dtype)

    def fill(self, grads: Sequence[Any], ranks: int, rounded: Any = None) -> None:
        """Copy gradients in, divided by the number of ranks; with ``rounded`` as numbers of that dtype."""
        at = 0
        factor = self.buffer.dtype.type(1 / ranks)
        for grad, size in zip(grads, self.sizes, strict=True):
            values = flat(grad)
            np.multiply(values if rounded is None else values.astype(rounded), factor, out=self.buffer[at:at + size])
            at += size
        self.buffer[at] = self.code

    def means(self, size: int) -> list[np.ndarray]:
        """Return the gradients' means as parts of the buffer, once it has been added up over ``size`` ranks.

        Raises:
            CollectiveMismatch: The ranks did not add up the same gradients.
        """
        if self.buffer[-1] != self.code * size:
            names = ", ".join(name for name, _, _ in self.layout)
            raise CollectiveMismatch(
                f"ranks have added up gradients of different parameters; on this rank they were {names}. "
                "comm.set_config('checked_updates', n) compares their names in the first n updates.")
        parts: list[np.ndarray] = []
        at = 0
        for (_, _, shape), count in zip(self.layout, self.sizes, strict=True):
            parts.append(self.buffer[at:at + count].reshape(shape))
            at += count
        return parts


def buckets_of(layout: Layout, bucket_bytes: float, dtypes: Any) -> list[tuple[list[int], Bucket]]:
    """Return buckets, each with the positions of its gradients.

    ``dtypes(name)`` is the dtype in which gradients of a dtype are added. A bucket ends once it is full; gradients of
    one dtype that follow each other share buckets.
    """
    code = zlib.crc32(repr(layout).encode()) % _CODES
    open_ones: dict[Any, list[int]] = {}
    found: list[tuple[list[int], Bucket]] = []

    def close(dtype: Any) -> None:
        positions = open_ones.pop(dtype)
        found.append((positions, Bucket(dtype, tuple([layout[i] for i in positions]), code)))
    filled: dict[Any, int] = {}
    for i, (_, dtype, shape) in enumerate(layout):
        kind = np.dtype(dtypes(dtype))
        open_ones.setdefault(kind, []).append(i)
        filled[kind] = filled.get(kind, 0) + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if filled[kind] >= bucket_bytes:
            close(kind)
            filled[kind] = 0
    for kind in list(open_ones):
        close(kind)
    return found


class Run:
    """The reduction of gradients of one layout, bucket by bucket, in an order that is the same on all ranks."""

    def __init__(self, reduction: Reduction, layout: Layout) -> None:
        comm = reduction.comm
        self.layout = layout
        self._reduction = reduction
        found = buckets_of(layout, comm.bucket_bytes, comm.added_as)
        self.buckets = [positions for positions, _ in found]
        self.arrays = [bucket for _, bucket in found]
        self._pending: list[Any] = []
        reduction.runs.add(self)

    def start(self, k: int, grads: Sequence[Any]) -> None:
        """Copy the gradients of a bucket and start to add them up."""
        comm = self._reduction.comm
        if k == 0:
            self._pending.clear()
            self._reduction.check(self.layout)
        self.poll()
        self.arrays[k].fill(grads, comm.size, comm.rounded)
        self._pending += comm.reduce_buffers([self.arrays[k].buffer], comm.place("multi_node_mean_grad"))

    def poll(self) -> None:
        """Let buckets that are under way go on."""
        for pending in self._pending:
            pending.poll()

    def finish(self, k: int) -> list[np.ndarray]:
        """Wait for a bucket; returns the means, which hold until the next start."""
        self._pending[k].wait()
        parts = self.arrays[k].means(self._reduction.comm.size)
        return [part.astype(self.layout[i][1], copy=False) for i, part in zip(self.buckets[k], parts, strict=True)]


class Started:
    """A reduction under way."""

    def __init__(self, reduction: Reduction, params: Sequence[Any], run: Run) -> None:
        self._reduction, self._params, self._run = reduction, params, run

    def poll(self) -> None:
        """Let it go on."""
        self._run.poll()

    def finish(self) -> None:
        """Write the means to the parameters' gradients."""
        for k, positions in enumerate(self._run.buckets):
            for i, mean in zip(positions, self._run.finish(k), strict=True):
                _store(self._params[i], mean)
        self._reduction.give_back(self._run)


def _store(param: Any, mean: np.ndarray) -> None:
    """Overwrite a gradient; one that cannot be overwritten is replaced."""
    grad = param.grad
    if isinstance(grad, np.ndarray) and grad.flags.writeable:
        grad[...] = mean
    else:
        param.grad = restored(mean.copy(), mean.shape, param.array if grad is None else grad)


class Reduction:
    """Means of gradients over the ranks of a communicator."""

    def __init__(self, comm: MpiCommunicatorBase) -> None:
        self.comm = comm
        self._checked: dict[Layout, int] = {}
        self._idle: dict[tuple[Layout, float], list[Run]] = {}
        self.runs: weakref.WeakSet[Run] = weakref.WeakSet()

    def mean(self, model: Any, zero_fill: bool) -> None:
        """Replace the gradients of a model by their means."""
        self.start(model, zero_fill).finish()

    def start(self, model: Any, zero_fill: bool) -> Any:
        """Copy the gradients of a model and start to add them up."""
        named = gradients_of(model, zero_fill)
        params = [p for _, p in named]
        run = self.take(layout_of((name, p.grad) for name, p in named))
        for k, positions in enumerate(run.buckets):
            run.start(k, [params[i].grad for i in positions])
        if not run.buckets:
            self.check(run.layout)
        return Started(self, params, run)

    def check(self, layout: Layout, operation: str = "multi_node_mean_grad") -> None:
        """Compare the layout with those of the other ranks, in the first updates and in debug mode."""
        seen = self._checked.get(layout, 0)
        if seen < self.comm.checked_updates or config.debug:
            require_same(self.comm, operation, layout)
            self._checked[layout] = seen + 1

    def take(self, layout: Layout) -> Run:
        """Return a run for a layout that is not in use."""
        idle = self._idle.get((layout, self.comm.bucket_bytes))
        return idle.pop() if idle else Run(self, layout)

    def give_back(self, run: Run) -> None:
        """Keep a run for the next reduction."""
        self._idle.setdefault((run.layout, self.comm.bucket_bytes), []).append(run)


def members(model: Any) -> list[tuple[str, Any]]:
    """Return the parameters with arrays, once each, by name: the last first, as backward comes to them."""
    found: dict[int, tuple[str, Any]] = {}
    for name, p in model.namedparams():
        if p.array is not None:
            found.setdefault(id(p), (name, p))
    return [*reversed(found.values())]


def gradients_of(model: Any, zero_fill: bool) -> list[tuple[str, Any]]:
    """Return the parameters that have gradients, by name; with ``zero_fill`` missing ones are zero afterwards."""
    found: list[tuple[str, Any]] = []
    for name, p in members(model):
        if p.grad is None and zero_fill:
            with p.device.create_context():
                p.grad = p.xp.zeros_like(p.array)
        if p.grad is not None:
            found.append((name, p))
    return found
