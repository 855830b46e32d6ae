"""The training loop."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .. import _random_state
from ..reporter import Reporter
from .extension import PRIORITY_READER
from .trigger import get_trigger


@dataclass
class _Entry:
    """An extension as it is registered: with the trigger and the priority that hold for it."""

    extension: Any
    trigger: Callable[[Any], bool]
    priority: int
    call_before_training: bool


class Trainer:
    """The training loop: an updater that is called until a trigger stops it, and extensions after each call.

    In every iteration, the updater and then, in descending order of priority, the extensions whose trigger
    fires are called, and their reports are collected in :attr:`observation`. Saved to a file (by the
    extension ``snapshot`` or ``serializers.save_npz``) and loaded again, a training goes on exactly as it
    would have: with it goes the state of NumPy's global random generator, which loading sets. (Static chains: up to
    rounding, since the first call in a process is define-by-run.)

    Args:
        updater: an :class:`~kusari.training.Updater`.
        stop_trigger: when to stop, for example ``(20, 'epoch')``; ``None`` never stops.
        out: directory for output of extensions; created when the loop starts.
        extensions: extensions to register with their defaults.

    Attributes:
        updater: the updater.
        stop_trigger: the trigger that ends the loop.
        observation: the values reported in the current iteration, by name.
        out: the directory.
        reporter: the reporter that collects them; models are registered by their optimizers' names.
    """

    def __init__(
        self,
        updater: Any,
        stop_trigger: Any = None,
        out: str = "result",
        extensions: Iterable[Any] | None = None,
    ) -> None:
        self.updater = updater
        self.stop_trigger: Any = get_trigger(stop_trigger)
        self.observation: dict[str, Any] = {}
        self.out = out
        self.reporter = Reporter()
        for name, optimizer in updater.get_all_optimizers().items():
            self.reporter.add_observer(name, optimizer.target)
            self.reporter.add_observers(name, optimizer.target.namedlinks(skipself=True))
        self._done = False
        self._extensions: dict[str, _Entry] = {}
        self._start_at: float | None = None
        self._earlier_time = 0.0  # seconds trained before this run, by the run that was resumed
        self._final_time: float | None = None
        updater.connect_trainer(self)
        for extension in extensions or ():
            self.extend(extension)

    @property
    def is_before_training(self) -> bool:
        """Whether no iteration has been done."""
        return self.updater.iteration == 0

    @property
    def elapsed_time(self) -> float:
        """Seconds of training, those of the run that was resumed included.

        Raises:
            RuntimeError: training has not been started.
        """
        if self._final_time is not None:
            return self._final_time
        if self._start_at is None:
            raise RuntimeError("training has not been started yet")
        return time.perf_counter() - self._start_at + self._earlier_time

    def extend(
        self,
        extension: Any,
        name: str | None = None,
        trigger: Any = None,
        priority: int | None = None,
        *,
        call_before_training: bool = False,
    ) -> None:
        """Register an extension.

        Args:
            extension: an :class:`~kusari.training.Extension` or any callable that takes the trainer.
            name: name to find it by; ``None`` is its own ``name``, ``default_name`` or ``__name__``. A name
                that is taken gets ``_1``, ``_2`` … appended.
            trigger: when to call it, in any form that :func:`~kusari.training.get_trigger` takes; ``None``
                is its own trigger, and every iteration if it has none.
            priority: its place among the others; ``None`` is its own, and ``PRIORITY_READER`` if it has none.
            call_before_training: also call it once before the first iteration.

        Raises:
            TypeError: the extension is not callable or no name can be found.
            ValueError: the name is ``'training'``, which is reserved.
        """
        if not callable(extension):
            raise TypeError(f"an extension must be callable with the trainer; got {extension!r}")
        for attribute in ("name", "default_name", "__name__"):
            if name is None:
                name = getattr(extension, attribute, None)
        if name is None:
            raise TypeError(f"name is not given for the extension {extension!r}: pass name=, or give it a default_name")
        if name == "training":
            raise ValueError('the name "training" is prohibited as an extension name')
        if trigger is None:
            trigger = getattr(extension, "trigger", None)
        if trigger is None:
            trigger = (1, "iteration")
        if priority is None:
            priority = getattr(extension, "priority", None)
        unique, count = name, 0
        while unique in self._extensions:
            count += 1
            unique = f"{name}_{count}"
        try:
            setattr(extension, "name", unique)  # noqa: B010  (functions take attributes that types do not know)
        except AttributeError:
            # Bound methods and the like take no attributes: only the trainer knows their name.
            pass
        self._extensions[unique] = _Entry(
            extension, get_trigger(trigger), PRIORITY_READER if priority is None else priority, call_before_training
        )

    def get_extension(self, name: str) -> Any:
        """The extension of that name; raises ValueError when there is none."""
        if name in self._extensions:
            return self._extensions[name].extension
        raise ValueError(f"extension {name} not found; there are {', '.join(self._extensions) or 'none'}")

    def run(self, show_loop_exception_msg: bool = True) -> None:
        """Train until the stop trigger fires; once.

        An exception ends the loop: extensions get it by ``on_error``, are finalized, and it is raised again.

        Args:
            show_loop_exception_msg: print the exception before the extensions are finalized.

        Raises:
            RuntimeError: it was called before.
        """
        if self._done:
            raise RuntimeError("cannot run training loop multiple times")
        if self.out:
            os.makedirs(self.out, exist_ok=True)
        # sorted is stable: equal priorities keep the order of registration.
        entries = sorted(self._extensions.values(), key=lambda entry: -entry.priority)
        self._start_at = time.perf_counter()
        try:
            self._loop(entries)
        except BaseException as error:
            # Finalizers may hang on a broken state, so the reason is shown before them.
            if isinstance(error, Exception):
                self._on_error(entries, error, show_loop_exception_msg)
            self._finalize(entries, quiet=True)
            raise
        self._finalize(entries, quiet=False)

    def _loop(self, entries: list[_Entry]) -> None:
        """Initialize the extensions and iterate."""
        self.observation = {}
        with self.reporter.scope(self.observation):
            # What loads a state comes first: the others then find what they would find after load_npz.
            for entry in sorted(entries, key=lambda entry: not getattr(entry.extension, "loads_state", False)):
                initialize = getattr(entry.extension, "initialize", None)
                if initialize:
                    initialize(self)
            if self.is_before_training:
                for entry in entries:
                    if entry.call_before_training:
                        entry.extension(self)
        while not self.stop_trigger(self):
            self.observation = {}
            with self.reporter.scope(self.observation):
                self.updater.update()
                for entry in entries:
                    if entry.trigger(self):
                        entry.extension(self)

    def _on_error(self, entries: list[_Entry], error: BaseException, show: bool) -> None:
        """Print the exception and hand it to the extensions."""
        if show:
            print(f"Exception in main training loop: {error}", file=sys.stderr)
            traceback.print_tb(error.__traceback__, file=sys.stderr)
            print("Will finalize trainer extensions and updater before reraising the exception.", file=sys.stderr)
        for entry in entries:
            hook = getattr(entry.extension, "on_error", None)
            if hook:
                try:
                    hook(self, error, error.__traceback__)
                except Exception as another:
                    print(f"Exception in error handler: {another}", file=sys.stderr)
                    traceback.print_tb(another.__traceback__, file=sys.stderr)

    def _finalize(self, entries: list[_Entry], quiet: bool) -> None:
        """Finalize all extensions and the updater, whatever one of them does; raise the first error unless quiet."""
        self._final_time = self.elapsed_time
        self._done = True
        errors: list[Exception] = []
        finalizers = [getattr(entry.extension, "finalize", None) for entry in entries]
        for finalize in [*finalizers, self.updater.finalize]:
            if finalize:
                try:
                    finalize()
                except Exception as error:
                    errors.append(error)
        if errors and not quiet:
            raise errors[0]
        for error in errors:
            print(f"Exception while finalizing: {error}", file=sys.stderr)

    def serialize(self, serializer: Any) -> None:
        """Save the state of the training to, or load it from, ``serializer``: all that a resumed run needs."""
        self.updater.serialize(serializer["updater"])
        if hasattr(self.stop_trigger, "serialize"):
            self.stop_trigger.serialize(serializer["stop_trigger"])
        extensions = serializer["extensions"]
        triggers = serializer["extension_triggers"]
        for name, entry in self._extensions.items():
            if hasattr(entry.extension, "serialize"):
                entry.extension.serialize(extensions[name])
            if hasattr(entry.trigger, "serialize"):
                entry.trigger.serialize(triggers[name])  # pyright: ignore[reportFunctionMemberAccess]
        elapsed = 0.0 if self._start_at is None else self.elapsed_time
        self._earlier_time = float(serializer("_snapshot_elapsed_time", elapsed))
        if self._start_at is not None:
            # The clock started anew: what it shows must not count twice.
            self._start_at = time.perf_counter()
        _random_state.serialize(serializer["_random_state"])
