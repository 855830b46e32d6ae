"""The interface of communicators."""
from __future__ import annotations

import contextlib
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from typing import Any

__all__ = ["CommunicatorBase"]


class CommunicatorBase(metaclass=ABCMeta):
    """Interface of communicators, with methods named after MPI's.

    Those without a suffix take arrays, those with ``_obj`` any object that can be pickled. Every rank has to call a
    collective method (all but `send`, `recv` and their kin), in the same order.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#communicators
    """

    def __init__(self) -> None:
        self._configs: dict[str, Any] = {}
        self._within_config_scope = False

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of processes."""

    @property
    @abstractmethod
    def intra_rank(self) -> int:
        """Number of this process among those of its machine."""

    @property
    @abstractmethod
    def intra_size(self) -> int:
        """Number of processes on this machine."""

    @property
    @abstractmethod
    def inter_rank(self) -> int:
        """Number of this machine."""

    @property
    @abstractmethod
    def inter_size(self) -> int:
        """Number of machines."""

    def set_config(self, name: str, **kwargs: Any) -> None:
        """Set a configuration.

        Raises:
            ValueError: There is none of this name.
        """
        raise ValueError(f"Unknown config: {name}")

    def get_config(self, name: str | None = None) -> Any:
        """Return a configuration, or a dict of all."""
        return self._configs if name is None else self._configs[name]

    @property
    def within_config_scope(self) -> bool:
        """Whether attributes that are set now are configurations."""
        return self.__dict__.get("_within_config_scope", False)

    @contextlib.contextmanager
    def config_scope(self) -> Iterator[None]:
        """Make attributes that are set inside configurations."""
        before, self._within_config_scope = self.within_config_scope, True
        try:
            yield
        finally:
            self._within_config_scope = before

    def __setattr__(self, name: str, value: Any) -> None:
        if self.within_config_scope and name != "_within_config_scope":
            self._configs[name] = value
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> CommunicatorBase:
        """A copy of what holds a communicator holds the same one."""
        return self

    @abstractmethod
    def split(self, color: int, key: int) -> CommunicatorBase:
        """Return the communicator of the ranks that give the same ``color``, which are ordered by ``key``."""

    @abstractmethod
    def alltoall(self, xs: Any) -> tuple[Any, ...]:
        """Send ``xs[i]`` to rank ``i``; returns what has come from each rank."""

    @abstractmethod
    def send(self, data: Any, dest: int, tag: int = 0) -> None:
        """Send an array, or a tuple of arrays."""

    @abstractmethod
    def recv(self, source: int, tag: int = 0) -> Any:
        """Receive what ``send`` has sent."""

    @abstractmethod
    def bcast(self, data: Any, root: int = 0, max_buf_len: int | None = None) -> Any:
        """Return the array of the root."""

    @abstractmethod
    def gather(self, data: Any, root: int = 0) -> tuple[Any, ...] | None:
        """Return the arrays of all ranks on the root, None elsewhere."""

    @abstractmethod
    def allgather(self, x: Any) -> tuple[Any, ...]:
        """Return the arrays of all ranks."""

    @abstractmethod
    def allreduce(self, data: Any) -> Any:
        """Return the sum of the arrays of all ranks."""

    @abstractmethod
    def scatter(self, xs: Any, root: int = 0) -> Any:
        """Return this rank's element of the root's tuple of arrays, or of its array along the first axis."""

    @abstractmethod
    def multi_node_mean(self, sendbuf: Any, recvbuf: Any) -> None:
        """Write the mean of an array over all ranks to ``recvbuf``, of ``sendbuf`` or else of what is there."""

    @abstractmethod
    def finalize(self) -> None:
        """Release what the communicator holds; it cannot be used afterwards."""

    @abstractmethod
    def send_obj(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""

    @abstractmethod
    def recv_obj(self, source: int, status: Any = None, tag: int | None = None) -> Any:
        """Receive an object."""

    @abstractmethod
    def bcast_obj(self, obj: Any, max_buf_len: int | None = None, root: int = 0) -> Any:
        """Return the object of the root."""

    @abstractmethod
    def gather_obj(self, obj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks on the root, None elsewhere."""

    @abstractmethod
    def allreduce_obj(self, obj: Any) -> Any:
        """Return the sum, by ``+``, of the objects of all ranks."""

    @abstractmethod
    def bcast_data(self, model: Any) -> None:
        """Overwrite the parameters of a model with those of rank 0."""

    def broadcast_data(self, model: Any) -> None:
        """Do what `bcast_data` does: its name in ChainerMN 1."""
        self.bcast_data(model)

    @abstractmethod
    def multi_node_mean_grad(self, model: Any, zero_fill: bool = False) -> None:
        """Replace the gradients of a model by their means over all ranks.

        Gradients that are None are left out, or with ``zero_fill`` are zero where the parameter has an array.
        """

    def allreduce_grad(self, model: Any, zero_fill: bool = False) -> None:
        """Do what `multi_node_mean_grad` does (deprecated)."""
        warnings.warn("allreduce_grad() is deprecated.", DeprecationWarning, stacklevel=2)
        self.multi_node_mean_grad(model, zero_fill)
