"""Checkpoints: one file for each rank, of which only sets that are whole are loaded."""
from __future__ import annotations

import os
import tempfile
import time
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

from ...serializers import load_npz, save_npz
from ...training.extension import Extension

__all__ = ["create_multi_node_checkpointer"]

_SPARE = 5  # generations beyond cp_interval, before older ones are removed


def create_multi_node_checkpointer(name: str, comm: Any, cp_interval: int = 5, gc_interval: int = 5,
                                   path: str | None = None) -> Any:
    """Make an extension that saves a training on every rank, and resumes it (deprecated: `multi_node_snapshot`).

    Files are called ``<name>.<rank>.<iteration>``. A file has its name only once it is written completely; loaded is
    the latest iteration of which every rank has a file that is whole. Files are removed when the training has ended.

    ``checkpointer.maybe_load(trainer, optimizer)`` before ``trainer.run()`` resumes, after all extensions have been
    added. Training then goes on exactly as it would have gone on without an interruption.

    Args:
        name: Name of the run; without a dot.
        comm: A communicator.
        cp_interval: Number of generations that are kept at least.
        gc_interval: Kept for programs that give it.
        path: Folder of the files; by default ``trainer.out``.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#trainer-extensions
    """
    warnings.warn("Checkpointer is deprecated. Use chainermn.extensions.multi_node_snapshot instead.",
                  DeprecationWarning, stacklevel=2)
    return _MultiNodeCheckpointer(name, comm, cp_interval, gc_interval, path)


class _MultiNodeCheckpointer(Extension):
    """The extension that `create_multi_node_checkpointer` makes."""

    def __init__(self, name: str, comm: Any, cp_interval: int, gc_interval: int, path: str | None) -> None:
        if not name or "." in name:
            raise ValueError(f"the name of a checkpointer is part of file names, and has no dot: {name!r}")
        if cp_interval <= 0 or gc_interval <= 0:
            raise ValueError(f"cp_interval and gc_interval must be positive: {cp_interval} and {gc_interval}")
        self.run_name = name
        self.comm = comm
        self.cp_interval = cp_interval
        self.gc_interval = gc_interval
        self.path = path
        self.files: list[str] = []
        self._seconds: list[float] = []

    def __call__(self, trainer: Any) -> None:
        """Save the trainer."""
        if self.path is None:
            self.path = trainer.out
        self.save(trainer, trainer.updater.iteration)

    def save(self, target: Any, iteration: int) -> None:
        """Save an object, on all ranks together."""
        folder = self._folder()
        start = time.perf_counter()
        os.makedirs(folder, exist_ok=True)
        name = self._filename(iteration)
        handle, temporary = tempfile.mkstemp(prefix=f"tmp-{name}", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                save_npz(file, target)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, os.path.join(folder, name))
        except BaseException:
            os.remove(temporary)
            raise
        self._seconds.append(time.perf_counter() - start)
        if name not in self.files:
            self.files.append(name)
        if len(self.files) - self.cp_interval > _SPARE:
            self._remove_old()

    def _remove_old(self) -> None:
        common = self._common([self._iteration(name) for name in self.files])[-self.cp_interval:]
        keep = [self._filename(i) for i in common]
        self._remove(set(self.files) - set(keep))
        self.files = keep

    def _common(self, iterations: Sequence[int | None]) -> list[int]:
        """Return the iterations that all ranks have, in order."""
        every: list[Sequence[int | None]] = self.comm.allgather_obj(iterations)
        common: set[Any] = set(every[0]).intersection(*every[1:])
        return sorted(common - {None})

    def _remove(self, names: Any) -> None:
        for name in names:
            path = os.path.join(self._folder(), name)
            if os.path.exists(path):
                os.remove(path)

    def _folder(self) -> str:
        if self.path is None:
            raise ValueError("a checkpointer without a trainer needs a path: create_multi_node_checkpointer(…, path=…)")
        return self.path

    def finalize(self) -> None:
        """Remove all files."""
        self._remove(self.files)
        self.files = []

    def on_error(self, trainer: Any, exc: BaseException, tb: Any) -> None:
        """Keep the files: they are what the next run resumes from."""
        self.files = []

    def get_stats(self) -> str:
        """Return how long saving has taken, as a text."""
        if not self._seconds:
            return "No stats available"
        mean = sum(self._seconds) / len(self._seconds)
        return (f"Snapshot duration stats (sec): avg={mean:f}, min={min(self._seconds):f}, "
                f"max={max(self._seconds):f}")

    def maybe_load(self, trainer: Any, optimizer: Any = None, path: str | None = None) -> None:
        """Load the latest iteration of which all ranks have a whole file, if there is one.

        Args:
            trainer: What was saved.
            optimizer: The multi node optimizer, where that is not one of the trainer's; it skips its first broadcast.
            path: Folder of the files, where none was given before.
        """
        if self.path is None:
            self.path = trainer.out if path is None else path
        folder = self._folder()
        names = os.listdir(folder) if os.path.isdir(folder) else []
        mine = [i for name in names if (i := self._iteration(name)) is not None]
        common = self._common(mine)
        self.files = [self._filename(i) for i in common]
        while common:
            path = os.path.join(folder, self._filename(common[-1]))
            if all(self.comm.allgather_obj(_is_whole(path))):
                load_npz(path, trainer)
                if hasattr(optimizer, "note_loaded"):
                    optimizer.note_loaded()
                return
            common.pop()

    def _filename(self, iteration: int) -> str:
        return f"{self.run_name}.{self.comm.rank}.{iteration}"

    def _iteration(self, name: str) -> int | None:
        """Return the iteration of one of this rank's files; None for other files."""
        parts = name.split(".")
        if len(parts) != 3 or parts[:2] != [self.run_name, str(self.comm.rank)] or not parts[2].isdigit():
            return None
        return int(parts[2])


def _is_whole(path: str) -> bool:
    """Whether an archive is complete: its directory stands at its end, with a checksum of each entry."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
