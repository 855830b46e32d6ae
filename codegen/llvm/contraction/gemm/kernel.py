"""Matrix products with an epilogue, as LLVM IR for constant shapes."""
from __future__ import annotations

from kusari.ir import Kernel

from ....contractions import GemmSpec
from ....target import Target
from ...text.emitter import Emitter
from ...text.types import symbol_of
from .choose import Algorithm, choose, matrices, writer_of


def gemm_kernel(spec: GemmSpec, target: Target, algorithm: Algorithm | None = None) -> Kernel:
    """The kernel of ``spec``; by ``choose`` unless an algorithm is named, which must suit the spec.

    Its slots are A, B, the operands, the outputs, and scratch if the kernel asks for it.
    """
    if spec.factors or spec.dtype.kind != "f":
        raise ValueError(f"expected factors of float32 or float64, got {spec.factor_dtype}")
    em = Emitter(symbol_of(f"gemm_{spec.m}x{spec.n}x{spec.k}", spec, target), target)
    work = matrices(spec)
    scratch = 0
    if work.batch and work.m and work.n:
        scratch = writer_of(em, work, algorithm or choose(spec, target).algorithm).write()
    size = spec.dtype.itemsize
    moved = size * spec.batch * (spec.m * spec.k + spec.k * spec.n + spec.m * spec.n * len(spec.exprs))
    moved += sum(o.dtype.itemsize * spec.batch * (spec.m if o.row else 1) * (spec.n if o.column else 1)
                 for o in spec.operands)
    return Kernel("llvm", em.symbol, em.text(), scratch, 2 * spec.batch * spec.m * spec.n * spec.k, moved)
