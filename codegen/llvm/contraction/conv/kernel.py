"""Convolutions as LLVM IR for constant shapes: the text of each algorithm, of which ``choose`` takes one."""
from __future__ import annotations

import hashlib
from typing import Any, cast

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter
from . import columns, direct, direct_weights, panel_shape, panels, product, weights
from .choose import Algorithm, choose, suits
from .spec import ConvSpec
from .writer import ConvWriter


def _writer(name: Algorithm, em: Emitter, spec: ConvSpec, target: Target) -> ConvWriter[Any]:
    """The writer of an algorithm, with its plan."""
    if name == "product":
        return product.Product(em, spec, product.choose(spec, target))
    if name == "panels":
        return panels.Panels(em, spec, panel_shape.choose(spec, target))
    if name == "columns":
        return columns.Columns(em, spec, columns.choose(spec, target))
    if name == "taps":
        return weights.Weights(em, spec, weights.choose(spec, target))
    if spec.direction == "weight":
        return direct_weights.DirectWeights(em, spec, direct_weights.choose(spec, target))
    return direct.Direct(em, spec, direct.choose(spec, target))


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
    scratch = _writer(name, em, spec, target).write()
    about = f"; {spec}\n; {name}; chosen: {choice}; {spec.flops} flops, {spec.bytes} bytes\n"
    return Kernel("llvm", symbol, about + em.text(), scratch, spec.flops, spec.bytes)
