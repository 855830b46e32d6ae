"""Convolutions as LLVM IR for constant shapes: the text of each algorithm, of which ``choose`` takes one."""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import cast

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter
from .choose import Algorithm, choose, suits
from .columns import choose_columns, write_columns
from .direct import choose_direct, write_direct
from .direct_weights import choose_direct_weights, write_direct_weights
from .panel_shape import choose_panels
from .panels import write_panels
from .product import choose_product, write_product
from .spec import ConvSpec
from .weights import choose_weights, write_weights


def _product(em: Emitter, spec: ConvSpec, target: Target) -> int:
    return write_product(em, choose_product(spec, target))


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


#: The writer of each algorithm's text, which returns the bytes of scratch that a thread needs.
ALGORITHMS: dict[Algorithm, Callable[[Emitter, ConvSpec, Target], int]] = {
    "product": _product, "panels": _panels, "columns": _columns, "direct": _direct, "taps": _taps,
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
