"""Gradients of a model replaced by their means over the ranks, in buckets: flat arrays of neighbouring gradients.

All ranks make the same buckets, from the names, shapes and dtypes of their parameters. That these are the same is
compared in the first updates; later on each bucket carries a number made of them, and so a sum that shows whether
all ranks have meant the same.
"""
from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...configuration import config
from ..errors import CollectiveMismatch
from .messages import flat, restored

if TYPE_CHECKING:
    from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["BUCKET_BYTES", "CHECKED_UPDATES", "Bucket", "Reduction", "layout_of", "require_same"]

BUCKET_BYTES = 1 << 22
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

    def fill(self, grads: Sequence[Any], rounded: Any = None) -> None:
        """Copy gradients in; with ``rounded`` as numbers of that dtype."""
        at = 0
        for grad, size in zip(grads, self.sizes, strict=True):
            values = flat(grad)
            self.buffer[at:at + size] = values if rounded is None else values.astype(rounded)
            at += size
        self.buffer[at] = self.code

    def means(self, size: int) -> list[np.ndarray]:
        """Return the gradients' means as parts of the buffer, once it has been summed over ``size`` ranks.

        Raises:
            CollectiveMismatch: The ranks did not add up the same gradients.
        """
        if self.buffer[-1] != self.code * size:
            names = ", ".join(name for name, _, _ in self.layout)
            raise CollectiveMismatch(
                f"ranks have added up gradients of different parameters; on this rank they were {names}. "
                "comm.set_config('checked_updates', n) compares their names in the first n updates.")
        np.multiply(self.buffer, self.buffer.dtype.type(1 / size), out=self.buffer)
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


class Started:
    """A reduction under way: gradients in buckets, each of which is complete at its own time."""

    def __init__(self, reduction: Reduction, params: Sequence[Any], buckets: Any, pending: list[Any]) -> None:
        self._reduction, self._params, self._buckets, self._pending = reduction, params, buckets, pending

    def poll(self) -> None:
        """Let it go on."""
        for pending in self._pending:
            pending.poll()

    def finish(self) -> None:
        """Write the means to the parameters' gradients."""
        for (positions, bucket), pending in zip(self._buckets, self._pending, strict=True):
            pending.wait()
            parts = bucket.means(self._reduction.comm.size)
            for i, part in zip(positions, parts, strict=True):
                _store(self._params[i], part)
        self._reduction.give_back(self._buckets)


def _store(param: Any, mean: np.ndarray) -> None:
    """Overwrite a gradient; one that cannot be overwritten is replaced."""
    grad = param.grad
    if isinstance(grad, np.ndarray) and grad.flags.writeable:
        grad[...] = mean
    else:
        like = param.array if grad is None else grad
        param.grad = restored(mean.astype(like.dtype), mean.shape, like)


class Reduction:
    """Means of gradients over the ranks of a communicator."""

    def __init__(self, comm: MpiCommunicatorBase) -> None:
        self.comm = comm
        self._checked: dict[Layout, int] = {}
        self._idle: dict[tuple[Layout, float], list[Any]] = {}
        self._keys: dict[int, tuple[Layout, float]] = {}

    def mean(self, model: Any, zero_fill: bool) -> None:
        """Replace the gradients of a model by their means."""
        self.start(model, zero_fill).finish()

    def start(self, model: Any, zero_fill: bool) -> Started:
        """Copy the gradients of a model and start to add them up."""
        named = gradients_of(model, zero_fill)
        params = [p for _, p in named]
        grads = [p.grad for p in params]
        layout = layout_of(zip([name for name, _ in named], grads, strict=True))
        self.check(layout)
        buckets = self.take(layout)
        place = self.comm._place("multi_node_mean_grad")
        pending: list[Any] = []
        for positions, bucket in buckets:
            bucket.fill([grads[i] for i in positions], self.comm.rounded)
            pending += self.comm.reduce_buffers([bucket.buffer], place)
        return Started(self, params, buckets, pending)

    def check(self, layout: Layout, operation: str = "multi_node_mean_grad") -> None:
        """Compare the layout with those of the other ranks, in the first updates and in debug mode."""
        seen = self._checked.get(layout, 0)
        if seen < self.comm.checked_updates or config.debug:
            require_same(self.comm, operation, layout)
            self._checked[layout] = seen + 1

    def take(self, layout: Layout) -> list[tuple[list[int], Bucket]]:
        """Return buckets for a layout that are not in use."""
        key = (layout, self.comm.bucket_bytes)
        idle = self._idle.setdefault(key, [])
        found = idle.pop() if idle else buckets_of(layout, self.comm.bucket_bytes, self.comm.added_as)
        self._keys[id(found)] = key
        return found

    def give_back(self, buckets: Any) -> None:
        """Keep buckets for the next reduction."""
        self._idle[self._keys.pop(id(buckets))].append(buckets)


def gradients_of(model: Any, zero_fill: bool) -> list[tuple[str, Any]]:
    """Return the parameters that have gradients, by name; with ``zero_fill`` missing ones are zero afterwards."""
    found: list[tuple[str, Any]] = []
    for name, p in sorted(model.namedparams()):
        if p.array is None:
            continue
        if p.grad is None and zero_fill:
            with p.device.create_context():
                p.grad = p.xp.zeros_like(p.array)
        if p.grad is not None:
            found.append((name, p))
    return found
