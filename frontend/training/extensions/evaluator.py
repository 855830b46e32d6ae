"""Evaluation of models on a validation set."""

import copy
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ... import backend
from ...configuration import no_backprop_mode, using_config
from ...dataset import convert
from ...reporter import DictSummary, Reporter, report, report_scope
from ..extension import PRIORITY_WRITER, Extension


class Evaluator(Extension):
    """Extension that runs a model over a validation set and reports the means of what it reports.

    The model runs with ``config.train`` false and without recording a graph. Reported names get the
    extension's name in front: ``validation/main/loss``. A second evaluator is called ``validation_1``.

    Args:
        iterator: iterator over the validation set that stops after one pass, or a dict of them with ``'main'``.
        target: the model, or a dict of models with ``'main'``.
        converter: makes arrays of a batch; ``converter(batch, device)``.
        device: device that the batches are sent to; ``None`` leaves them.
        eval_hook: called with the evaluator before each evaluation.
        eval_func: called with the arrays of a batch in place of the main model.
        progress_bar: show how far an evaluation has come on the terminal.

    Example:
        >>> import numpy as np, kusari
        >>> from kusari import iterators
        >>> from kusari.training import extensions
        >>> class Model(kusari.Chain):
        ...     def forward(self, x):
        ...         kusari.report({"mean": x.mean()}, self)
        >>> batches = iterators.SerialIterator([1.0, 2.0, 6.0], 1, repeat=False, shuffle=False)
        >>> extensions.Evaluator(batches, Model())()
        {'main/mean': 3.0}
    """

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER
    default_name = "validation"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(
        self,
        iterator: Any,
        target: Any,
        converter: Callable[..., Any] = convert.concat_examples,
        device: Any = None,
        eval_hook: Callable[[Any], Any] | None = None,
        eval_func: Callable[..., Any] | None = None,
        *,
        progress_bar: bool = False,
    ) -> None:
        self._iterators: dict[str, Any] = dict(iterator) if isinstance(iterator, Mapping) else {"main": iterator}
        self._targets: dict[str, Any] = dict(target) if isinstance(target, Mapping) else {"main": target}
        self.converter = converter
        self.device = None if device is None else backend.get_device(device)
        self.eval_hook = eval_hook
        self.eval_func = eval_func
        self._progress_bar = progress_bar
        for name, each in self._iterators.items():
            if getattr(each, "repeat", False):
                warnings.warn(
                    f"the iterator {name!r} of the evaluator repeats for ever, so the evaluation would never end: "
                    "make it with repeat=False",
                    stacklevel=2,
                )

    def get_iterator(self, name: str) -> Any:
        """The iterator of that name."""
        return self._iterators[name]

    def get_all_iterators(self) -> dict[str, Any]:
        """All iterators by name."""
        return dict(self._iterators)

    def get_target(self, name: str) -> Any:
        """The model of that name."""
        return self._targets[name]

    def get_all_targets(self) -> dict[str, Any]:
        """All models by name."""
        return dict(self._targets)

    def __call__(self, trainer: Any = None) -> dict[str, Any]:
        """Evaluate, report the means to the current reporter if there is one, and return them."""
        reporter = Reporter()
        prefix = "" if self.name is None else self.name + "/"
        for name, target in self._targets.items():
            reporter.add_observer(prefix + name, target)
            reporter.add_observers(prefix + name, target.namedlinks(skipself=True))
        with reporter, using_config("train", False):
            result = self.evaluate()
        report(result)
        return result

    def evaluate(self) -> dict[str, Any]:
        """Run over the validation set and return the means by name; the method to override."""
        iterator = self._iterators["main"]
        function = self.eval_func or self._targets["main"]
        if self.eval_hook:
            self.eval_hook(self)
        if hasattr(iterator, "reset"):
            iterator.reset()
        else:
            warnings.warn("This iterator does not have the reset method. Evaluator copies the iterator instead of "
                          "resetting. This behavior is deprecated. Please implement the reset method.",
                          DeprecationWarning, stacklevel=2)
            iterator = copy.copy(iterator)
        summary = DictSummary()
        shown = self._progress_bar
        for count, batch in enumerate(iterator, 1):
            observation: dict[str, Any] = {}
            with report_scope(observation):
                arrays = convert.call_converter(self.converter, batch, self.device)
                with no_backprop_mode():
                    if isinstance(arrays, tuple):
                        function(*arrays)
                    elif isinstance(arrays, dict):
                        function(**arrays)
                    else:
                        function(arrays)
            summary.add(observation)
            if shown:
                done = getattr(iterator, "epoch_detail", 0.0)
                sys.stdout.write(f"\033[J{self.name or self.default_name}: {count} batches, {done:.1%}\n\033[1A")
                sys.stdout.flush()
        if shown:
            sys.stdout.write("\033[J")
            sys.stdout.flush()
        return summary.compute_mean()

    def finalize(self) -> None:
        """Finalize the iterators."""
        for iterator in self._iterators.values():
            iterator.finalize()
