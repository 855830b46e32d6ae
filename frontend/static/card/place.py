"""A card as a place of arrays."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kusari.ir import Graph, Value
from kusari.passes import Observer
from kusari.runtime.card.kernels import cupy

from ...backends.cuda import is_cupy_array
from ..compile.compile import Compiled
from .arguments import CardArguments
from .compile import compile_on_card, load_on_card


@dataclass(frozen=True)
class CardPlace:
    """The card with a number."""

    device: int

    def holds(self, array: Any) -> bool:
        """Whether an array is one of CuPy's, on this card."""
        return is_cupy_array(array) and array.device.id == self.device

    def compile(self, graph: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, memory: str | float,
                spent: Collection[int], observer: Observer | None) -> Compiled:
        """Compile a graph to kernels of a card."""
        return compile_on_card(graph, self, kept, copy_in, copy_out, memory, spent, observer)

    def arguments(self, compiled: Compiled, bindings: Sequence[Any], fixed: Mapping[int, Any] | None = None,
                  returned: Sequence[int] | None = None, apart: Collection[int] = (),
                  views: Mapping[int, Any] | None = None, ready: Callable[[], None] | None = None) -> CardArguments:
        """Return what runs a compiled graph."""
        return CardArguments(self, compiled, bindings, fixed, returned, apart, views, ready)

    def load(self, graph: Graph, final: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, about: str,
             ) -> Compiled:
        """Plan, generate and load a graph that the passes have seen."""
        return load_on_card(graph, final, self, kept, copy_in, copy_out, about)

    @contextlib.contextmanager
    def other_draws(self) -> Iterator[None]:
        """Context in which draws leave the generator of the card as it is."""
        with cupy().cuda.Device(self.device):
            before = cupy().random.get_random_state()
            cupy().random.set_random_state(cupy().random.RandomState(0))
            try:
                yield
            finally:
                cupy().random.set_random_state(before)

    def send(self, array: Any) -> Any:
        """Return the elements of an array of NumPy's on this card."""
        with cupy().cuda.Device(self.device):
            return cupy().asarray(array)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of zeros."""
        with cupy().cuda.Device(self.device):
            return cupy().zeros(shape, dtype)

    def ones(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of ones."""
        with cupy().cuda.Device(self.device):
            return cupy().ones(shape, dtype)

    def __str__(self) -> str:
        return f"card {self.device}"


@functools.cache
def card(device: int) -> CardPlace:
    """Return the place of a card."""
    return CardPlace(device)
