"""Snapshots by one rank of each set of ranks that are alike."""
from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ...serializers import load_npz
from ...training.extension import Extension
from ...training.extensions._snapshot import _find_latest_snapshot

__all__ = ["multi_node_snapshot"]


def multi_node_snapshot(comm: Any, snapshot: Any, replica_sets: Sequence[int | Iterable[int]]) -> Any:
    """Make an extension that takes snapshots on one rank of each replica set, and loads them on all of its ranks.

    Trainers of a set are alike. Often that of rank 0 has more extensions than the others: ``replica_sets=[0]`` saves
    those of rank 0 and of rank 1, the first of the rest. A training may resume with another number of ranks.

    Args:
        comm: A communicator.
        snapshot: An extension of `kusari.training.extensions.snapshot`; its file names get the rank at their ends.
        replica_sets: The sets, as ranks or iterables of ranks; those left are one more set.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#trainer-extensions
    """
    return _MultiNodeSnapshot(comm, snapshot, replica_sets)


def _parse_replica_sets(replica_sets: Sequence[int | Iterable[int]], size: int) -> list[set[int]]:
    """Return sets of ranks that have every rank in one of them.

    Raises:
        ValueError: A rank is in two sets, or is none.
    """
    sets = [{each} if isinstance(each, int) else set(each) for each in replica_sets]
    named = [rank for each in sets for rank in each]
    if len(named) != len(set(named)) or any(not 0 <= rank < size for rank in named):
        raise ValueError(f"replica_sets must have each rank from 0 to {size - 1} once at most, got {sets}")
    rest = set(range(size)) - set(named)
    return [*sets, rest] if rest else sets


class _MultiNodeSnapshot(Extension):
    """The extension that `multi_node_snapshot` makes."""

    def __init__(self, comm: Any, snapshot: Any, replica_sets: Sequence[int | Iterable[int]]) -> None:
        self.comm = comm
        self.snapshot = snapshot
        self.replica_set = next(each for each in _parse_replica_sets(replica_sets, comm.size) if comm.rank in each)
        self.master = min(self.replica_set)
        name = snapshot.filename
        # The master's rank, which a run with another number of ranks has as well.
        snapshot.filename = ((lambda trainer: f"{name(trainer)}.{self.master}") if callable(name)
                             else f"{name}.{self.master}")
        self.trigger = snapshot.trigger
        self.loads_state = snapshot.loads_state
        self.priority = snapshot.priority

    @property
    def is_master(self) -> bool:
        """Whether this rank saves."""
        return self.master == self.comm.rank

    def initialize(self, trainer: Any) -> None:
        """Load the latest snapshot of this rank's set, if asked to."""
        snapshot = self.snapshot
        if not self.loads_state:
            if self.is_master:
                snapshot.initialize(trainer)
            return
        target = trainer if snapshot.target is None else snapshot.target
        if self.is_master:
            found = _find_latest_snapshot(snapshot.filename, trainer.out)
            data = None
            if found is not None:
                with open(os.path.join(trainer.out, found), "rb") as file:
                    data = file.read()
            for rank in self.replica_set - {self.master}:
                self.comm.send_obj(data, rank)
        else:
            data = self.comm.recv_obj(self.master)
        if data is not None:
            load_npz(io.BytesIO(data), target)

    def on_error(self, trainer: Any, exc: BaseException, tb: Any) -> None:
        """Take a snapshot after an exception, if asked to."""
        if self.is_master:
            self.snapshot.on_error(trainer, exc, tb)

    def __call__(self, trainer: Any) -> None:
        """Take a snapshot, on the master."""
        if self.is_master:
            self.snapshot(trainer)

    def finalize(self) -> None:
        """Wait for what is being written."""
        if self.is_master:
            self.snapshot.finalize()
