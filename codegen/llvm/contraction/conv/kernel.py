"""Convolutions as LLVM IR for constant shapes: the text of each algorithm, of which ``choose`` takes one."""
from __future__ import annotations

import hashlib
from typing import cast

from kusari.ir import Kernel

from ....contractions import ConvSpec
from ....target import Target
from ...text.emitter import Emitter
from .choose import Algorithm, choose, module_of, suits


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
    module, writer = module_of(name, spec)
    scratch = getattr(module, writer)(em, spec, module.choose(spec, target)).write()
    about = f"; {spec}\n; {name}; chosen: {choice}; {spec.flops} flops, {spec.bytes} bytes\n"
    return Kernel("llvm", symbol, about + em.text(), scratch, spec.flops, spec.bytes)
