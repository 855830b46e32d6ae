"""Other places than the memory of the host: the part of a recording's life that depends on where its arrays lie."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kusari.ir import Graph, Value
from kusari.passes import Observer

if TYPE_CHECKING:
    from .compile import Compiled


class Place(Protocol):
    """A device whose arrays are not NumPy's, with a compiler for graphs on them."""

    def holds(self, array: Any) -> bool:
        """Whether an array lies here."""
        ...

    def compile(self, graph: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, memory: str | float,
                spent: Collection[int], observer: Observer | None) -> Compiled:
        """Compile a graph, as ``compile_graph`` does for the host."""
        ...

    def arguments(self, compiled: Compiled, bindings: Sequence[Any], fixed: Mapping[int, Any] | None = None,
                  returned: Sequence[int] | None = None, apart: Collection[int] = (),
                  views: Mapping[int, Any] | None = None, ready: Callable[[], None] | None = None) -> Any:
        """Return what runs a compiled graph, as ``Arguments`` do on the host."""
        ...

    def load(self, graph: Graph, final: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, about: str,
             ) -> Compiled:
        """Plan, generate and load ``final``, to which the passes have brought ``graph``."""
        ...

    def send(self, array: Any) -> Any:
        """Return the elements of an array of NumPy's as one that lies here."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of zeros."""
        ...

    def other_draws(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which draws leave the generator as it is."""
        ...

    def ones(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of ones."""
        ...


def lies_in(array: Any, place: Place | None) -> bool:
    """Whether an array is one of NumPy's, or lies in ``place`` where there is one."""
    return isinstance(array, np.ndarray) if place is None else place.holds(array)
