"""Which algorithm computes the sums of a convolution as they are defined: that of the fewest cycles.

Costs that all of them have are left out, such as reading arrays from memory. Writers of texts are imported only where
their counts are needed.
"""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

from kusari.ir import Arg, Choice

from ....contractions import ConvSpec, Direction
from ....target import Target
from ..cycles import Candidate, explanation

Algorithm = Literal["product", "panels", "columns", "direct", "taps"]


def choose(spec: ConvSpec, target: Target) -> Choice:
    """Return the algorithm of the fewest cycles that computes the sums of ``spec`` as they are defined.

    *product*: a window is a single element and nothing is moved, so each sample is a matrix product in place. *panels*:
    windows gathered from staged images are multiplied by the filters; any forward convolution, and gradients of inputs
    whose windows are not strided. *direct*: vectors of results or of positions times single weights, for groups of few
    channels. *columns*: filters are multiplied by the gradient, and windows of the products are added up; any gradient
    of an input. *taps*: gradients of weights.
    """
    return explanation(defined(spec, target))


# The writer of each algorithm of a direction; ``choose(spec, target)`` of its module returns the plan that it takes.
_WRITERS: dict[Direction, dict[Algorithm, str]] = {
    "forward": {"product": "product.Product", "panels": "panels.Panels", "direct": "direct.Direct"},
    "input": {"product": "product.Product", "panels": "panels.Panels", "columns": "columns.Columns",
              "direct": "direct.Direct"},
    "weight": {"taps": "weights.Weights", "direct": "direct_weights.DirectWeights"},
}
_MOST_TAPS = 64  # each is text where gradients of weights are computed directly


def suits(algorithm: Algorithm, spec: ConvSpec) -> bool:
    """Whether an algorithm can compute ``spec``."""
    if algorithm not in _WRITERS[spec.direction]:
        return False
    if algorithm == "product":
        return spec.is_plain and spec.groups == 1
    if algorithm == "direct" and spec.direction == "weight":
        return spec.taps <= _MOST_TAPS and spec.groups >= 4
    # Elements of a strided gradient have several sets of taps.
    return algorithm == "columns" or spec.direction != "input" or set(spec.stride) == {1}


def module_of(algorithm: Algorithm, spec: ConvSpec) -> tuple[Any, str]:
    """The module of an algorithm, imported when it is needed, and the name of the writer in it."""
    module, _, writer = _WRITERS[spec.direction][algorithm].partition(".")
    return import_module(f"{__package__}.{module}"), writer


def defined(spec: ConvSpec, target: Target) -> list[Candidate]:
    """Candidates that compute the sums as they are defined, whatever the epilogue; the fewest cycles first."""
    return _counted(replace(spec, exprs=(Arg(0),), operands=()), target)


@lru_cache(maxsize=256)
def _counted(spec: ConvSpec, target: Target) -> list[Candidate]:
    found = [Candidate(module_of(name, spec)[0].choose(spec, target).cycles, name)
             for name in _WRITERS[spec.direction] if suits(name, spec)]
    return sorted(found, key=lambda c: c.cycles)
