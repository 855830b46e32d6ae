"""Gradients of a model replaced by their means over the ranks, in buckets: flat arrays of neighbouring gradients.

All ranks make the same buckets, from the names, shapes and dtypes of their parameters. That these are the same is
compared in the first updates; later on each bucket carries a number made of them, and so a sum that shows whether
all ranks have meant the same.
"""
from __future__ import annotations

import math
import weakref
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ...configuration import config
from ...lazy_array import LazyArray
from ..errors import CollectiveMismatch
from ..transport.shared import PairSum, SharedSum, shared_bytes
from .messages import flat, restored

if TYPE_CHECKING:
    from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["BUCKET_BYTES", "CHECKED_UPDATES", "Bucket", "Reduction", "Run", "layout_of", "members", "require_same"]

BUCKET_BYTES = 1 << 20
CHECKED_UPDATES = 10
SHARED_AHEAD = 2  # buckets
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
    """Gradients that are reduced as one flat array, whose last element is the layout's number.

    Each starts at a multiple of 64 bytes, as kernels write and read them there.
    """

    def __init__(self, dtype: Any, layout: Layout, code: int) -> None:
        self.layout = layout
        self.code = code
        self.dtype = np.dtype(dtype)
        sizes = [math.prod(shape) for _, _, shape in layout]
        self.starts = [0]
        for size in sizes:
            self.starts.append(shared_bytes((self.starts[-1] + size) * self.dtype.itemsize) // self.dtype.itemsize)
        self.ends = [start + size for start, size in zip(self.starts, sizes, strict=False)]
        self.size = self.starts[-1] + 1
        self.nbytes = self.size * self.dtype.itemsize
        self._found = np.empty((), dtype)

    def fill(self, total: Any, grads: Sequence[Any], rounded: Any = None) -> None:
        """Copy gradients to the buffer of a sum, as it takes them; with ``rounded`` as numbers of that dtype."""
        buffer, factor = total.buffer, total.factor
        for grad, at, end, following in zip(grads, self.starts, self.ends, self.starts[1:], strict=False):
            values = flat(grad)
            values = values if rounded is None else values.astype(rounded)
            if factor == 1:
                buffer[at:end] = values
            else:
                np.multiply(values, factor, out=buffer[at:end])
            buffer[end:following] = 0  # what is between them is added as well

    def sign(self, buffer: np.ndarray) -> None:
        """Write the layout's number behind the gradients."""
        buffer[-1] = self.code

    def require_same(self, total: Any, size: int) -> None:
        """Raise unless a sum that is there is one of the same gradients of ``size`` ranks.

        Raises:
            CollectiveMismatch: The ranks did not add up the same gradients.
        """
        total.write(self.size - 1, self._found)
        if self._found != self.code * size * total.weight:
            names = ", ".join(name for name, _, _ in self.layout)
            raise CollectiveMismatch(
                f"ranks have added up gradients of different parameters; on this rank they were {names}. "
                "comm.set_config('checked_updates', n) compares their names in the first n updates.")


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
    """The reduction of gradients of one layout, bucket by bucket, in an order that is the same on all ranks.

    Two ranks that share memory may compute gradients in place: see ``in_place``.
    """

    def __init__(self, reduction: Reduction, layout: Layout) -> None:
        comm = reduction.comm
        self.layout = layout
        self._reduction = reduction
        found = buckets_of(layout, comm.bucket_bytes, comm.added_as)
        self.buckets = [positions for positions, _ in found]
        self._arrays = [bucket for _, bucket in found]
        self._nbytes = sum(shared_bytes(bucket.nbytes) for bucket in self._arrays)
        # Buckets that a compiled step has under way: what is in caches is soon added up where ranks share memory, and
        # transfers of a network have the whole backward to hide behind.
        self.ahead = SHARED_AHEAD if comm.shares else math.inf
        self._started = 0  # buckets
        self._region: Any = None
        self._sums: list[Any] = []
        self._place: Any = None
        self._shown: list[weakref.ref[LazyArray]] = []

    def begin(self) -> None:
        """Begin to add up gradients, once all ranks have read those before."""
        comm = self._reduction.comm
        self._started = 0
        self._place = comm.place("multi_node_mean_grad")
        self._reduction.check(self.layout)
        region = comm.region(self._nbytes)
        if region is not None:
            region.begin(self._place)
        if region is not self._region or not self._sums:
            self._sums = self._sums_in(region)

    def _sums_in(self, region: Any) -> list[Any]:
        comm, self._region = self._reduction.comm, region
        share = 1 / comm.size
        if region is None:
            return [comm.message_sum(np.empty(bucket.size, bucket.dtype), share) for bucket in self._arrays]
        kind = PairSum if comm.size == 2 else SharedSum
        starts = accumulate((shared_bytes(bucket.nbytes) for bucket in self._arrays), initial=0)
        return [kind(region, at, bucket.size, bucket.dtype, share)
                for at, bucket in zip(starts, self._arrays, strict=False)]

    def start(self, k: int, grads: Sequence[Any]) -> None:
        """Copy the gradients of a bucket and start to add them up; with no ``grads`` they are there already."""
        self.poll()
        bucket, total = self._arrays[k], self._sums[k]
        if grads:
            bucket.fill(total, grads, self._reduction.comm.rounded)
        bucket.sign(total.buffer)
        total.start(self._place)
        self._started = k + 1

    def poll(self) -> None:
        """Let buckets that are under way go on."""
        for total in self._sums[:self._started]:
            if total.needs_polls:
                total.poll()

    def wait(self, k: int) -> None:
        """Wait for a bucket."""
        self._sums[k].wait()
        self._arrays[k].require_same(self._sums[k], self._reduction.comm.size)

    def finish(self, k: int, outs: Sequence[Any] = ()) -> list[np.ndarray]:
        """Wait for a bucket; returns the means, which are ``outs`` where these are arrays to write them to."""
        self.wait(k)
        found = list(outs) or [np.empty(shape, dtype) for _, dtype, shape in self._arrays[k].layout]
        for at, out in zip(self._arrays[k].starts, found, strict=False):
            self._sums[k].write(at, out)
        if k == len(self._arrays) - 1 and self._region is not None:
            self._region.end()
        return found

    # Gradients in place

    def in_place(self) -> list[list[np.ndarray]] | None:
        """Return the parts of each bucket, in the order of ranks, where two ranks may read each other's; else None.

        Then a bucket is started without gradients, and what has been waited for may be read in all parts until this
        rank begins again. It holds as long as it ``is_in_place``.
        """
        comm = self._reduction.comm
        region = comm.known_region(self._nbytes)
        kinds = [{np.dtype(dtype) for _, dtype, _ in bucket.layout} for bucket in self._arrays]
        if region is None or comm.size != 2 or comm.rounded is not None or any(
                kind != {bucket.dtype} for kind, bucket in zip(kinds, self._arrays, strict=True)):
            return None
        self._sums = self._sums_in(region)
        return [total.parts for total in self._sums]

    @property
    def is_in_place(self) -> bool:
        """Whether the next sums are where those of ``in_place`` are."""
        return self._reduction.comm.known_region(self._nbytes) is self._region

    @property
    def rank(self) -> int:
        """Which of the parts is this rank's."""
        return self._reduction.comm.rank

    def spans(self, k: int) -> list[tuple[int, int]]:
        """Return where in its bucket each gradient begins and ends."""
        return list(zip(self._arrays[k].starts, self._arrays[k].ends, strict=False))

    def leave_open(self) -> None:
        """Let sums that have been waited for be read until this rank begins again."""
        self._region.leave_open(self._close)

    def show(self, k: int, i: int) -> LazyArray:
        """Return the mean of the gradient number ``i`` of a bucket that has been waited for."""
        found = LazyArray(partial(self._mean, k, i))
        self._shown.append(weakref.ref(found))
        return found

    def _mean(self, k: int, i: int) -> np.ndarray:
        _, dtype, shape = self._arrays[k].layout[i]
        found = np.empty(shape, dtype)
        self._sums[k].write(self._arrays[k].starts[i], found)
        return found

    def _close(self) -> None:
        for reference in self._shown:
            if (found := reference()) is not None:
                found.array()
        self._shown.clear()


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
            params = [self._params[i] for i in positions]
            outs = [p.grad if isinstance(p.grad, np.ndarray) and p.grad.flags.writeable
                    else np.empty(p.grad.shape, p.grad.dtype) for p in params]
            for p, mean in zip(params, self._run.finish(k, outs), strict=True):
                if p.grad is not mean:
                    p.grad = restored(mean, mean.shape, p.grad)
        self._reduction.give_back(self._run)


class Reduction:
    """Means of gradients over the ranks of a communicator."""

    def __init__(self, comm: MpiCommunicatorBase) -> None:
        self.comm = comm
        self._checked: dict[Layout, int] = {}
        self._idle: dict[tuple[Layout, float], list[Run]] = {}

    def mean(self, model: Any, zero_fill: bool) -> None:
        """Replace the gradients of a model by their means."""
        self.start(model, zero_fill).finish()

    def start(self, model: Any, zero_fill: bool) -> Any:
        """Copy the gradients of a model and start to add them up."""
        named = gradients_of(model, zero_fill)
        params = [p for _, p in named]
        run = self.take(layout_of((name, p.grad) for name, p in named))
        if run.buckets:
            run.begin()
        else:
            self.check(run.layout)
        for k, positions in enumerate(run.buckets):
            run.start(k, [params[i].grad for i in positions])
        return Started(self, params, run)

    def check(self, layout: Layout, operation: str = "multi_node_mean_grad") -> None:
        """Compare the layout with those of the other ranks, in the first updates and in debug mode."""
        seen = self._checked.get(layout, 0)
        if seen < self.comm.checked_updates or config.debug:
            require_same(self.comm, operation, layout)
            self._checked[layout] = seen + 1

    #: Whether gradients on cards are added up there, in compiled steps, too.
    on_cards = False

    def part_of_step(self, named: Sequence[tuple[str, Any]]) -> Any:
        """Return the reduction of the gradients of some parameters for a compiled step."""
        return Run(self, layout_of((name, p.array) for name, p in named))

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
