"""Statistics of parameters and gradients."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ... import backend
from ...reporter import DictSummary, report
from ..extension import PRIORITY_WRITER, Extension
from ..trigger import get_trigger

# The share of a normal distribution below -3, -2, -1, 0, 1, 2 and 3 standard deviations, in percent.
_SIGMAS = (0.13, 2.28, 15.87, 50, 84.13, 97.72, 99.87)


def _percentile(x: Any) -> Any:
    """The values below which the shares of the sigma points lie."""
    return backend.get_array_module(x).percentile(x, _SIGMAS)


def _zeros(x: Any) -> Any:
    """The number of elements that are zero."""
    return backend.get_array_module(x).count_nonzero(x == 0)


class ParameterStatistics(Extension):
    """Extension that reports statistics of the parameters of links, and of their gradients.

    The means over an interval are reported under ``{link}{path}/{data or grad}/{statistic}``.

    Args:
        links: a link or several.
        statistics: dict from names to functions of an array that give a number or an array of them;
            ``'default'`` has mean, std, min, max, zeros and percentile.
        report_params: whether to look at parameters.
        report_grads: whether to look at gradients.
        prefix: put before the names.
        trigger: the interval.
        skip_nan_params: give NaN for arrays that contain one, where a statistic would raise.
    """

    priority = PRIORITY_WRITER
    default_name = "parameter_statistics"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
    report_key_template = "{prefix}{link_name}{param_name}/{attr_name}/{function_name}"
    default_statistics: dict[str, Callable[[Any], Any]] = {
        "mean": lambda x: x.mean(),
        "std": lambda x: x.std(),
        "min": lambda x: x.min(),
        "max": lambda x: x.max(),
        "zeros": _zeros,
        "percentile": _percentile,
    }

    def __init__(
        self,
        links: Any,
        statistics: Mapping[str, Callable[[Any], Any]] | str | None = "default",
        report_params: bool = True,
        report_grads: bool = True,
        prefix: str | None = None,
        trigger: Any = (1, "epoch"),
        skip_nan_params: bool = False,
    ) -> None:
        # Chains can be iterated over too, so a link is told from several by what links have.
        self._links: Iterable[Any] = [links] if hasattr(links, "namedparams") else list(links)
        if isinstance(statistics, str):
            if statistics != "default":
                raise ValueError(f"statistics must be a dict, None or 'default', got {statistics!r}")
            statistics = self.default_statistics
        self._statistics = dict(statistics or {})
        self._attributes = ["data"] * report_params + ["grad"] * report_grads
        self._prefix = prefix
        self._trigger: Any = get_trigger(trigger)
        self._summary = DictSummary()
        self._skip_nan = skip_nan_params

    def register_statistics(self, name: str, function: Callable[[Any], Any]) -> None:
        """Add a statistic: a function of an array that gives a number or an array of numbers."""
        self._statistics[name] = function

    def __call__(self, trainer: Any) -> None:
        """Take the statistics of this iteration, and report means at the end of the interval."""
        values: dict[str, Any] = {}
        for link in self._links:
            for path, param in link.namedparams():
                for attribute in self._attributes:
                    array = getattr(param, attribute)
                    if array is not None:
                        self._collect(values, link.name, path, attribute, array)
        self._summary.add(values)
        if self._trigger(trainer):
            report(self._summary.compute_mean())
            self._summary = DictSummary()

    def _collect(self, values: dict[str, Any], link_name: Any, path: str, attribute: str, array: Any) -> None:
        """The statistics of one array, by their names."""
        broken = self._skip_nan and bool(backend.get_array_module(array).isnan(array).any())
        for name, function in self._statistics.items():
            value: Any = np.nan if broken else function(array)
            key = self.report_key_template.format(
                prefix="" if self._prefix is None else self._prefix + "/",
                link_name=link_name,
                param_name=path,
                attr_name=attribute,
                function_name=name,
            )
            if getattr(value, "ndim", 0) == 0:
                values[key] = value
            else:
                values.update({f"{key}/{i}": each for i, each in enumerate(value)})

    def serialize(self, serializer: Any) -> None:
        """Save or load the interval and the sums so far."""
        try:
            if hasattr(self._trigger, "serialize"):
                self._trigger.serialize(serializer["_trigger"])
            self._summary.serialize(serializer["_summary"])
        except KeyError:  # Chainer's snapshots do not have them
            return
