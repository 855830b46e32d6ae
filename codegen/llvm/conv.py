"""Convolutions as LLVM IR for constant shapes: which algorithm, and its text.

``choose`` says which algorithm computes a convolution, of those that ``ALGORITHMS`` writes here; ``explained`` says
why, Winograd's included, which ``winograd_choice`` takes first where it needs fewer cycles than the sums as defined.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Literal, cast

from kusari.ir import Choice, Kernel

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
from .winograd_choice import direct_cycles, quickest

Algorithm = Literal["product", "panels", "columns", "direct", "taps"]


def explained(spec: ConvSpec, target: Target, largest: int) -> Choice:
    """Return what computes ``spec``, and why, where Winograd's tiles may have ``largest`` x ``largest`` outputs.

    Cycles of Winograd's algorithm are weighed against those of the sums as they are defined, two multiply-adds in each
    and no blocking worked out: they stand beside the counts of the algorithms that compute these.
    """
    choice = choose(spec, target)
    cycles, best = quickest(spec, target, largest)
    if best is None or cycles == inf:
        return choice
    name, plain = f"winograd in tiles of {best.tile}x{best.tile}", direct_cycles(spec, target)
    if cycles < plain:
        others = ((choice.algorithm, choice.cycles), *choice.others)
        return Choice(name, cycles, f"where the sums as they are defined take {plain:.0f}", others)
    why = f"winograd is weighed against {plain:.0f} of the sums as they are defined"
    if choice.cycles <= cycles:
        why = "the fewest"
    return replace(choice, why=why, others=tuple(sorted((*choice.others, (name, cycles)), key=lambda o: o[1])))


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
    (cost, best), *others = sorted(found)
    return Choice(best, cost, "the fewest" if others else "the only way", tuple((n, c) for c, n in others))


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
    name = algorithm or cast("Algorithm", choice.algorithm)
    digest = hashlib.sha256(repr((spec, target, name)).encode()).hexdigest()[:12]
    shape = "x".join(map(str, spec.size))
    window = "x".join(map(str, spec.kernel))
    symbol = f"conv_{spec.direction}_{name}_{spec.c}to{spec.k}_{shape}_by_{window}_{digest}"
    em = Emitter(symbol, target)
    scratch = ALGORITHMS[name](em, spec, target)
    about = f"; {spec}\n; {name}; chosen: {choice}; {spec.flops} flops, {spec.bytes} bytes\n"
    return Kernel("llvm", symbol, about + em.text(), scratch, spec.flops, spec.bytes)
