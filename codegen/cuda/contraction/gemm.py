"""Kernels of matrix products with an epilogue."""
from __future__ import annotations

from kusari.ir import Kernel, expr_dtype

from ...contractions import GemmSpec
from ..text.kernel import KernelText, int_type
from .epilogue import Epilogue
from .tiles import Shape, Store, parts_kernel, text_of, write_tiles


def gemm_kernel(spec: GemmSpec, number: int = 0) -> Kernel:
    """Kernel ``number`` of a product; slots are A, B, the epilogue's operands, the outputs, and memory for parts."""
    return _finish(spec) if number else _gemm(spec)


def shape_of(spec: GemmSpec) -> Shape:
    """The product as tiles see it."""
    return Shape(spec.m, spec.n, spec.k, spec.batch, not spec.transa, spec.transb)


def _text(spec: GemmSpec, symbol: str) -> KernelText:
    outputs = [expr_dtype(e, (spec.dtype, *(o.dtype for o in spec.operands))) for e in spec.exprs]
    reach = [spec.batch * spec.m * spec.n * shape_of(spec).parts]
    for stride, size in (spec.stride_a, spec.k * spec.m), (spec.stride_b, spec.n * spec.k):
        reach.append(size + spec.batch * (size if stride is None else stride))
    for o in spec.operands:
        reach.append(spec.m * abs(o.row) + spec.n * abs(o.column) + spec.batch * abs(o.batch))
    return text_of(symbol, spec.dtype, [spec.dtype, spec.dtype, *(o.dtype for o in spec.operands), *outputs],
                   int_type(max(reach)))


def _gemm(spec: GemmSpec) -> Kernel:
    shape = shape_of(spec)
    text = _text(spec, "gemm")
    stride_a = spec.m * spec.k if spec.stride_a is None else spec.stride_a
    stride_b = spec.k * spec.n if spec.stride_b is None else spec.stride_b

    def a(row: str, k: str) -> str:
        own = f"{k} * {spec.m} + {row}" if spec.transa else f"{row} * {spec.k} + {k}"
        return f"p0[{own} + batch * {stride_a}]"

    def b(k: str, column: str) -> str:
        own = f"{column} * {spec.k} + {k}" if spec.transb else f"{k} * {spec.n} + {column}"
        return f"p1[{own} + batch * {stride_b}]"
    results = spec.batch * spec.m * spec.n
    flops, moved = 2 * results * spec.k, spec.dtype.itemsize * (
        spec.batch * (spec.m * spec.k + spec.k * spec.n) + results * len(spec.exprs))
    if shape.parts == 1:
        return text.kernel(write_tiles(text, shape, spec.dtype, a, b, _store(text, spec)), flops, moved)
    partial = text.slot(f"f{8 * spec.dtype.itemsize}")

    def keep(row: str, column: str, total: str) -> None:
        place = f"(batch * {spec.m} + {row}) * {spec.n} + {column}"
        text.line(f"{partial}[part * ({text.index}){results} + {place}] = {total};")
    blocks = write_tiles(text, shape, spec.dtype, a, b, keep)
    return text.kernel(blocks, flops, moved, shape.parts * results * spec.dtype.itemsize)


def _store(text: KernelText, spec: GemmSpec) -> Store:
    epilogue = Epilogue(text, spec.exprs, spec.operands, spec.dtype, 2)

    def store(row: str, column: str, total: str) -> None:
        epilogue.store(total, row, column, "batch", f"(batch * {spec.m} + {row}) * {spec.n} + {column}")
    return store


def _finish(spec: GemmSpec) -> Kernel:
    text = _text(spec, "gemm_parts")
    partial = text.slot(f"f{8 * spec.dtype.itemsize}")
    return parts_kernel(text, partial, shape_of(spec), spec.dtype, _store(text, spec))
