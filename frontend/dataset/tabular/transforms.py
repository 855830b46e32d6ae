"""Views of what a function makes of the rows of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tabular_dataset import Column, TabularDataset
from .views import Rows, View


class Transform(View):
    """The results of a function for each example; its first result decides the mode."""

    def __init__(self, dataset: TabularDataset, keys: str | tuple[str, ...], function: Callable[..., Any]) -> None:
        super().__init__(dataset)
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._function = function
        self._mode: type | None = None
        self._is_known = False

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def mode(self) -> type | None:
        if not self._is_known:
            if not len(self):
                raise ValueError("the mode of a transformed dataset is that of its first example, but there is none")
            self._columns([0])
        return self._mode

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        columns = self._columns(indices)
        return columns if key_indices is None else tuple([columns[k] for k in key_indices])

    def _columns(self, indices: Rows) -> tuple[Column, ...]:
        rows = zip(*self.dataset.get_examples(indices, None), strict=True)
        examples = [self._checked(self._applied(row)) for row in rows]
        return tuple([list(column) for column in zip(*examples, strict=True)] or [[] for _ in self._keys])

    def _applied(self, columns: tuple[Any, ...]) -> Any:
        """The function of an example, or of columns."""
        mode = self.dataset.mode
        if mode is dict:
            return self._function(**dict(zip(self.dataset.keys, columns, strict=True)))
        return self._function(*columns)

    def _checked(self, result: Any) -> tuple[Any, ...]:
        """Return the function's result as a tuple, one element for each key."""
        mode = tuple if isinstance(result, tuple) else dict if isinstance(result, dict) else None
        if not self._is_known:
            self._mode, self._is_known = mode, True
        elif mode is not self._mode:
            raise ValueError(f"the function of a transformed dataset returned a {_named(self._mode)} before, and now a "
                             f"{_named(mode)}")
        if isinstance(result, dict):
            if set(result) != set(self._keys):
                raise ValueError(f"the function should return a dictionary of {self._keys}, got {tuple(result)}")
            return tuple([result[key] for key in self._keys])
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self._keys):
            raise ValueError(f"the function should return one value for each of {self._keys}, got {len(values)}")
        return values


def _named(mode: type | None) -> str:
    return "single value" if mode is None else mode.__name__


class TransformBatch(Transform):
    """The results of a function for the columns of many examples at once."""

    def _columns(self, indices: Rows) -> tuple[Column, ...]:
        columns = tuple(self.dataset.get_examples(indices, None))
        found = self._checked(self._applied(columns))
        for key, column in zip(self._keys, found, strict=True):
            if columns and len(column) != len(columns[0]):
                raise ValueError(f"the function should return as many elements as it was given, {len(columns[0])}, got "
                                 f"{len(column)} for {key!r}")
        return found
