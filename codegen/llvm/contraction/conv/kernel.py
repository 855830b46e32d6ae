"""Convolutions as LLVM IR for constant shapes: the text of each algorithm, of which ``choose`` takes one."""
from __future__ import annotations

from typing import cast

from kusari.ir import Kernel

from ....contractions import ConvSpec
from ....target import Target
from ...text.emitter import Emitter
from ...text.types import symbol_of
from .choose import Algorithm, choose, module_of, suits


def conv_kernel(spec: ConvSpec, target: Target, algorithm: Algorithm | None = None) -> Kernel:
    """The kernel of ``spec``, whose arrays are not empty; by ``choose`` unless an algorithm is named.

    Raises ``ValueError`` for an algorithm that cannot compute it.
    """
    if algorithm is not None and not suits(algorithm, spec):
        raise ValueError(f"expected an algorithm for {spec}, {algorithm} does not suit it")
    choice = choose(spec, target)
    name = algorithm or cast("Algorithm", choice.algorithm)
    shape, window = ("x".join(map(str, sizes)) for sizes in (spec.size, spec.kernel))
    about = f"conv_{spec.direction}_{name}_{spec.c}to{spec.k}_{shape}_by_{window}"
    em = Emitter(symbol_of(about, spec, target, name), target)
    module, writer = module_of(name, spec)
    scratch = getattr(module, writer)(em, spec, module.choose(spec, target)).write()
    head = f"; {spec}\n; {name}; chosen: {choice}; {spec.flops} flops, {spec.bytes} bytes\n"
    return Kernel("llvm", em.symbol, head + em.text(), scratch, spec.flops, spec.bytes)
