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
from .conv_geometry import gathering
from .conv_panels import choose_panels, matrices, write_panels
from .conv_spec import ConvSpec
from .conv_weights import choose_weights, write_weights
from .emitter import Emitter
from .gemm_outer import choose_shape, write_outer

Algorithm = Literal["product", "panels", "columns", "taps"]


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
    an input. *columns*: filters are multiplied by the gradient, and windows of the products are added up; gradients of
    inputs whose windows are strided or see no padding. *taps*: gradients of weights.
    """
    if spec.direction == "weight":
        return Choice("taps", choose_weights(spec, target).cycles, "gradient of the weights")
    width = target.lanes(spec.dtype.itemsize)
    if spec.is_plain and spec.groups == 1 and spec.positions >= 2 * width:
        return Choice("product", spec.flops / (4 * width), "windows of one element")
    panels = choose_panels(spec, target).cycles
    if spec.direction == "input":
        columns = choose_columns(spec, target).cycles
        if columns < panels:
            return Choice("columns", columns, f"multiplies no padding; panels would take {panels:.0f} cycles")
    return Choice("panels", panels, "the general case")


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


#: What writes the text of each algorithm and returns the bytes of scratch that a thread needs.
ALGORITHMS: dict[Algorithm, Callable[[Emitter, ConvSpec, Target], int]] = {
    "product": _product, "panels": _panels, "columns": _columns, "taps": _taps,
}


def conv_kernel(spec: ConvSpec, target: Target, algorithm: Algorithm | None = None) -> Kernel:
    """The kernel of ``spec``, whose arrays are not empty; by ``choose`` unless an algorithm is named."""
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
