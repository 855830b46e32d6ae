"""Small LLVM kernels written by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kusari.ir import Kernel


def elementwise(op: str, n: int, symbol: str = "kernel", arity: int = 2, helper: str = "",
                flops: int = 0) -> Kernel:
    """``out[i] = op(a[i], b[i])`` on ``n`` float32, split evenly over the threads."""
    second = "%b" if arity == 2 else "%a"
    text = f"""
{helper}
define void @{symbol}(ptr %slots, i64 %tid, i64 %nth) {{
entry:
  %a = load ptr, ptr %slots
  %b.p = getelementptr ptr, ptr %slots, i64 1
  %b = load ptr, ptr %b.p
  %c.p = getelementptr ptr, ptr %slots, i64 {arity}
  %c = load ptr, ptr %c.p
  %lo.n = mul i64 %tid, {n}
  %lo = udiv i64 %lo.n, %nth
  %hi.t = add i64 %tid, 1
  %hi.n = mul i64 %hi.t, {n}
  %hi = udiv i64 %hi.n, %nth
  br label %test
test:
  %i = phi i64 [%lo, %entry], [%i.1, %body]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %out
body:
  %x.p = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %x.p
  %y.p = getelementptr float, ptr {second}, i64 %i
  %y = load float, ptr %y.p
  %z = {op} float %x, %y
  %z.p = getelementptr float, ptr %c, i64 %i
  store float %z, ptr %z.p
  %i.1 = add i64 %i, 1
  br label %test
out:
  ret void
}}
"""
    return Kernel("llvm", symbol, text, flops=flops or n, bytes=12 * n)


def changed(kernel: Kernel, **changes: Any) -> Kernel:
    """The kernel with other facts, text or language."""
    return Kernel(**{"language": kernel.language, "text": kernel.text, **asdict(kernel.facts), **changes})


# Every thread adds one to its own counter and checks that all counters of the previous row are complete:
# slots are counters, then errors. A barrier that lets a thread through too early is counted as an error.
BARRIER = Kernel("llvm", "count", """
define void @count(ptr %slots, i64 %tid, i64 %nth) {
entry:
  %counters = load ptr, ptr %slots
  %errors.p = getelementptr ptr, ptr %slots, i64 1
  %errors = load ptr, ptr %errors.p
  %mine.p = getelementptr i64, ptr %counters, i64 %tid
  %mine = load i64, ptr %mine.p
  br label %test
test:
  %i = phi i64 [0, %entry], [%i.1, %next]
  %more = icmp slt i64 %i, %nth
  br i1 %more, label %body, label %out
body:
  %p = getelementptr i64, ptr %counters, i64 %i
  %v = load atomic i64, ptr %p monotonic, align 8
  %late = icmp slt i64 %v, %mine
  br i1 %late, label %error, label %next
error:
  %ignored = atomicrmw add ptr %errors, i64 1 monotonic
  br label %next
next:
  %i.1 = add i64 %i, 1
  br label %test
out:
  %mine.1 = add i64 %mine, 1
  store atomic i64 %mine.1, ptr %mine.p monotonic, align 8
  ret void
}
""")

NUMBA = Kernel("numba", "scale", '''
import numpy as np
from numba import carray


def scale(slots, tid, nth):
    x = carray(slots[0], (64,), np.float32)
    y = carray(slots[1], (64,), np.float32)
    for i in range(64 * tid // nth, 64 * (tid + 1) // nth):
        y[i] = np.exp(x[i]) * np.float32(2)
''')
