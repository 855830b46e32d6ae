"""Kernels of ``pool`` and ``unpool``: a thread for each result, which goes through the window that it depends on."""
from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from kusari.ir import DType, Kernel, Node, Windows, pool_windows

from ...native import is_pooling
from ..scalar.scalars import spell
from ..text.kernel import KernelText, int_type
from ..text.types import literal, type_name

BLOCK_THREADS = 256


def pool_kernel(node: Node) -> Kernel | None:
    """The kernel of a ``pool`` or ``unpool`` node of float32 or float64 whose tensors are not empty; else None."""
    if not is_pooling(node):
        return None
    values = (*node.inputs, *node.outputs)
    first, last = node.inputs[0].tensor, node.outputs[0].tensor
    forward = node.op.name == "pool"
    windows = pool_windows(node.attrs, (first if forward else last).shape[2:], (last if forward else first).shape[2:])
    text = KernelText(node.op.name, BLOCK_THREADS, [v.tensor.dtype for v in values],
                      int_type(max(v.tensor.size for v in values)))
    extents = windows.out if forward else windows.size
    text.line(f"const {text.index} u = BLOCK * ({text.index}){BLOCK_THREADS} + THREAD;")
    with text.block(f"if (u < {last.size})"):
        number, inner = "u", 1
        for d in range(len(extents) - 1, -1, -1):
            text.line(f"const int i{d} = {f'{number} / {inner}' if inner > 1 else number} % {extents[d]};")
            inner *= extents[d]
        text.line(f"const {text.index} plane = u / {inner};")
        if forward:
            _pool(text, windows, first.dtype, node.attrs["fn"], bool(node.attrs["places"]))
        else:
            _unpool(text, windows, first.dtype, len(node.inputs) == 2)
    work = 2 * prod(first.shape[:2]) * prod(windows.out) * prod(windows.kernel)
    return text.kernel(-(-last.size // BLOCK_THREADS), work, sum(v.tensor.nbytes for v in values))


@contextmanager
def _nested(text: KernelText, heads: Sequence[str]) -> Generator[None]:
    with ExitStack() as stack:
        for head in heads:
            stack.enter_context(text.block(head))
        yield


def _joined(names: Sequence[str], extents: Sequence[int]) -> str:
    """The number of a place in C order."""
    found = names[0]
    for name, n in zip(names[1:], extents[1:], strict=True):
        found = f"({found}) * {n} + {name}"
    return found


def _pool(text: KernelText, windows: Windows, dtype: DType, fn: str, places: bool) -> None:
    """Elements of the padding are the least number, or zero."""
    rank, type_ = len(windows.out), type_name(dtype)
    nothing = literal(float("-inf") if fn == "max" else 0.0, dtype)
    text.line(f"{type_} total = {nothing};")
    text.line("int number = 0, place = 0;")
    heads = [f"for (int t{d} = 0; t{d} < {n}; ++t{d})" for d, n in enumerate(windows.kernel)]
    with _nested(text, heads):
        for d in range(rank):
            text.line(f"const int x{d} = i{d} * {windows.stride[d]} - {windows.pad[d]} + t{d};")
        inside = " && ".join(f"x{d} >= 0 && x{d} < {n}" for d, n in enumerate(windows.size))
        at = _joined([f"x{d}" for d in range(rank)], windows.size)
        text.line(f"{type_} x = {nothing};")
        text.line(f"if ({inside}) x = p0[plane * {prod(windows.size)} + {at}];")
        if fn == "max":
            text.line("if (number == 0) total = x;")
            text.line("else if (!(total >= x || total != total)) { total = x; place = number; }")
        else:
            text.line("total += x;")
        text.line("++number;")
    text.line("p1[u] = total;")
    if places:
        text.line(f"p2[u] = total != total ? {prod(windows.kernel) - 1} : place;")


def _unpool(text: KernelText, windows: Windows, dtype: DType, places: bool) -> None:
    """The windows that an element lies in, in the order of its place in them."""
    rank, type_ = len(windows.out), type_name(dtype)
    text.line(f"{type_} total = 0;")
    heads: list[str] = []
    for d in range(rank):
        text.line(f"const int x{d} = i{d} + {windows.pad[d]};")
        heads.append(f"for (int t{d} = x{d} % {windows.stride[d]}; t{d} < {windows.kernel[d]}; "
                     f"t{d} += {windows.stride[d]})")
    with _nested(text, heads):
        for d in range(rank):
            text.line(f"const int o{d} = (x{d} - t{d}) / {windows.stride[d]};")
        inside = " && ".join(f"x{d} >= t{d} && o{d} < {n}" for d, n in enumerate(windows.out))
        with text.block(f"if ({inside})"):
            at = _joined([f"o{d}" for d in range(rank)], windows.out)
            text.line(f"const {text.index} at = plane * {prod(windows.out)} + {at};")
            tap = _joined([f"t{d}" for d in range(rank)], windows.kernel)
            value = f"(p1[at] == {tap} ? p0[at] : 0)" if places else "p0[at]"
            text.line(f"total = {spell('add', ['total', value], [dtype, dtype], text.helpers)};")
    text.line(f"p{1 + places}[u] = total;")
