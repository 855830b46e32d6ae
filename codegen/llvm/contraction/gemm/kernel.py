"""Matrix products with an epilogue, as LLVM IR for constant shapes.

Four algorithms. *Outer* (``outer``): a tile of rows times vectors of columns stays in registers, elements of A are
broadcast from memory at constant offsets, B is read in panels that each thread packs if that pays. *Dot*
(``dot``): if both operands run along k in memory and there are few rows or columns, so that packing would not pay,
vectors run along k. *Stream* (``stream``): a small batch is packed, a large weight that runs along k is not.
*Lines* (``lines``): few rows meet a large matrix that runs along n line by line.
"""
from __future__ import annotations

import hashlib
from dataclasses import replace

from kusari.ir import Kernel

from ....contractions import GemmSpec
from ....target import Target
from ...text.emitter import Emitter
from ..operand import Matrices
from . import outer
from .dot import Dot, suits_dot
from .lines import Lines, suits_lines
from .stream import Stream, suits_stream


def gemm_kernel(spec: GemmSpec, target: Target) -> Kernel:
    """The kernel of ``spec``; its slots are A, B, the operands, the outputs, and scratch if the kernel asks for it."""
    digest = hashlib.sha256(repr((spec, target)).encode()).hexdigest()[:12]
    symbol = f"gemm_{spec.m}x{spec.n}x{spec.k}_{digest}"
    em = Emitter(symbol, target)
    work = matrices(spec)
    scratch = 0
    if work.batch and work.m and work.n:
        if suits_stream(work, target) and not target.any_size:
            writer = Stream(em, work)
        elif suits_dot(work, target) and (not target.any_size or work.m <= 4 or work.n <= 12):
            writer = Dot(em, work)
        elif suits_lines(work, target):
            writer = Lines(em, work)
        else:
            writer = outer.Outer(em, work, outer.choose(work, target))
        scratch = writer.write()
    size = spec.dtype.itemsize
    moved = size * spec.batch * (spec.m * spec.k + spec.k * spec.n + spec.m * spec.n * len(spec.exprs))
    moved += sum(o.dtype.itemsize * spec.batch * (spec.m if o.row else 1) * (spec.n if o.column else 1)
                 for o in spec.operands)
    return Kernel("llvm", symbol, em.text(), scratch, 2 * spec.batch * spec.m * spec.n * spec.k, moved)


def matrices(spec: GemmSpec) -> Matrices:
    """Strides in place of flags; a single column becomes a single row, whose memory is the same."""
    a_row, a_k = (1, spec.m) if spec.transa else (spec.k, 1)
    b_k, b_column = (1, spec.k) if spec.transb else (spec.n, 1)
    work = Matrices(
        spec.m, spec.n, spec.batch, spec.dtype, spec.exprs, spec.operands, spec.k, a_slot=0, b_slot=1,
        a_row=a_row, a_k=a_k, b_k=b_k, b_column=b_column,
        a_batch=spec.stride_a if spec.stride_a is not None else spec.m * spec.k,
        b_batch=spec.stride_b if spec.stride_b is not None else spec.k * spec.n)
    if spec.n == 1 and spec.m > 1:
        work = replace(
            work, m=spec.n, n=spec.m, a_slot=1, b_slot=0, a_row=b_column, a_k=b_k, b_k=a_k, b_column=a_row,
            a_batch=work.b_batch, b_batch=work.a_batch,
            operands=tuple(replace(o, row=o.column, column=o.row) for o in work.operands))
    return work
