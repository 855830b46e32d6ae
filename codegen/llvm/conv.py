"""Convolutions as LLVM IR for constant shapes: which algorithm, and its text.

``choose`` is the one place that says which algorithm computes a convolution; ``ALGORITHMS`` names them all.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from kusari.ir import Kernel

from ..target import Target
from .conv_columns import choose_columns, write_columns
from .conv_direct import choose_direct, suits_direct, write_direct
from .conv_direct_weights import MOST_TAPS, choose_direct_weights, write_direct_weights
from .conv_geometry import gathering
from .conv_panels import choose_panels, matrices, write_panels
from .conv_spec import ConvSpec
from .conv_weights import choose_weights, write_weights
from .emitter import Emitter
from .gemm_outer import choose_shape, write_outer

Algorithm = Literal["product", "panels", "columns", "direct", "taps"]


@dataclass(frozen=True)
class Choice:
    """An algorithm and what it is expected to cost: cycles of one core, all of whose vectors are busy."""

    algorithm: Algorithm
    cycles: float
    why: str


def choose(spec: ConvSpec, target: Target) -> Choice:
    """Return the algorithm that computes ``spec`` on ``target`` in the fewest cycles.

    *product*: a window is a single element and nothing is moved, so each sample is a matrix product as it lies.
    *panels*: windows gathered from staged images are multiplied by the filters; any forward convolution or gradient of
    an input. *direct*: vectors of results or of positions times single weights, for groups of few channels. *columns*:
    filters are multiplied by the gradient, and windows of the products are added up; gradients of
    inputs whose windows are strided or see no padding. *taps*: gradients of weights.
    """
    width = target.lanes(spec.dtype.itemsize)
    if spec.is_plain and spec.groups == 1 and spec.positions >= 2 * width and spec.direction != "weight":
        return Choice("product", spec.flops / (4 * width), "windows of one element")
    found: list[tuple[float, Algorithm]] = [
        (cycles(spec, target), name) for name, cycles in COSTS.items() if suits(name, spec)]
    cost, best = min(found)
    others = ", ".join(f"{n} {c:.0f}" for c, n in found if n != best)
    return Choice(best, cost, f"fewest cycles by count; others: {others}" if others else "the only one")


def suits(algorithm: Algorithm, spec: ConvSpec) -> bool:
    """Whether an algorithm can compute ``spec``."""
    if algorithm == "direct" and spec.direction == "weight":
        return spec.taps <= MOST_TAPS and spec.groups >= 4
    if algorithm == "direct":
        return suits_direct(spec)
    return spec.direction in {
        "product": ("forward", "input"), "panels": ("forward", "input"), "columns": ("input",), "taps": ("weight",),
    }[algorithm]


def _product(em: Emitter, spec: ConvSpec, target: Target) -> int:
    g = gathering(spec)
    work = replace(matrices(spec, g), a_k=g.channel_step, b_k=g.positions, b_batch=g.depth * g.positions)
    return write_outer(em, work, choose_shape(work, target))


def _panels(em: Emitter, spec: ConvSpec, target: Target) -> int:
    return write_panels(em, spec, choose_panels(spec, target))


def _columns(em: Emitter, spec: ConvSpec, target: Target) -> int:
    return write_columns(em, spec, choose_columns(spec, target))


def _taps(em: Emitter, spec: ConvSpec, target: Target) -> int:
    return write_weights(em, spec, choose_weights(spec, target))


def _direct(em: Emitter, spec: ConvSpec, target: Target) -> int:
    if spec.direction == "weight":
        return write_direct_weights(em, spec, choose_direct_weights(spec, target))
    return write_direct(em, spec, choose_direct(spec, target))


def _direct_cycles(spec: ConvSpec, target: Target) -> float:
    if spec.direction == "weight":
        return choose_direct_weights(spec, target).cycles
    return choose_direct(spec, target).cycles


#: What writes the text of each algorithm and returns the bytes of scratch that a thread needs.
ALGORITHMS: dict[Algorithm, Callable[[Emitter, ConvSpec, Target], int]] = {
    "product": _product, "panels": _panels, "columns": _columns, "direct": _direct, "taps": _taps,
}

#: Cycles of one core that each algorithm is expected to take where it suits.
COSTS: dict[Algorithm, Callable[[ConvSpec, Target], float]] = {
    "panels": lambda spec, target: choose_panels(spec, target).cycles,
    "columns": lambda spec, target: choose_columns(spec, target).cycles,
    "direct": _direct_cycles,
    "taps": lambda spec, target: choose_weights(spec, target).cycles,
}


def conv_kernel(spec: ConvSpec, target: Target, algorithm: Algorithm | None = None) -> Kernel:
    """The kernel of ``spec``, whose arrays are not empty; by ``choose`` unless an algorithm is named.

    Raises ``ValueError`` for an algorithm that cannot compute it.
    """
    if algorithm is not None and not suits(algorithm, spec):
        raise ValueError(f"expected an algorithm for {spec}, {algorithm} does not suit it")
    choice = choose(spec, target)
    name = algorithm or choice.algorithm
    digest = hashlib.sha256(repr((spec, target, name)).encode()).hexdigest()[:12]
    shape = "x".join(map(str, spec.size))
    window = "x".join(map(str, spec.kernel))
    symbol = f"conv_{spec.direction}_{name}_{spec.c}to{spec.k}_{shape}_by_{window}_{digest}"
    em = Emitter(symbol, target)
    scratch = ALGORITHMS[name](em, spec, target)
    about = (f"; {spec}\n; {name}: {choice.why}; {spec.flops} flops, {spec.bytes} bytes, about "
             f"{choice.cycles:.0f} cycles expected of {choice.algorithm}\n")
    return Kernel("llvm", symbol, about + em.text(), scratch, spec.flops, spec.bytes)
