"""Parts of a dataset for each rank."""
from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...datasets import SubDataset
from ..communicators.communicator_base import CommunicatorBase
from ..communicators.mpi_communicator_base import MpiCommunicatorBase

__all__ = ["DataSizeError", "get_epoch_trigger", "get_n_iterations_for_one_epoch", "scatter_dataset", "scatter_index"]


class DataSizeError(RuntimeError):
    """A dataset is too large to be sent; nothing raises it any more."""


def scatter_dataset(dataset: Any, comm: Any, root: int = 0, shuffle: bool = False, seed: int | None = None,
                    max_buf_len: int | None = None, *, force_equal_length: bool = True) -> SubDataset:
    """Return this rank's part of the root's dataset; those of other ranks are ignored.

    Args:
        dataset: On the root, anything with a length and integer indices that can be pickled.
        comm: A communicator, ours or mpi4py's.
        root: The rank whose dataset it is.
        shuffle: Whether examples are shuffled before.
        seed: The seed of that; None draws one.
        max_buf_len: Not needed any more.
        force_equal_length: Whether all parts have the same length, for which some examples are in two of them;
            otherwise each example is in one, and parts may be empty.

    Raises:
        ValueError: The root has no dataset.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#dataset-utilities
    """
    comm = _ours(comm)

    def described() -> int | None:
        if comm.rank != root:
            return None
        if dataset is None:
            raise ValueError("scatter_dataset needs a dataset on its root, but it is None there")
        return len(dataset)
    comm.agree("scatter_dataset", ("root", root), described)
    order = None
    if shuffle and comm.rank == root:
        order = np.random.RandomState(seed).permutation(len(dataset))
    whole, order = comm.bcast_obj((dataset, order) if comm.rank == root else None, root=root)
    start, stop = scatter_index(len(whole), comm, root, force_equal_length=force_equal_length)
    return SubDataset(whole, start, stop, order)


def scatter_index(n_total_samples: int, comm: Any, root: int = 0, *, force_equal_length: bool = True
                  ) -> tuple[int, int]:
    """Return the first position of this rank's part of so many examples, and the one after its last.

    Args:
        n_total_samples: Number of examples; the root's counts.
        comm: A communicator.
        root: The rank whose number counts.
        force_equal_length: Whether all parts have the same length, for which they overlap.
    """
    comm = _ours(comm)
    total = comm.bcast_obj(n_total_samples if comm.rank == root else None, root=root)
    return list(_parts(int(total), comm.size, force_equal_length))[comm.rank]


def _ours(comm: Any) -> Any:
    """Return a communicator of ours for one of mpi4py's."""
    return comm if isinstance(comm, CommunicatorBase) else MpiCommunicatorBase(comm)


def _parts(total: int, size: int, equal: bool) -> Iterator[tuple[int, int]]:
    """Yield the first position of each part, and the one after its last."""
    if equal:
        length = -(-total // size)
        for rank in range(size):
            start = total * rank // size
            yield start, start + length
        return
    start = 0
    for rank in range(size):
        stop = start + total // size + (rank < total % size)
        yield start, stop
        start = stop


def get_n_iterations_for_one_epoch(dataset: Any, local_batch_size: int, comm: Any) -> int:
    """Return the number of batches of rank 0's dataset (deprecated: triggers in epochs do)."""
    warnings.warn("get_n_iterations_for_one_epoch is deprecated. Please use standard epoch triggers.",
                  DeprecationWarning, stacklevel=2)
    return _batches(dataset, local_batch_size, comm)


def get_epoch_trigger(n_epochs: int, dataset: Any, local_batch_size: int, comm: Any) -> tuple[int, str]:
    """Return a trigger of so many epochs of rank 0's dataset, in iterations (deprecated: triggers in epochs do)."""
    warnings.warn("get_epoch_trigger is deprecated. Please use standard epoch triggers.",
                  DeprecationWarning, stacklevel=2)
    return n_epochs * _batches(dataset, local_batch_size, comm), "iteration"


def _batches(dataset: Any, size: int, comm: Any) -> int:
    return _ours(comm).bcast_obj(-(-len(dataset) // size) if comm.rank == 0 else None)
