"""Python text of a matrix product with an epilogue: a plain loop nest to read and to check the LLVM text against.

LLVM makes vectors of its innermost loops, but there are no register tiles and no packing: for speed use the LLVM text.
"""
from __future__ import annotations

import hashlib

from kusari.ir import Kernel

from ..llvm.gemm_spec import GemmSpec
from .points import Names
from .scalars import type_name
from .text import Lines, affine


def gemm_kernel(spec: GemmSpec) -> Kernel:
    """The kernel of ``spec``; threads share the rows, scratch holds one row of the product."""
    symbol = f"gemm_{spec.m}x{spec.n}x{spec.k}_{hashlib.sha256(repr(spec).encode()).hexdigest()[:12]}"
    out = Lines(f"def {symbol}(slots, tid, nth):")
    kind = type_name(spec.dtype)
    m, n, k = spec.m, spec.n, spec.k
    lda = spec.lda if spec.lda is not None else (m if spec.transa else k)
    ldb = spec.ldb if spec.ldb is not None else (k if spec.transb else n)
    a_row, a_k = (1, lda) if spec.transa else (lda, 1)
    a_batch = spec.stride_a if spec.stride_a is not None else m * k
    b_batch = spec.stride_b if spec.stride_b is not None else k * n

    def array(name: str, slot: int, dtype: str, *terms: tuple[int, int]) -> None:
        length = 1 + sum(max(extent - 1, 0) * stride for extent, stride in terms)
        out(f"{name} = carray(slots[{slot}], {length}, {dtype})")

    array("a", 0, kind, (m, a_row), (k, a_k), (spec.batch, a_batch))
    array("b", 1, kind, (n if spec.transb else k, ldb), (k if spec.transb else n, 1), (spec.batch, b_batch))
    for i, o in enumerate(spec.operands):
        array(f"x{i}", 2 + i, type_name(o.dtype), (m, o.row), (n, o.column), (spec.batch, o.batch))
    outputs = 2 + len(spec.operands)
    args = [("acc[j]", spec.dtype)]
    args += [(f"x{i}[{affine([('q', o.batch), ('i', o.row), ('j', o.column)])}]", o.dtype)
             for i, o in enumerate(spec.operands)]
    scratch = -(-n * spec.dtype.itemsize // 64) * 64
    # The types of the outputs are known once their expressions are written, so these are written first.
    body = Lines("")
    names = Names(body, args)
    results = [names.write(e) for e in spec.exprs]
    for i, (_, dtype) in enumerate(results):
        out(f"y{i} = carray(slots[{outputs + i}], {spec.batch * m * n}, {type_name(dtype)})")
    out(f"scratch = carray(slots[{outputs + len(results)}], {scratch} * nth, uint8)")
    out(f"acc = scratch[{scratch} * tid:{scratch} * tid + {n * spec.dtype.itemsize}].view({kind})")
    out(f"lo, hi = {m} * tid // nth, {m} * (tid + 1) // nth")
    with out.block(f"for q in range({spec.batch}):"), out.block("for i in range(lo, hi):"):
        if spec.transb:
            with out.block(f"for j in range({n}):"):
                out(f"total = {kind}(0)")
                start = affine([("q", b_batch), ("j", ldb)])
                out(f"b_ = b[{start}:{start} + {k}]")
                with out.block(f"for p in range({k}):"):
                    out(f"total += a[{affine([('q', a_batch), ('i', a_row), ('p', a_k)])}] * b_[p]")
                out("acc[j] = total")
        else:
            with out.block(f"for j in range({n}):"):
                out(f"acc[j] = {kind}(0)")
            with out.block(f"for p in range({k}):"):
                out(f"u = a[{affine([('q', a_batch), ('i', a_row), ('p', a_k)])}]")
                start = affine([("q", b_batch), ("p", ldb)])
                out(f"b_ = b[{start}:{start} + {n}]")
                with out.block(f"for j in range({n}):"):
                    out("acc[j] += u * b_[j]")
        with out.block(f"for j in range({n}):"):
            out.paste(body)
            for i, (value, _) in enumerate(results):
                out(f"y{i}[{affine([('q', m * n), ('i', n), ('j', 1)])}] = {value}")
    moved = spec.dtype.itemsize * spec.batch * (m * k + k * n + m * n * len(spec.exprs))
    return Kernel("numba", symbol, out.text(), scratch, 2 * spec.batch * m * n * k, moved)
