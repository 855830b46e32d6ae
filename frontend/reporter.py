"""Values that a training run reports by name, and their statistics."""

from __future__ import annotations

import contextlib
import json
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from . import tape as _tape
from .configuration import config
from .variable import Variable, output_variable

_local = threading.local()


def _stack() -> list[Reporter]:
    """The reporters of this thread, the current one last."""
    try:
        return _local.reporters
    except AttributeError:
        _local.reporters = []
        return _local.reporters


class Reporter:
    """Collector of reported values: a dict from names to values, the *observation*.

    A value is reported with or without an *observer*, an object registered under a name, which is then put
    before the value's name. Links are the usual observers. As a context manager, a reporter becomes the
    current one of the thread, which :func:`report` writes to.

    Attributes:
        observation: the dict being written to.

    Example:
        >>> from kusari import Reporter
        >>> reporter, observer, observation = Reporter(), object(), {}
        >>> reporter.add_observer("net", observer)
        >>> with reporter.scope(observation):
        ...     reporter.report({"x": 1}, observer)
        >>> observation
        {'net/x': 1}
    """

    def __init__(self) -> None:
        self.observation: dict[str, Any] = {}
        # By identity: links define no equality, and the entry keeps its observer alive so that no id is reused.
        self._observers: dict[int, tuple[str, Any]] = {}

    def __enter__(self) -> Reporter:
        """Make this reporter the current one."""
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        """Make the reporter before this one the current one again."""
        _stack().pop()

    @contextlib.contextmanager
    def scope(self, observation: dict[str, Any]) -> Iterator[None]:
        """Context in which this reporter is the current one and writes to ``observation``."""
        before = self.observation
        self.observation = observation
        try:
            with self:
                yield
        finally:
            self.observation = before

    def add_observer(self, name: str, observer: Any) -> None:
        """Register ``observer`` under ``name``, the prefix of the values that it reports."""
        self._observers[id(observer)] = name, observer

    def add_observers(self, prefix: str, observers: Iterable[tuple[str, Any]]) -> None:
        """Register (name, observer) pairs, each under ``prefix + name``; ``link.namedlinks()`` gives such pairs."""
        for name, observer in observers:
            self.add_observer(prefix + name, observer)

    def report(self, values: Mapping[str, Any], observer: Any = None) -> None:
        """Write values to the observation.

        Variables are cut off from their graph unless ``config.keep_graph_on_report`` is set, so that a
        report does not keep a computation's memory.

        Args:
            values: dict from names to values.
            observer: registered object whose name is put before the values' names.

        Raises:
            KeyError: the observer is not registered.
        """
        # The tracer hears of every report (by replaying it, compiled code reports too); the values are
        # stored as they are even so, since the traced iteration is an ordinary one for everybody else.
        tape = _tape.active()
        if tape is not None:
            values = tape.report(values, observer) or values
        prefix = ""
        if observer is not None:
            entry = self._observers.get(id(observer))
            if entry is None:
                raise KeyError(
                    "Given observer is not registered to the reporter. "
                    f"It is of type {type(observer).__name__}; the registered names are "
                    f"{sorted(name for name, _ in self._observers.values())}"
                )
            prefix = entry[0] + "/"
        keep_graph = config.keep_graph_on_report
        for key, value in values.items():
            if isinstance(value, Variable) and not keep_graph:
                value = output_variable(value._array, False)
            self.observation[prefix + key] = value


def get_current_reporter() -> Reporter:
    """The reporter that :func:`report` of this thread writes to.

    Raises:
        IndexError: there is none: no ``with reporter:`` or ``reporter.scope(...)`` is active.
    """
    stack = _stack()
    if not stack:
        raise IndexError("no reporter is active in this thread: values are reported within a reporter's scope")
    return stack[-1]


def report(values: Mapping[str, Any], observer: Any = None) -> None:
    """Report values to the current reporter; without one, nothing happens.

    Args:
        values: dict from names to values, often scalar variables.
        observer: the object that reports, usually ``self`` of a link.

    Raises:
        KeyError: the observer is not registered with the current reporter.

    Example:
        >>> import kusari
        >>> reporter, observation = kusari.Reporter(), {}
        >>> with reporter.scope(observation):
        ...     kusari.report({"loss": 0.5})
        >>> observation
        {'loss': 0.5}
    """
    stack = _stack()
    if stack:
        stack[-1].report(values, observer)
        return
    tape = _tape.active()
    if tape is not None:
        tape.report(values, observer)


