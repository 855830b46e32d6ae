"""Snapshots: saving a training, or a part of it, while it goes on."""

import os
import re
import string
from collections.abc import Callable
from typing import Any

from ...serializers import load_npz, save_npz
from ...utils.experimental import renamed
from ..extension import Extension
from .snapshot_writers import SimpleWriter, Writer, frozen_state

_DEFAULT_NAME = "snapshot_iter_{.updater.iteration}"


def snapshot(
    savefun: Callable[..., Any] | None = None,
    filename: str | Callable[[Any], str] = _DEFAULT_NAME,
    *,
    target: Any = None,
    condition: Callable[[], bool] | None = None,
    writer: Writer | None = None,
    snapshot_on_error: bool = False,
    n_retains: int = -1,
    autoload: bool = False,
    **kwargs: Any,
) -> "Snapshot":
    """Make an extension that saves the whole trainer, every epoch unless another trigger is given.

    A training resumes from such a file by ``serializers.load_npz(path, trainer)`` on a trainer that was built
    in the same way, or by itself with ``autoload``. It then goes on exactly as it would have.

    Args:
        savefun: function ``(path, state)`` that writes the file; ``None`` is ``serializers.save_npz``.
        filename: name of the file in the trainer's ``out`` directory: a format string, or a function, of the
            trainer.
        target: what to save instead of the trainer.
        condition: no snapshot is taken when ``condition()`` is false.
        writer: how the file is written, see :mod:`kusari.training.extensions.snapshot_writers`; not together
            with ``savefun``.
        snapshot_on_error: also take one when an exception ends the training.
        n_retains: number of snapshots that are kept: older ones of the same name pattern are removed. Not
            positive keeps all. ``num_retain`` is another word for it (deprecated).
        autoload: when training starts, load the newest snapshot of the name pattern in ``out``, if there is one.

    Raises:
        TypeError: ``savefun`` and ``writer`` are both given.
    """
    return Snapshot(
        target=target,
        condition=condition,
        writer=_writer(savefun, writer),
        filename=filename,
        snapshot_on_error=snapshot_on_error,
        n_retains=renamed(kwargs, "num_retain", "n_retains", n_retains),
        autoload=autoload,
    )


def snapshot_object(
    target: Any,
    filename: str | Callable[[Any], str],
    savefun: Callable[..., Any] | None = None,
    *,
    condition: Callable[[], bool] | None = None,
    writer: Writer | None = None,
    snapshot_on_error: bool = False,
    n_retains: int = -1,
    autoload: bool = False,
    **kwargs: Any,
) -> "Snapshot":
    """Make an extension that saves one object, such as a model, every epoch unless another trigger is given.

    Args:
        target: the object.
        filename, savefun, condition, writer, snapshot_on_error, n_retains, autoload: as for :func:`snapshot`.
    """
    return snapshot(
        savefun,
        filename,
        target=target,
        condition=condition,
        writer=writer,
        snapshot_on_error=snapshot_on_error,
        n_retains=n_retains,
        autoload=autoload,
        **kwargs,
    )


def _writer(savefun: Callable[..., Any] | None, writer: Writer | None) -> Writer:
    """The writer that the arguments ask for."""
    if savefun is not None and writer is not None:
        raise TypeError("savefun and writer arguments cannot be specified together: give savefun to the writer")
    return SimpleWriter(savefun=savefun or save_npz) if writer is None else writer


class Snapshot(Extension):
    """The extension that :func:`snapshot` and :func:`snapshot_object` make."""

    trigger = (1, "epoch")
    priority = -100  # after everything else, so that the file has all of the iteration

    def __init__(
        self,
        target: Any,
        condition: Callable[[], bool] | None,
        writer: Writer,
        filename: str | Callable[[Any], str],
        snapshot_on_error: bool,
        n_retains: int,
        autoload: bool,
    ) -> None:
        self.target = target
        self.condition = condition
        self.writer = writer
        self.filename = filename
        self._on_error = snapshot_on_error
        self._n_retains = n_retains
        self._autoload = self.loads_state = autoload
        if autoload and callable(filename):
            raise TypeError("autoload finds snapshots by their name pattern, which a function as filename has none of")
        if n_retains > 0 and callable(filename):
            raise TypeError("n_retains finds snapshots by their name pattern, which a function as filename has none of")

    @property
    def default_name(self) -> str:
        """The name that such extensions have in Chainer's files."""
        return "_Snapshot"

    def initialize(self, trainer: Any) -> None:
        """Load the newest snapshot, if asked to."""
        if not self._autoload:
            return
        target = trainer if self.target is None else self.target
        assert isinstance(self.filename, str)
        found = _find_latest_snapshot(self.filename, trainer.out)
        if found is not None:
            load_npz(os.path.join(trainer.out, found), target)

    def __call__(self, trainer: Any) -> None:
        """Take a snapshot, unless the condition forbids it."""
        if self.condition is None or self.condition():
            self._take(trainer)

    def on_error(self, trainer: Any, exc: BaseException, tb: Any) -> None:
        """Take a snapshot after an exception, if asked to."""
        if self._on_error:
            self._take(trainer)

    def finalize(self) -> None:
        """Wait for what is being written."""
        self.writer.finalize()

    def _take(self, trainer: Any) -> None:
        """Save the state and remove snapshots that are too old."""
        target = trainer if self.target is None else self.target
        name = self.filename(trainer) if callable(self.filename) else self.filename.format(trainer)
        self.writer(name, trainer.out, frozen_state(target))
        if self._n_retains > 0:
            assert isinstance(self.filename, str)
            for old in _find_stale_snapshots(self.filename, trainer.out, self._n_retains, name):
                os.remove(os.path.join(trainer.out, old))


def _find_snapshot_files(template: str, folder: str) -> list[tuple[Any, str]]:
    """The snapshots in a folder, oldest first: what they are sorted by (numbers in their names, time), and names."""
    if not os.path.isdir(folder):
        return []
    pattern = _pattern(template)
    found: list[tuple[Any, str]] = []
    for name in os.listdir(folder):
        match = pattern.fullmatch(name)
        if match:
            numbers = [float(group) for group in match.groups() if group is not None and _is_number(group)]
            found.append(((numbers, os.path.getmtime(os.path.join(folder, name))), name))
    return sorted(found)


def _find_latest_snapshot(template: str, folder: str) -> str | None:
    """Return the name of the newest snapshot in a folder, if there is one."""
    found = _find_snapshot_files(template, folder)
    return found[-1][1] if found else None


def _find_stale_snapshots(template: str, folder: str, n_retains: int, new: str | None = None) -> list[str]:
    """Names of all but the newest snapshots; a new one, which may not be on the disk yet, counts."""
    others = [name for _, name in _find_snapshot_files(template, folder) if name != new]
    return others[: max(len(others) + (new is not None) - n_retains, 0)]


def _pattern(template: str) -> re.Pattern[str]:
    """The names that a format string gives, whatever is put in."""
    parts = ""
    for literal, field, _, _ in string.Formatter().parse(template):
        parts += re.escape(literal)
        if field is not None:
            parts += "(.+?)"
    return re.compile(parts)


def _is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
