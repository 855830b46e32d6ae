"""Products as calls of cuBLASLt: with their epilogue where the library has it, else with a kernel behind the call."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kusari.ir import Arg, Call, Expr, Lit, Node, Value
from kusari.ir.product import (
    Epilogue,
    EpilogueOperand,
    Rounding,
    factor_of_sum,
    is_sum_of_rows,
    product_of,
    without_batch,
)

from . import cublaslt
from .choice import SCRATCH, Chooser, Chosen, epilogue_in, has_root
from .cublaslt import MOST_ALIGNMENT_BYTES, TYPES, VECTOR_BYTES, Product, Work, alignment_of
from .kernels import cupy
from .launches import Place, Refused

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class _Form:
    """The part of an epilogue that the library computes; ``addend`` and ``bias`` are its operands."""

    alpha: float = 1.0
    addend: EpilogueOperand | None = None
    bias: EpilogueOperand | None = None
    relu: bool = False


class Products(Chooser):
    """The products of one plan."""

    kind = "products"

    def has(self, node: Node) -> bool:
        """Whether a node is a product, with or without an epilogue."""
        return has_root(node, frozenset(("matmul",)))

    @property
    def _library(self) -> cublaslt.Library:
        found = cublaslt.library(self.cuda)
        if isinstance(found, str):
            raise Refused(found)
        return found

    def choose_both(self, before: Node, node: Node) -> Chosen | None:
        """Return how the library computes a product with the sums of a factor over the terms, or None; may refuse.

        Sums are of float32 as it is: whether the library sums rounded factors is nowhere said. It does not do this for
        a single sum, nor, before 12.3.4, for a single term.
        """
        number = factor_of_sum(node, before) if is_sum_of_rows(before) else None
        if number is None:
            return None
        work = self._work(Epilogue(node, (Arg(0),), ()))
        (a, b), sums, result = node.inputs, before.output, node.output
        size = work.n if number else work.m
        if work.batch > 1 or work.rounding or work.k == 1 or size == 1 or not (
                work.factor_dtype == work.dtype == sums.tensor.dtype == _SINGLE):
            return None
        if any(self.overlap(v, y) for y in (sums, result) for v in (a, b)) or self.overlap(sums, result):
            return None
        return self._chosen(replace(work, sums=number), a, b, None, result, sums)

    def choose(self, node: Node) -> Chosen:
        """Return how the library computes a product; raises ``Refused`` with the reason why it does not."""
        epilogue, outer = epilogue_in(node)
        work = self._work(epilogue)
        form: _Form | None = None
        if work.dtype != epilogue.node.output.tensor.dtype:
            form = _Form()
        elif all(v.tensor.dtype == work.dtype for v in node.outputs):
            form = _form(epilogue, work)
        if form is not None:
            try:
                return self._whole(node, epilogue, outer, work, form)
            except Refused:
                if form == _Form():
                    raise
        return self._parts(node, epilogue, outer, work)

    def _work(self, epilogue: Epilogue) -> Work:
        """The product alone, in float16 if all that follows is this cast; raises ``Refused``."""
        root = epilogue.node
        sizes = product_of(root)
        dtype = root.output.tensor.dtype
        if sizes is None:
            raise Refused("batches are broadcast in part")
        factor, *others = {v.tensor.dtype for v in root.inputs}
        if dtype.name not in TYPES or others or factor != dtype and not (factor == _HALF and dtype == _SINGLE):
            raise Refused(f"products of {' and '.join(v.tensor.dtype.name for v in root.inputs)}")
        if factor != dtype and epilogue.exprs == (Call("float16", (Arg(0),)),):
            dtype = _HALF
        sizes = without_batch(sizes, epilogue.operands)
        if not min(sizes.m, sizes.n, sizes.k, sizes.batch):
            raise Refused("it is empty")
        rounding: Rounding = self.rounding if factor == _SINGLE else ""
        return Work(sizes.m, sizes.n, sizes.k, sizes.transa, sizes.transb, sizes.batch, sizes.stride_a,
                    sizes.stride_b, factor, dtype, rounding=rounding)

    def _whole(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value], work: Work, form: _Form) -> Chosen:
        """The product with all of its epilogue."""
        work = replace(work, alpha=form.alpha, adds=form.addend is not None, bias=form.bias is not None,
                       relu=form.relu)
        a, b = (outer[v] for v in epilogue.node.inputs)
        addend = None if form.addend is None else outer[form.addend.value]
        bias = None if form.bias is None else outer[form.bias.value]
        result = node.outputs[0]
        if any(self.overlap(v, result) for v in (a, b, *([] if bias is None else [bias]))) or (
                addend is not None and self.overlap(addend, result) and self.place(addend) != self.place(result)):
            raise Refused("the result lies where an operand is")
        return self._chosen(work, a, b, addend, result, bias)

    def _parts(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value], work: Work) -> Chosen:
        """The product alone, and the rows of its epilogue behind it."""
        a, b = (outer[v] for v in epilogue.node.inputs)
        result, value, behind = self.parts(node, epilogue)
        chosen = self._chosen(work, a, b, None, result, None)
        return replace(chosen, value=value, behind=behind)

    def _chosen(self, work: Work, a: Value, b: Value, addend: Value | None, result: Value | None,
                vector: Value | None) -> Chosen:
        library = self._library
        to = SCRATCH if result is None else self.place(result)
        places = (self.place(a), self.place(b), to if addend is None else self.place(addend), to,
                  None if vector is None else self.place(vector))
        product = library.products.get((self.device, work))
        if product is None:
            product = library.products[self.device, work] = Product(library, self.device, work)
        most = cublaslt.WORKSPACE_BYTES if self.capability >= 90 else cublaslt.WORKSPACE_BYTES_BEFORE_90
        workspace = product.prepare(most, tuple([self._alignment(p) for p in places]))
        if work.relu and not self._keeps_nan(product):
            raise Refused("its ReLU makes numbers of NaN")
        return Chosen(f"cuBLASLt {library.version}", self.kind, product, str(work), work.flops, places, to, workspace,
                      work.result_bytes if result is None else 0)

    def _alignment(self, place: Place | None) -> int:
        """The alignment to be expected: arrays of callers are their own allocations, kept ones lie in an arena."""
        if place is None or place is SCRATCH:
            return MOST_ALIGNMENT_BYTES
        kept = place.index is not None and place.index < len(self.plan.graph.inputs)
        first = VECTOR_BYTES if kept else MOST_ALIGNMENT_BYTES
        return min(first, alignment_of(place.offset))

    def _keeps_nan(self, product: Product) -> bool:
        """Whether the ReLU of NaN is NaN, as everywhere else: tried once, on a product of NaN, which is waited for."""
        known = self._library.keeps_nan
        key = self.device, product.work
        if key not in known:
            known[key] = _is_nan_kept(product)
        return known[key]


def _form(epilogue: Epilogue, work: Work) -> _Form | None:
    """The whole epilogue as one of the library's, or None.

    From the outside: a ReLU; the addition of a bias or of a matrix, or a factor; the product.
    """
    if len(epilogue.exprs) != 1:
        return None
    expr, relu = epilogue.exprs[0], False
    if (inner := _without_zero(expr)) is not None:
        expr, relu = inner, True
    if expr == Arg(0):
        return _Form(relu=relu)
    if not isinstance(expr, Call) or len(expr.args) != 2 or Arg(0) not in expr.args:
        return None
    other = expr.args[1] if expr.args[0] == Arg(0) else expr.args[0]
    if expr.fn == "multiply" and isinstance(other, Lit) and other.value:  # zero times NaN is NaN
        return _Form(alpha=float(other.value), relu=relu)
    if expr.fn != "add" or not isinstance(other, Arg) or not other.index:
        return None
    operand = epilogue.operands[other.index - 1]
    if operand.value.tensor.dtype != work.dtype:
        return None
    size = operand.value.tensor.size
    if size == work.n and not operand.row and not operand.batch and (operand.column == 1 or work.n == 1):
        return _Form(bias=operand, relu=relu)
    if size == work.batch * work.m * work.n and _is_like_the_result(operand, work):
        return _Form(addend=operand, relu=relu)
    return None


def _is_like_the_result(operand: EpilogueOperand, work: Work) -> bool:
    wanted = ((operand.row, work.n, work.m), (operand.column, 1, work.n), (operand.batch, work.m * work.n, work.batch))
    return all(step == expected for step, expected, extent in wanted if extent > 1)


def _without_zero(expr: Expr) -> Expr | None:
    """The argument of a ReLU."""
    if not isinstance(expr, Call) or expr.fn != "maximum":
        return None
    found = [e for e in expr.args if not (isinstance(e, Lit) and not isinstance(e.value, bool) and e.value == 0)]
    return found[0] if len(found) == 1 else None


def _is_nan_kept(product: Product) -> bool:
    """Whether a product of NaN is NaN, also behind a ReLU: computed once, in memory of its own."""
    module, work = cupy(), product.work
    size = max(work.m * work.k, work.k * work.n, work.m * work.n)
    factors = work.batch * size * work.dtype.itemsize
    room = cublaslt.WORKSPACE_BYTES
    try:
        memory = module.cuda.alloc(factors + work.result_bytes + MOST_ALIGNMENT_BYTES + room)
    except module.cuda.memory.OutOfMemoryError as error:
        raise Refused(f"no memory is left to try its ReLU: {error}") from error
    stream = module.cuda.get_current_stream()
    memory.memset_async(255, factors + work.result_bytes + MOST_ALIGNMENT_BYTES, stream)  # NaN in all types
    result = -(-(memory.ptr + factors) // MOST_ALIGNMENT_BYTES) * MOST_ALIGNMENT_BYTES
    workspace = -(-(result + work.result_bytes) // MOST_ALIGNMENT_BYTES) * MOST_ALIGNMENT_BYTES
    bias = memory.ptr if work.bias else 0
    (memory + (result - memory.ptr)).memset_async(0, work.result_bytes, stream)
    product(memory.ptr, memory.ptr, memory.ptr if work.adds else result, result, bias, workspace,
            memory.ptr + factors + work.result_bytes + MOST_ALIGNMENT_BYTES + room - workspace, stream.ptr)
    host = np.zeros(work.batch * work.m * work.n, work.dtype)
    (memory + (result - memory.ptr)).copy_to_host_async(ctypes.c_void_p(host.ctypes.data), host.nbytes, stream)
    stream.synchronize()
    return bool(np.isnan(host).all())
