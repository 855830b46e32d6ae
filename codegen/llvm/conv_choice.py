"""Which algorithm computes a convolution: the cycles of all candidates, in one table, and the fewest.

Winograd's algorithm is in the same table as the algorithms that compute the sums by definition. Costs that all of them
have are left out, such as reading arrays from memory. Writers of texts are imported only where their counts are needed.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

from kusari.ir import Arg, Choice

from ..target import Target
from .conv_spec import ConvSpec, Direction
from .winograd_choice import winograd_variants
from .winograd_spec import WinogradSpec

Algorithm = Literal["product", "panels", "columns", "direct", "taps"]


@dataclass(frozen=True)
class Candidate:
    """An algorithm that can compute a convolution, and the cycles of one core that it is expected to take.

    ``winograd`` is its specification, if it is Winograd's.
    """

    cycles: float
    name: str
    winograd: WinogradSpec | None = None


def candidates(spec: ConvSpec, target: Target, largest: int) -> list[Candidate]:
    """Return all algorithms that can compute ``spec``, those of the fewest cycles first.

    Winograd's tiles may have ``largest`` x ``largest`` outputs; larger ones are faster and less accurate.
    """
    return sorted([*_defined(spec, target), *_winograd(spec, target, largest)], key=lambda c: c.cycles)


def winograd_of(spec: ConvSpec, target: Target, largest: int) -> WinogradSpec | None:
    """Return how Winograd's algorithm computes ``spec``, or None if another one takes fewer cycles.

    It is the first of ``candidates``; a variant with fewer cycles than any count of the others is found without them.
    """
    best = min(_winograd(spec, target, largest), key=lambda c: c.cycles, default=None)
    if best is None:
        return None
    at_least = spec.flops / (4 * target.lanes(spec.dtype.itemsize))   # two multiply-adds of vectors in each cycle
    if best.cycles >= at_least and best.cycles >= _defined(spec, target)[0].cycles:
        return None
    return best.winograd


def choose(spec: ConvSpec, target: Target) -> Choice:
    """Return the algorithm of the fewest cycles that computes the sums of ``spec`` as they are defined.

    *product*: a window is a single element and nothing is moved, so each sample is a matrix product in place. *panels*:
    windows gathered from staged images are multiplied by the filters; any forward convolution or gradient of an input.
    *direct*: vectors of results or of positions times single weights, for groups of few channels. *columns*: filters
    are multiplied by the gradient, and windows of the products are added up; gradients of inputs whose windows are
    strided or see no padding. *taps*: gradients of weights.
    """
    return _explained(_defined(spec, target))


def explained(spec: ConvSpec, target: Target, largest: int) -> Choice:
    """Return the choice for ``spec`` with its reasons; Winograd's tiles may have ``largest`` x ``largest`` outputs."""
    return _explained(candidates(spec, target, largest))


def _explained(found: list[Candidate]) -> Choice:
    best, *others = found
    return Choice(best.name, best.cycles, "the fewest" if others else "the only way",
                  tuple((c.name, c.cycles) for c in others))


# Module and function that count each algorithm of a direction.
_COUNTS: dict[Direction, dict[Algorithm, tuple[str, str]]] = {
    "forward": {"product": ("conv_product", "choose_product"), "panels": ("conv_panel_shape", "choose_panels"),
                "direct": ("conv_direct", "choose_direct")},
    "input": {"product": ("conv_product", "choose_product"), "panels": ("conv_panel_shape", "choose_panels"),
              "columns": ("conv_columns", "choose_columns"), "direct": ("conv_direct", "choose_direct")},
    "weight": {"taps": ("conv_weights", "choose_weights"), "direct": ("conv_direct_weights", "choose_direct_weights")},
}
_MOST_TAPS = 64  # each is text where gradients of weights are computed directly


def suits(algorithm: Algorithm, spec: ConvSpec) -> bool:
    """Whether an algorithm can compute ``spec``."""
    if algorithm not in _COUNTS[spec.direction]:
        return False
    if algorithm == "product":
        return spec.is_plain and spec.groups == 1
    if algorithm == "direct" and spec.direction == "weight":
        return spec.taps <= _MOST_TAPS and spec.groups >= 4
    # Results of the direct algorithm have one set of taps: those of strided gradients have several.
    return algorithm != "direct" or spec.direction == "forward" or set(spec.stride) == {1}


def count(algorithm: Algorithm, spec: ConvSpec, target: Target) -> float:
    """Cycles of one core that an algorithm, if it suits, is expected to take."""
    module, function = _COUNTS[spec.direction][algorithm]
    writer: Any = import_module(f"{__package__}.{module}")
    return getattr(writer, function)(spec, target).cycles


def _winograd(spec: ConvSpec, target: Target, largest: int) -> list[Candidate]:
    return [Candidate(cycles, f"winograd in tiles of {one.tile}x{one.tile}"
                      + ", threads share output channels" * one.by_maps, one)
            for cycles, one in winograd_variants(spec, target, largest)]


def _defined(spec: ConvSpec, target: Target) -> list[Candidate]:
    """Candidates that compute the sums as they are defined, whatever the epilogue; the fewest cycles first."""
    return _counted(replace(spec, exprs=(Arg(0),), operands=()), target)


@lru_cache(maxsize=256)
def _counted(spec: ConvSpec, target: Target) -> list[Candidate]:
    return sorted((Candidate(count(name, spec, target), name) for name in _COUNTS[spec.direction] if suits(name, spec)),
                  key=lambda c: c.cycles)
