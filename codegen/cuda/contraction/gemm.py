"""Kernels of matrix products with an epilogue."""
from __future__ import annotations

from math import gcd

from kusari.ir import Kernel, expr_dtype

from ...contractions import GemmSpec
from ..text.kernel import KernelText, int_type
from .blocks import kernel_of, text_of
from .epilogue import Epilogue
from .tiles import Factor, Shape, Store, shape_for


def gemm_kernel(spec: GemmSpec, number: int = 0) -> Kernel:
    """Kernel ``number`` of a product; slots are A, B, the epilogue's operands, the outputs, and memory for parts."""
    shape, results = shape_of(spec), spec.batch * spec.m * spec.n
    text = _text(spec, "gemm_parts" if number else "gemm")
    moved = spec.factor_dtype.itemsize * spec.batch * (spec.m * spec.k + spec.k * spec.n)
    return kernel_of(text, shape, spec.dtype, _factors(spec), _store(text, spec), number, 2 * results * spec.k,
                     moved + spec.dtype.itemsize * results * len(spec.exprs))


def shape_of(spec: GemmSpec) -> Shape:
    """The product as tiles see it."""
    return shape_for(spec.m, spec.n, spec.k, spec.batch, spec.factor_dtype, spec.rounded)


def _text(spec: GemmSpec, symbol: str) -> KernelText:
    outputs = [expr_dtype(e, (spec.dtype, *(o.dtype for o in spec.operands))) for e in spec.exprs]
    reach = [spec.batch * spec.m * spec.n * shape_of(spec).parts]
    for stride, size in (spec.stride_a, spec.k * spec.m), (spec.stride_b, spec.n * spec.k):
        reach.append(size + spec.batch * (size if stride is None else stride))
    for o in spec.operands:
        reach.append(spec.m * abs(o.row) + spec.n * abs(o.column) + spec.batch * abs(o.batch))
    factors = [spec.factor_dtype] * 2
    return text_of(symbol, spec.dtype, [*factors, *(o.dtype for o in spec.operands), *outputs], int_type(max(reach)),
                   spec.rounded)


def _factors(spec: GemmSpec) -> tuple[Factor, Factor]:
    return (_factor(spec, 0, not spec.transa, spec.m, spec.stride_a),
            _factor(spec, 1, spec.transb, spec.n, spec.stride_b))


def _factor(spec: GemmSpec, operand: int, along_k: bool, lines: int, stride: int | None) -> Factor:
    step = lines * spec.k if stride is None else stride
    inner = spec.k if along_k else lines

    def place(line: str, k: str) -> str:
        outer, near = (line, k) if along_k else (k, line)
        return f"{outer} * {inner} + {near} + batch * {step}"

    def element(line: str, k: str) -> str:
        return f"p{operand}[{place(line, k)}]"
    return Factor(operand, spec.factor_dtype, along_k, element, place, gcd(inner, step) if spec.batch > 1 else inner,
                  spec.rounded)


def _store(text: KernelText, spec: GemmSpec) -> Store:
    epilogue = Epilogue(text, spec.exprs, spec.operands, spec.dtype, 2)

    def store(row: str, column: str, total: str) -> None:
        epilogue.store(total, row, column, "batch", f"(batch * {spec.m} + {row}) * {spec.n} + {column}")
    return store
