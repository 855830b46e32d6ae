"""Communicators on a channel: all operations but the reduction of gradients, in which the kinds differ."""
from __future__ import annotations

import functools
import operator
import pickle
import socket
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import backend, environment
from ...callsite import user_location
from ..errors import CollectiveMismatch
from ..transport import Channel, Lone, Mpi
from ..transport.shared import MessageSum, Region, free_bytes
from ..transport.watch import Place
from . import gradients
from .communicator_base import CommunicatorBase
from .messages import Header, describe, flat, restored

__all__ = ["MpiCommunicatorBase"]

_RAISED: dict[str, type[Exception]] = {"TypeError": TypeError, "ValueError": ValueError}


class MpiCommunicatorBase(CommunicatorBase):
    """Communicator on MPI, or of one rank without it.

    Before the data of a collective operation ranks exchange a description of it: a wrong root, dtype or length, or
    another operation on some rank, raises the same exception on every rank. Objects and headers are pickled.

    Args:
        mpi_comm: mpi4py's communicator; None for a single rank.
        channel: What it would send on; by default a duplicate of ``mpi_comm``.
    """

    name = "naive"

    def __init__(self, mpi_comm: Any = None, channel: Channel | None = None) -> None:
        super().__init__()
        self._channel: Channel = channel or (Lone() if mpi_comm is None else Mpi(mpi_comm))
        self.reduction = gradients.Reduction(self)
        self._regions: list[Region] = []
        with self.config_scope():
            self.batched_copy = True
            self.bucket_size = gradients.BUCKET_BYTES
            self.checked_updates = gradients.CHECKED_UPDATES
            self.shared_memory = True
        self._find_machines()

    @property
    def mpi_comm(self) -> Any:
        """The communicator of mpi4py's; None without MPI."""
        return self._channel.mpi_comm

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return self._channel.rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self._channel.size

    @property
    def intra_rank(self) -> int:
        """Number of this process among those of its machine."""
        return self._machine.index(self.rank)

    @property
    def intra_size(self) -> int:
        """Number of processes on this machine."""
        return len(self._machine)

    @property
    def inter_rank(self) -> int:
        """Number of this machine."""
        return self._machines.index(self._machine)

    @property
    def inter_size(self) -> int:
        """Number of machines."""
        return len(self._machines)

    def _find_machines(self) -> None:
        """Group the ranks by the names of their machines."""
        per_machine = environment.text("RANKS_PER_NODE")
        mine = f"machine {self.rank // int(per_machine)}" if per_machine else socket.gethostname()
        names = [text.decode() for text in self._channel.exchange(mine.encode(), self.place("create_communicator"))]
        found: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            found.setdefault(name, []).append(rank)
        self._machines = list(found.values())
        self._machine = found[names[self.rank]]

    def set_config(self, name: str, value: Any = True, **kwargs: Any) -> None:
        """Set a configuration.

        ``batched_copy``: kept for programs that set it; copies are always made together.
        ``bucket_size``: the bytes of gradients that are reduced together.
        ``checked_updates``: the number of updates in which ranks compare their parameters' names, shapes and dtypes
        before they reduce gradients; debug mode always does.
        ``shared_memory``: whether ranks of one machine add up gradients in memory that they share, without messages;
        the same on all ranks.
        """
        if name not in self._configs:
            return super().set_config(name, **kwargs)
        with self.config_scope():
            setattr(self, name, value)

    def split(self, color: int, key: int) -> MpiCommunicatorBase:
        """Return the communicator of the ranks that give the same ``color``, which are ordered by ``key``."""
        made = type(self)(channel=self._channel.split(color, key))
        for name, value in self._configs.items():
            made.set_config(name, value)
        return made

    def finalize(self) -> None:
        """Release what the communicator holds, on all ranks together; it cannot be used afterwards."""
        for region in self._regions:
            region.free()
        self._regions = []
        self._channel.free()

    # Agreement

    def place(self, operation: str, peer: int | None = None) -> Place:
        """Return who waits for what, at the user's line."""
        return Place(operation, user_location(), peer)

    def agree(self, operation: str, same: Any, describing: Callable[[], Any] = lambda: None) -> list[Any]:
        """Exchange descriptions of what ranks are about to do; returns the results of ``describing()`` on each.

        Raises:
            CollectiveMismatch: Ranks do different operations, or ``same`` is not the same on all.
            TypeError, ValueError: ``describing()`` raised that on some rank.
        """
        place = self.place(operation)
        info, problem = None, None
        try:
            info = describing()
        except (TypeError, ValueError) as error:
            problem = (type(error).__name__, str(error))
        found: list[Any] = [pickle.loads(each) for each in self._channel.exchange(
            pickle.dumps((operation, same, place.line, info, problem)), place)]
        if any(each[0] != operation or each[1] != same for each in found):
            raise CollectiveMismatch("ranks do not make the same call:\n" + "\n".join(
                f"  rank {rank}: {op}{f', {text}' if (text := _text(what)) else ''}, at {line}"
                for rank, (op, what, line, _, _) in enumerate(found)))
        for rank, (_, _, line, _, problem) in enumerate(found):
            if problem is not None:
                kind, text = problem
                where = "" if self.size == 1 else f" (on rank {rank}, at {line})"
                raise _RAISED.get(kind, ValueError)(f"{text}{where}")
        return [each[3] for each in found]

    def _rooted(self, operation: str, root: Any, describing: Callable[[], Any]) -> list[Any]:
        """Exchange what ranks are about to do with one rank as the root: see `agree`."""
        def described() -> Any:
            self._require_rank("root", root)
            return describing()
        return self.agree(operation, ("root", root), described)

    def _require_rank(self, what: str, rank: Any) -> int:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)):
            raise TypeError(f"{what} must be a rank, that is an integer, but it is {rank!r}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{what} must be a rank from 0 to {self.size - 1}, but it is {rank}")
        return int(rank)

    # Arrays

    def send(self, data: Any, dest: int, tag: int = 0) -> None:
        """Send an array, or a tuple of arrays."""
        header = describe("send", data, tuples=True)
        self._require_other("dest", dest)
        place = self.place(f"send(dest={dest})", dest)
        self._channel.send_header(pickle.dumps(header), dest, tag, place)
        self._channel.send([flat(x) for x in (data if header.is_tuple else [data])], dest, tag, place)

    def recv(self, source: int, tag: int = 0) -> Any:
        """Receive what ``send`` has sent: an array, or a tuple of arrays; on the current card if it was on one."""
        self._require_other("source", source)
        place = self.place(f"recv(source={source})", source)
        header: Header = pickle.loads(self._channel.recv_header(source, tag, None, place)[0])
        if not isinstance(header, Header):
            raise CollectiveMismatch(f"recv(source={source}) found an object: send_obj() needs recv_obj()")
        arrays = header.empty()
        self._channel.recv(arrays, source, tag, place)
        like = self._like(header)
        found = tuple([restored(x, shape, like) for x, shape in zip(arrays, header.shapes, strict=True)])
        return found if header.is_tuple else found[0]

    def _require_other(self, what: str, rank: int) -> None:
        if self._require_rank(what, rank) == self.rank:
            raise ValueError(f"{what} must be another rank than this one ({rank}): a rank cannot wait for itself")

    @staticmethod
    def _like(header: Header) -> Any:
        """Return an array on the current card for data that comes from one, where there are cards; else None."""
        if header.on_card and backend.cuda.available:
            return backend.cuda.cupy.empty(0)
        return None

    def bcast(self, data: Any, root: int = 0, max_buf_len: int | None = None) -> Any:
        """Return the array of the root; ``max_buf_len`` is not needed any more."""
        header: Header = self._rooted("bcast", root, lambda: (
            describe("bcast", data) if self.rank == root else None))[root]
        buffer = flat(data) if self.rank == root else header.empty()[0]
        self._channel.bcast(buffer, root, self.place("bcast"))
        return data if self.rank == root else restored(buffer, header.shapes[0], self._like(header))

    def gather(self, data: Any, root: int = 0) -> tuple[Any, ...] | None:
        """Return the arrays of all ranks on the root, None elsewhere."""
        headers = self._same_dtypes("gather", data, root)
        place = self.place("gather")
        sizes = [each.empty()[0].nbytes for each in headers]
        found = self._channel.gather(flat(data).tobytes(), sizes, root, place)
        if found is None:
            return None
        return tuple([restored(np.frombuffer(bytearray(part), header.dtypes[0]), header.shapes[0], data)
                      for part, header in zip(found, headers, strict=True)])

    def _same_dtypes(self, operation: str, data: Any, root: int = 0) -> list[Header]:
        """Return the descriptions of the arrays of all ranks, which have the same dtype."""
        headers: list[Header] = self._rooted(operation, root, lambda: describe(operation, data))
        if len({each.dtypes for each in headers}) > 1:
            raise TypeError(f"all dtypes must be the same in {operation}: " + ", ".join(
                f"{each.dtypes[0]} on rank {rank}" for rank, each in enumerate(headers)))
        return headers

    def allgather(self, x: Any) -> tuple[Any, ...]:
        """Return the arrays of all ranks."""
        headers = self._same_dtypes("allgather", x)
        found = self._channel.exchange(flat(x).tobytes(), self.place("allgather"))
        return tuple([restored(np.frombuffer(bytearray(part), header.dtypes[0]), header.shapes[0], x)
                      for part, header in zip(found, headers, strict=True)])

    def alltoall(self, xs: Any) -> tuple[Any, ...]:
        """Send ``xs[i]`` to rank ``i``; returns what has come from each rank."""
        headers: list[Header] = self.agree("alltoall", None, lambda: self._parts("alltoall", xs))
        if len({dtype for each in headers for dtype in each.dtypes}) > 1:
            raise TypeError("all dtypes must be the same in alltoall: " + ", ".join(
                f"{each.dtypes[0]} on rank {rank}" for rank, each in enumerate(headers)))
        mine = [Header(False, (each.dtypes[self.rank],), (each.shapes[self.rank],)) for each in headers]
        received = [each.empty()[0] for each in mine]
        self._channel.alltoall([flat(x) for x in xs], received, self.place("alltoall"))
        return tuple([restored(x, each.shapes[0], xs[0]) for x, each in zip(received, mine, strict=True)])

    def _parts(self, operation: str, xs: Any) -> Header:
        """Describe one array for each rank.

        Raises:
            ValueError: There are more or fewer.
            TypeError: They do not have the same dtype.
        """
        if not isinstance(xs, (tuple, list)):
            raise TypeError(f"{operation} takes a tuple of arrays, one for each rank")
        if len(xs) != self.size:
            raise ValueError(f"The length of data must be same as communicator size: {operation} has {len(xs)} arrays "
                             f"for {self.size} ranks")
        header = describe(operation, xs, tuples=True)
        if len(set(header.dtypes)) > 1:
            raise TypeError(f"all dtypes must be the same in {operation}: {header}")
        return header

    def scatter(self, xs: Any, root: int = 0) -> Any:
        """Return this rank's element of the root's tuple of arrays, or of its array along the first axis."""
        header: Header = self._rooted("scatter", root, lambda: (
            self._scattered(xs) if self.rank == root else None))[root]
        received = [np.empty(0, np.uint8)] * self.size
        mine = received[root] = Header(False, header.dtypes[:1], (header.shapes[self.rank],)).empty()[0]
        sent = [flat(x) for x in xs] if self.rank == root else [np.empty(0, np.uint8)] * self.size
        self._channel.alltoall(sent, received, self.place("scatter"))
        like = xs[0] if self.rank == root else self._like(header)
        return restored(mine, header.shapes[self.rank], like)

    def _scattered(self, xs: Any) -> Header:
        """Describe the parts of an array along its first axis, or of a tuple."""
        if isinstance(xs, (tuple, list)):
            return self._parts("scatter", xs)
        header = describe("scatter", xs)
        if not header.shapes[0] or header.shapes[0][0] != self.size:
            raise ValueError(f"scatter received inconsistent number of inputs with communicator size: an array of "
                             f"shape {header.shapes[0]} for {self.size} ranks")
        return self._parts("scatter", [xs[i] for i in range(self.size)])

    def allreduce(self, data: Any) -> Any:
        """Return the sum of the arrays of all ranks, which have one shape and dtype."""
        headers: list[Header] = self.agree("allreduce", None, lambda: describe("allreduce", data))
        if len(set(headers)) > 1:
            raise CollectiveMismatch("allreduce needs arrays of one shape and dtype: " + ", ".join(
                f"{each} on rank {rank}" for rank, each in enumerate(headers)))
        return restored(self._sum([flat(data)], "allreduce")[0], headers[0].shapes[0], data)

    def _sum(self, arrays: Sequence[np.ndarray], operation: str) -> list[np.ndarray]:
        """Return the sums over the ranks of flat arrays; float16 ones and booleans are added as what MPI can add."""
        place = self.place(operation)
        wide = {"float16": np.float32, "bool": np.int64}
        buffers = [np.array(x, wide.get(x.dtype.name, x.dtype)) for x in arrays]
        for pending in [self._channel.allreduce(x, place) for x in buffers]:
            pending.wait()
        return [x.astype(a.dtype, copy=False) for x, a in zip(buffers, arrays, strict=True)]

    def multi_node_mean(self, sendbuf: Any, recvbuf: Any) -> None:
        """Write the mean of an array over all ranks to ``recvbuf``, of ``sendbuf`` or else of what is there."""
        source = recvbuf if sendbuf is None else sendbuf
        total = self.allreduce(source)
        recvbuf[...] = (total / self.size).astype(recvbuf.dtype)

    _multi_node_mean = multi_node_mean

    # Objects

    def send_obj(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object of any size."""
        self._require_other("dest", dest)
        place = self.place(f"send_obj(dest={dest})", dest)
        payload = np.frombuffer(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), np.uint8)
        self._channel.send_header(pickle.dumps(payload.size), dest, tag, place)
        self._channel.send([payload], dest, tag, place)

    def recv_obj(self, source: int, status: Any = None, tag: int | None = None) -> Any:
        """Receive an object; without ``tag`` the next one."""
        if isinstance(status, int):  # the interface has the tag there
            status, tag = None, status
        self._require_other("source", source)
        place = self.place(f"recv_obj(source={source})", source)
        header, source, tag = self._channel.recv_header(source, tag, status, place)
        size = pickle.loads(header)
        if not isinstance(size, int):
            raise CollectiveMismatch(f"recv_obj(source={source}) found an array: send() needs recv()")
        payload = np.empty(size, np.uint8)
        self._channel.recv([payload], source, tag, place)
        return pickle.loads(payload.data)

    def bcast_obj(self, obj: Any, max_buf_len: int | None = None, root: int = 0) -> Any:
        """Return the object of the root; ``max_buf_len`` is not needed any more."""
        payload = np.empty(0, np.uint8)
        if self.rank == root:
            payload = np.frombuffer(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), np.uint8).copy()
        size = self._rooted("bcast_obj", root, lambda: payload.size)[root]
        if self.rank != root:
            payload = np.empty(size, np.uint8)
        self._channel.bcast(payload, root, self.place("bcast_obj"))
        return obj if self.rank == root else pickle.loads(payload.data)

    def gather_obj(self, obj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks on the root, None elsewhere."""
        payload = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        lengths = self._rooted("gather_obj", root, lambda: len(payload))
        found = self._channel.gather(payload, lengths, root, self.place("gather_obj"))
        return None if found is None else [pickle.loads(each) for each in found]

    def allgather_obj(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks."""
        self.agree("allgather_obj", None)
        return [pickle.loads(each) for each in self._channel.exchange(
            pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), self.place("allgather_obj"))]

    def allreduce_obj(self, obj: Any) -> Any:
        """Return the sum, by ``+``, of the objects of all ranks, added in the order of ranks."""
        return functools.reduce(operator.add, self.allgather_obj(obj))

    # Models

    def bcast_data(self, model: Any) -> None:
        """Overwrite the parameters of a model with those of rank 0; those without an array are left out.

        Raises:
            CollectiveMismatch: The models do not have the same parameters.
        """
        params = [(name, p) for name, p in sorted(model.namedparams()) if p.array is not None]
        gradients.require_same(self, "bcast_data", gradients.layout_of((name, p.array) for name, p in params))
        place = self.place("bcast_data")
        for _, p in params:
            buffer = flat(p.array)
            self._channel.bcast(buffer, 0, place)
            if self.rank != 0 and not np.shares_memory(buffer, _host_array(p.array)):
                p.array[...] = restored(buffer, p.shape, p.array)

    def multi_node_mean_grad(self, model: Any, zero_fill: bool = False) -> None:
        """Replace the gradients of a model by their means over all ranks.

        Gradients that are None are left out, or with ``zero_fill`` are zero where the parameter has an array.
        """
        self.reduction.mean(model, zero_fill)

    @property
    def bucket_bytes(self) -> float:
        """The bytes of gradients that are reduced together."""
        return self.bucket_size

    @property
    def rounded(self) -> Any:
        """The dtype to which gradients are rounded before they are added; None for their own."""
        return None

    def added_as(self, dtype: str) -> str:
        """Return the dtype in which gradients of a dtype are added: MPI has no float16."""
        return "float32" if dtype == "float16" else dtype

    @property
    def shares(self) -> bool:
        """Whether ranks add up gradients in memory that they share."""
        return bool(self.shared_memory) and self.size > 1 and self.inter_size == 1

    def region(self, nbytes: int) -> Region | None:
        """Return shared memory in which so many bytes of gradients of each rank are added up; None for messages.

        Ranks begin and end reductions in the same order, and so take the same region, or make one together.
        """
        found = self.known_region(nbytes)
        if found is not None or not self.shares:
            return found
        free = min(self.agree("multi_node_mean_grad", None, free_bytes))
        made = self._channel.share(nbytes) if free > 2 * self.size * nbytes else None
        if made is None:
            self.shared_memory = False
        else:
            self._regions.append(made)
        return made

    def known_region(self, nbytes: int) -> Region | None:
        """Return the region that would be taken, if it has been made."""
        if self.shares:
            for region in self._regions:
                if region.nbytes >= nbytes and not region.busy:
                    return region
        return None

    def message_sum(self, buffer: np.ndarray, factor: float) -> MessageSum:
        """Return a sum over all ranks of what will be in a buffer, by messages."""
        return MessageSum(buffer, factor, self.reduce_buffers)

    def reduce_buffers(self, buffers: Sequence[np.ndarray], place: Place) -> list[Any]:
        """Start to replace flat arrays by their sums over all ranks: the step in which the kinds differ."""
        return [self._channel.allreduce(x, place) for x in buffers]


def _host_array(array: Any) -> np.ndarray:
    """Return an array in this memory itself; an empty one for others."""
    return array if isinstance(array, np.ndarray) else np.empty(0)


def _text(same: Any) -> str:
    if isinstance(same, tuple) and len(same) == 2 and isinstance(same[0], str):
        return f"{same[0]}={same[1]}"
    return "" if same is None else str(same)
