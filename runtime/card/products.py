"""Products as calls of cuBLASLt: with their epilogue where the library has it, else with a kernel behind the call."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from kusari.ir import Arg, Call, Node, Value
from kusari.ir.gelu import gelu_gradient_in, gelu_in
from kusari.ir.product import Epilogue, Rounding, factor_of_sum, is_sum_of_rows, product_of, without_batch

from . import cublaslt, probes
from .choice import SCRATCH, Chooser, Chosen, Mask, epilogue_in, has_root
from .cublaslt import (
    AUX,
    GELU_ELEMENTS,
    MOST_ALIGNMENT_BYTES,
    TYPES,
    VECTOR_BYTES,
    Function,
    Product,
    Work,
    alignment_of,
)
from .forms import Form, form_of
from .kernels import cupy
from .launches import Place, Refused
from .probes import Probed

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)
#: How functions are called that kernels compute, though the library has them.
_LEFT: dict[Function, str] = {"gelu": "GELUs", "gradient of relu": "gradients of ReLU",
                              "gradient of gelu": "gradients of GELU"}


class Products(Chooser):
    """The products of one plan.

    Invariant: whether a call keeps something for a gradient, or leaves a value out as no gradient reads it, is decided
    with the gradient's call; the executable calls both or neither.
    """

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

    @property
    def _room(self) -> int:
        """The most bytes of a workspace."""
        return cublaslt.most_workspace(self.capability)

    def choose_both(self, before: Node, node: Node) -> Chosen | None:
        """Return how the library computes a product with what is right beside it, or None; may refuse.

        That is the sums of a factor over the terms in front of it, or a GELU or the gradient of one behind it.
        """
        if is_sum_of_rows(before):
            return self._with_sums(before, node)
        if not self.joins or not self.has(before) or node.op.name != "fused":
            return None
        function: Function = "gelu"
        try:
            if (found := self._gelu(before, node)) is not None:
                return found
            function = "gradient of gelu"
            return self._gelu_gradient(before, node)
        except Probed as error:
            self.left[node] = _LEFT[function], str(error)
            raise

    def _with_sums(self, before: Node, node: Node) -> Chosen | None:
        """A product with the sums of a factor over the terms.

        Sums are of float32 as it is: whether the library sums rounded factors is nowhere said. It does not do this for
        a single sum, nor, before 12.3.4, for a single term.
        """
        number = factor_of_sum(node, before)
        if number is None:
            return None
        work = self._work(Epilogue(node, (Arg(0),), ()))
        (a, b), sums, result = node.inputs, before.output, node.output
        size = work.n if number else work.m
        if work.batch > 1 or work.rounding or work.k == 1 or size == 1 or not (
                work.factor_dtype == work.dtype == sums.tensor.dtype == _SINGLE):
            return None
        self._require_apart((a, b), (sums, result))
        return self._chosen(replace(work, sums=number), a, b, None, result, sums)

    def _gelu(self, before: Node, node: Node) -> Chosen | None:
        """A product with the GELU behind it, which keeps its argument where that is read."""
        found = gelu_in(node)
        if found is None or before.outputs != (found.x,):
            return None
        epilogue, outer = epilogue_in(before)
        work = self._work(epilogue)
        form = form_of(epilogue, work)
        parts = [v for v in node.outputs if v is not found.result]
        if form is None or form.function or not all(self._is_left_out(v) for v in parts):
            return None
        keeps = self.users[found.x] != [node] or found.x in self.plan.graph.outputs
        work = replace(work, function="gelu", keeps=keeps)
        self._probe(work, "GELU with its gradient" if keeps else "GELU")
        chosen = self._formed(work, form, epilogue, outer, found.result, found.x if keeps else None)
        self.left_out.update((v, tuple(self.users[v])) for v in parts)
        return chosen

    def _is_left_out(self, part: Value) -> bool:
        """Whether all that would read a part of a GELU are gradients by the library, which do not."""
        if part in self.plan.graph.outputs:
            return False
        for reader in self.users[part]:
            found = gelu_gradient_in(reader, self.made)
            product = None if found is None else self.made.get(found.given)
            if product is None or not self.has(product) or self._gelu_gradient(product, reader) is None:
                return False
        return True

    def _gelu_gradient(self, before: Node, node: Node) -> Chosen | None:
        """A product that the derivative of a GELU is multiplied by, with the sums of that by columns."""
        found = gelu_gradient_in(node, self.made)
        if found is None or before.outputs != (found.given,) or self.users[found.given] != [node] or (
                found.given in self.plan.graph.outputs):
            return None
        epilogue, outer = epilogue_in(before)
        work = self._work(epilogue)
        form = form_of(epilogue, work)
        if form is None or form.function or form.bias is not None or form.addend is not None and found.factor != 1:
            return None
        parts = [self._only(self.made[v], v) for v in found.parts]
        if any(rows is None for rows in parts):
            return None
        work = replace(work, function="gradient of gelu", totals=found.total is not None)
        self._probe(work, "GELU with its gradient and sums" if work.totals else "GELU with its gradient")
        form = replace(form, alpha=form.alpha * found.factor)
        chosen = self._formed(work, form, epilogue, outer, found.result, found.x, found.total)
        return replace(chosen, first=tuple([row for v, rows in zip(found.parts, parts, strict=True)
                                            if v in self.left_out for row in rows or ()]))

    def with_totals(self, chosen: Chosen, node: Node, total: Node) -> Chosen | None:
        """Return how a gradient of ReLU that is ``chosen`` and its sums by columns are computed, or None; may refuse.

        Other sums come with a product behind; these are where factors are rounded.
        """
        if not isinstance(chosen.function, Product) or chosen.function.work.function != "gradient of relu" or not (
                is_sum_of_rows(total) and total.inputs[0] is node.outputs[0]):
            return None
        epilogue, outer = epilogue_in(node)
        work = self._work(epilogue)
        form = form_of(epilogue, work)
        if form is None or total.output.tensor.dtype != _SINGLE:
            return None
        try:
            self._probe(replace(work, function="gradient of relu"), "gradient of ReLU with sums")
        except Probed as error:
            self.left[total] = "sums of gradients of ReLU", str(error)
            raise
        return self._whole(node, epilogue, outer, work, form, total.output)

    def choose(self, node: Node) -> Chosen:
        """Return how the library computes a product; raises ``Refused`` with the reason why it does not."""
        epilogue, outer = epilogue_in(node)
        work = self._work(epilogue)
        form: Form | None = None
        if work.dtype != epilogue.node.output.tensor.dtype:
            form = Form()
        elif all(v.tensor.dtype == work.dtype for v in node.outputs):
            form = form_of(epilogue, work)
        if form is not None:
            try:
                return self._whole(node, epilogue, outer, work, form)
            except Refused as error:
                if form == Form():
                    raise
                if isinstance(error, Probed):
                    self.left[node] = _LEFT[form.function], str(error)
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

    def _whole(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value], work: Work, form: Form,
               total: Value | None = None) -> Chosen:
        """The product with all of its epilogue, and the sums of its result by columns if these are asked for."""
        result = node.outputs[0]
        work = replace(work, function=form.function, totals=total is not None)
        kept: Mask | None = None
        if form.function == "gelu":
            self._probe(work, "GELU")
        elif form.relu is not None:
            kept = self.masks.get(outer[form.relu.value])
            if kept is None or (kept.rows, kept.columns) != (work.m, work.n):
                raise Refused("no bits of its ReLU are kept")
            self._probe(work, "gradient of ReLU")
        elif form.function == "relu" and (found := self._mask(result, work)) is not None:
            with suppress(Refused):
                chosen = self._formed(replace(work, keeps=True), form, epilogue, outer, result, found)
                self.masks[result] = found
                return chosen
        return self._formed(work, form, epilogue, outer, result, kept, total)

    def _mask(self, y: Value, work: Work) -> Mask | None:
        """The bits of a ReLU, if the library will read them, as far as that is known."""
        if work.batch > 1:
            return None
        mask = Mask(y, work.m, work.n, work.mask_bytes)
        if y in self.kept:
            try:
                self._probe(work, "gradient of ReLU")
                return mask
            except Probed as error:
                self.left[self.made[y]] = _LEFT["gradient of relu"], str(error)
            except Refused:
                pass
        return mask if any(self._reads(n, mask) for n in self.users.get(y, ()) if self.has(n)) else None

    def _reads(self, node: Node, mask: Mask) -> bool:
        """Whether the library computes a product with the gradient of the ReLU whose bits these are behind."""
        epilogue, outer = epilogue_in(node)
        self.masks[mask.value] = mask
        try:
            work = self._work(epilogue)
            form = form_of(epilogue, work)
            return form is not None and form.relu is not None and outer[form.relu.value] is mask.value and (
                mask in self._whole(node, epilogue, outer, work, form).places)
        except Probed as error:
            self.left[node] = _LEFT["gradient of relu"], str(error)
        except Refused:
            pass
        finally:
            del self.masks[mask.value]
        return False

    def _formed(self, work: Work, form: Form, epilogue: Epilogue, outer: Mapping[Value, Value], result: Value,
                kept: Value | Mask | None = None, total: Value | None = None) -> Chosen:
        """The product with an epilogue of a form, and what it keeps for a gradient or reads as one."""
        work = replace(work, alpha=form.alpha, adds=form.addend is not None, bias=form.bias is not None)
        a, b = (outer[v] for v in epilogue.node.inputs)
        addend = None if form.addend is None else outer[form.addend.value]
        bias = None if form.bias is None else outer[form.bias.value]
        read, written = [a, b, *([] if bias is None else [bias])], [result, *([] if total is None else [total])]
        if isinstance(kept, Value):
            (written if work.keeps else read).append(kept)
        self._require_apart(read, written)
        if addend is not None and (any(self.overlap(addend, v) for v in written[1:]) or self.overlap(
                addend, result) and self.place(addend) != self.place(result)):
            raise Refused("the result lies where an operand is")
        return self._chosen(work, a, b, addend, result, bias if total is None else total, kept)

    def _require_apart(self, read: Sequence[Value], written: Sequence[Value]) -> None:
        if any(self.overlap(v, y) for i, y in enumerate(written) for v in (*read, *written[:i])):
            raise Refused("the result lies where an operand is")

    def _probe(self, work: Work, what: probes.Probe) -> None:
        """Require that the library does as kernels of ours do where that is not documented."""
        if not work.factor_dtype == work.dtype == _SINGLE or work.batch > 1:
            raise Refused("functions with gradients are of single products in float32")
        if work.epilogue & AUX and work.function.endswith("gelu") and work.n % GELU_ELEMENTS:
            raise Refused(f"lines of arguments of a GELU are multiples of {GELU_ELEMENTS} elements")
        if min(work.m, work.n, work.k) == 1:  # of one term they are not NVIDIA's own, others were not tried
            raise Refused("functions with gradients are of products with more than one row, column and term")
        probes.require(self._library, self.device, what, work.rounding, self._room)

    def _parts(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value], work: Work) -> Chosen:
        """The product alone, and the rows of its epilogue behind it."""
        a, b = (outer[v] for v in epilogue.node.inputs)
        result, value, behind = self.parts(node, epilogue)
        chosen = self._chosen(work, a, b, None, result)
        return replace(chosen, value=value, behind=behind)

    def _chosen(self, work: Work, a: Value, b: Value, addend: Value | None, result: Value | None,
                vector: Value | None = None, kept: Value | Mask | None = None) -> Chosen:
        library = self._library
        to = SCRATCH if result is None else self.place(result)
        places = (self.place(a), self.place(b), to if addend is None else self.place(addend), to,
                  None if vector is None else self.place(vector),
                  self.place(kept) if isinstance(kept, Value) else kept)
        product = library.products.get((self.device, work))
        if product is None:
            product = library.products[self.device, work] = Product(library, self.device, work)
        workspace = product.prepare(self._room, tuple([self._alignment(p) for p in places]))
        if work.function == "relu" and not self._keeps_nan(product):
            raise Refused("its ReLU makes numbers of NaN")
        return Chosen(f"cuBLASLt {library.version}", self.kind, product, str(work), work.flops, places, to, workspace,
                      work.result_bytes if result is None else 0, keeps=work.keeps)

    def _alignment(self, place: Place | Mask | None) -> int:
        """The alignment to be expected: arrays of callers are their own allocations, kept ones lie in an arena."""
        if place is None or place is SCRATCH or isinstance(place, Mask):
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


def _is_nan_kept(product: Product) -> bool:
    """Whether a product of NaN is NaN, also behind a ReLU: computed once, in memory of its own."""
    module, work = cupy(), product.work
    size = max(work.m * work.k, work.k * work.n, work.m * work.n)
    factors = work.batch * size * work.dtype.itemsize
    bits = -(-work.mask_bytes // MOST_ALIGNMENT_BYTES) * MOST_ALIGNMENT_BYTES if work.keeps else 0
    room = cublaslt.WORKSPACE_BYTES + bits
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
    end = memory.ptr + factors + work.result_bytes + MOST_ALIGNMENT_BYTES + room
    product(memory.ptr, memory.ptr, memory.ptr if work.adds else result, result, bias, workspace if bits else 0,
            workspace + bits, end - workspace - bits, stream.ptr)
    host = np.zeros(work.batch * work.m * work.n, work.dtype)
    (memory + (result - memory.ptr)).copy_to_host_async(ctypes.c_void_p(host.ctypes.data), host.nbytes, stream)
    stream.synchronize()
    return bool(np.isnan(host).all())