@contextlib.contextmanager
def report_scope(observation: dict[str, Any]) -> Iterator[None]:
    """Context in which the current reporter writes to ``observation``.

    Args:
        observation: a dict.

    Raises:
        IndexError: there is no current reporter.
    """
    reporter = get_current_reporter()
    before = reporter.observation
    reporter.observation = observation
    try:
        yield
    finally:
        reporter.observation = before


def _scalar(value: Any) -> Any:
    """A number or a zero-dimensional array, from what was reported; None for anything else."""
    if isinstance(value, Variable):
        value = value.array
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return value
    if getattr(value, "ndim", None) == 0 and getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf":
        return value
    return None


class Summary:
    """Running mean and standard deviation of numbers, in float64.

    Example:
        >>> from kusari.reporter import Summary
        >>> summary = Summary()
        >>> for value in (1, 2, 6):
        ...     summary.add(value)
        >>> summary.compute_mean()
        3.0
    """

    def __init__(self) -> None:
        self._x: Any = 0.0
        self._x2: Any = 0.0
        self._n: Any = 0

    def add(self, value: Any, weight: Any = 1) -> None:
        """Add a number (a scalar or zero-dimensional array; a GPU array is not waited for), ``weight`` times."""
        # float64 whatever the value's type: thousands of losses add up here.
        if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "astype"):
            value = float(value)
        else:
            value = value.astype(np.float64)
        self._x = self._x + weight * value
        self._x2 = self._x2 + weight * value * value
        self._n = self._n + weight

    def compute_mean(self) -> Any:
        """The mean; raises ZeroDivisionError when nothing was added."""
        if not self._n:
            raise ZeroDivisionError("the mean of a summary to which nothing was added")
        return self._x / self._n

    def make_statistics(self) -> tuple[Any, Any]:
        """The mean and the standard deviation (of the population)."""
        mean = self.compute_mean()
        variance = self._x2 / self._n - mean * mean
        # Rounding can bring the variance of equal values below zero.
        return mean, max(float(variance), 0.0) ** 0.5

    def serialize(self, serializer: Any) -> None:
        """Save the sums, or load them; files of old versions of Chainer lack them."""
        try:
            self._x = _number(serializer("_x", self._x))
            self._x2 = _number(serializer("_x2", self._x2))
            self._n = _number(serializer("_n", self._n))
        except KeyError:
            warnings.warn("the file does not have the statistics of a summary: it begins anew", UserWarning, 3)
            Summary.__init__(self)


def _number(value: Any) -> Any:
    """A plain number of what a deserializer gave."""
    return value.item() if hasattr(value, "item") else value


class DictSummary:
    """Running statistics of the numbers of dicts, by key; whatever is not a number is left out.

    Example:
        >>> from kusari.reporter import DictSummary
        >>> summary = DictSummary()
        >>> summary.add({"loss": 1.0, "note": "text"})
        >>> summary.add({"loss": 3.0})
        >>> summary.compute_mean(), summary.make_statistics()
        ({'loss': 2.0}, {'loss': 2.0, 'loss.std': 1.0})
    """

    def __init__(self) -> None:
        self._summaries: dict[str, Summary] = {}

    def add(self, d: Mapping[str, Any]) -> None:
        """Add the numbers of a dict; a value that is a pair is a number and its weight.

        Raises:
            ValueError: A weight is not a number.
        """
        for key, value in d.items():
            weight: Any = 1
            if isinstance(value, tuple):
                if len(value) != 2:
                    continue
                value, given = value
                weight = _scalar(given)
                if weight is None:
                    raise ValueError(f"the weight of {key!r} must be a number, got {given!r}")
            value = _scalar(value)
            if value is not None:
                self._summaries.setdefault(key, Summary()).add(value, weight)

    def compute_mean(self) -> dict[str, Any]:
        """The means by key."""
        return {key: summary.compute_mean() for key, summary in self._summaries.items()}

    def make_statistics(self) -> dict[str, Any]:
        """The means by key, and the standard deviations by key with ``.std`` appended."""
        statistics: dict[str, Any] = {}
        for key, summary in self._summaries.items():
            statistics[key], statistics[key + ".std"] = summary.make_statistics()
        return statistics

    def serialize(self, serializer: Any) -> None:
        """Save the sums by key, or load them; files of old versions of Chainer lack them."""
        try:
            names = json.loads(str(serializer("_names", json.dumps(list(self._summaries)))))
        except KeyError:
            warnings.warn("the file does not have the statistics of a summary: it begins anew", UserWarning, 3)
            names = []
        self._summaries = {name: self._summaries.get(name, Summary()) for name in names}
        for i, summary in enumerate(self._summaries.values()):
            summary.serialize(serializer["_summaries"][str(i)])
