"""Texts that differ in numbers only: one form for all computes what each computes."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kusari.codegen.contractions import ConvSpec, GemmSpec
from kusari.codegen.llvm.contraction.conv.kernel import conv_kernel
from kusari.codegen.llvm.contraction.gemm.kernel import gemm_kernel
from kusari.codegen.llvm.data.scan import scan_kernel
from kusari.codegen.numbers import Form, Kind, lift
from kusari.codegen.target import AVX2, AVX512, Target
from kusari.ir import Builder, Kernel, Value, parts_of, tensor_type, with_parts

TEXT = """; a comment on {n}
define void @k{n}(ptr noalias %slots, i64 %tid, i64 %nth) {{
entry:
  %s1 = load ptr, ptr %slots
  %v2 = mul nsw i64 %tid, {n}
  %p3 = getelementptr inbounds float, ptr %s1, i64 {n}
  %v4 = select <4 x i1> <{mask}>, <4 x float> splat (float {x}), <4 x float> zeroinitializer
  %v5 = insertelement <4 x float> poison, float 0x3FF0000000000000, i64 0
  store <4 x float> %v4, ptr %p3, align 4
  ret void
}}
"""


def text(n: int, lanes: int, x: str = "0x3FF0000000000000") -> Kernel:
    mask = ", ".join(f"i1 {'true' if i < lanes else 'false'}" for i in range(4))
    return Kernel("llvm", f"k{n}", TEXT.format(n=n, mask=mask, x=x))


def test_names_and_comments_take_no_part() -> None:
    assert lift(text(5, 2)).pieces == lift(text(17, 3)).pieces


def test_parts_keep_their_numbers() -> None:
    part = "define void @part(ptr %x) {\n  %p = getelementptr inbounds float, ptr %x, i64 7\n  ret void\n}\n"
    shared = Kernel("llvm", "k5", with_parts(text(5, 2).text, {"part": part}))
    assert lift(shared).numbers == lift(text(5, 2)).numbers
    form = Form([lift(shared), lift(Kernel("llvm", "k17", with_parts(text(17, 3).text, {"part": part})))], 1)
    assert parts_of(form.kernel(shared.facts).text)[1] == {"part": part}


def test_numbers_are_integers_masks_and_floats() -> None:
    found = lift(text(5, 2))
    assert found.kinds == (Kind("i64"), Kind("i64"), Kind("i1", 4), Kind("float", 4))
    assert found.numbers == (5, 5, 2, 0x3FF0000000000000)


def test_numbers_that_are_always_equal_are_one() -> None:
    form = Form([lift(text(5, 2)), lift(text(17, 3))], 1)
    assert form.count == 2 and form.numbers_of(lift(text(9, 4))) == (9, 4)


def test_other_numbers_do_not_fit() -> None:
    form = Form([lift(text(5, 2)), lift(text(17, 2))], 1)
    assert form.numbers_of(lift(text(9, 2))) == (9, 2)
    assert form.numbers_of(lift(text(9, 2, "0x4000000000000000"))) is None


def test_a_form_computes_its_instances(jit: Any) -> None:
    form = Form([lift(text(1, 2)), lift(text(2, 3, "0x4008000000000000"))], 1)
    run = jit.compile(form.kernel(text(1, 2).facts).text, form.symbol)
    numbers = form.numbers_of(lift(text(3, 1, "0x4000000000000000")))
    assert numbers is not None
    out = np.full(8, 9, "f")
    _call(run, [out], numbers)
    np.testing.assert_array_equal(out, [9, 9, 9, 2, 0, 0, 0, 9])


def _call(run: Callable[..., None], arrays: list[np.ndarray], numbers: tuple[int, ...]) -> None:
    """Run a form's kernel, by two threads."""
    class Number:  # a slot that holds a number in place of an address
        def __init__(self, n: int) -> None:
            self.ctypes = self
            self.data = n
    run(*arrays, *map(Number, numbers), nth=2)


def _gemm(target: Target, **sizes: Any) -> Kernel:
    return gemm_kernel(GemmSpec(**{"m": 24, "n": 20, "k": 18, **sizes}), target)


def _conv(target: Target, **sizes: Any) -> Kernel:
    return conv_kernel(ConvSpec(**{  # type: ignore[arg-type]
        "direction": "forward", "n": 3, "c": 4, "k": 6, "size": (9, 9), "out": (9, 9), "kernel": (3, 3),
        "stride": (1, 1), "pad": (1, 1), "dilate": (1, 1), **sizes}), target)


def _scan(target: Target, n: int, reverse: bool) -> Kernel:
    b = Builder()
    b.cumsum(Value(tensor_type("float32", (3, n))), 1, reverse)
    return scan_kernel(b.nodes[0], target)


SHAPES: dict[str, tuple[Callable[..., Kernel], list[Callable[[int], tuple[int, ...]]]]] = {
    "rows": (lambda t, n: _gemm(t, m=n), [lambda n: (n, 18), lambda n: (18, 20), lambda n: (n, 20)]),
    "columns": (lambda t, n: _gemm(t, n=n), [lambda n: (24, 18), lambda n: (18, n), lambda n: (24, n)]),
    "depth": (lambda t, n: _gemm(t, k=n), [lambda n: (24, n), lambda n: (n, 20), lambda n: (24, 20)]),
    "transposed": (lambda t, n: _gemm(t, n=n, transb=True),
                   [lambda n: (24, 18), lambda n: (n, 18), lambda n: (24, n)]),
    "transposed rows": (lambda t, n: _gemm(t, m=n, n=64, transb=True),
                        [lambda n: (n, 18), lambda n: (64, 18), lambda n: (n, 64)]),
    "batch": (lambda t, n: _gemm(t, batch=n),
              [lambda n: (n, 24, 18), lambda n: (n, 18, 20), lambda n: (n, 24, 20)]),
    "pictures": (lambda t, n: _conv(t, n=n),
                 [lambda n: (n, 4, 9, 9), lambda n: (6, 4, 3, 3), lambda n: (n, 6, 9, 9)]),
    "sums": (lambda t, n: _scan(t, n, False), [lambda n: (3, n)] * 2),
    "sums from the end": (lambda t, n: _scan(t, n, True), [lambda n: (3, n)] * 2),
}


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda t: t.name)
@pytest.mark.parametrize("name", SHAPES)
def test_forms_compute_what_their_instances_do(jit: Any, name: str, target: Target) -> None:
    """Forms of two extents at others: the same bits as the instance has, and neither reads nor writes elsewhere."""
    write, shapes = SHAPES[name]
    any_size = replace(target, any_size=True)
    forms: dict[str, list[Any]] = {}
    random, shared = np.random.default_rng(0), 0
    for n in (33, 39, 34, 40, 37, 36):
        kernel = write(any_size, n)
        lifted = lift(kernel)
        known = forms.setdefault(lifted.skeleton, [])
        arrays = [random.standard_normal(s(n)).astype("f") for s in shapes]
        scratch = [np.zeros(kernel.shared + 2 * kernel.scratch, np.uint8)] * bool(kernel.scratch or kernel.shared)
        numbers = known[-1].numbers_of(lifted) if known and isinstance(known[-1], Form) else None
        if numbers is not None:
            shared += 1
            run = jit.compile(known[-1].kernel(kernel.facts).text, known[-1].symbol, target.name)
            _call(run, [*arrays, *scratch], numbers)
            alone = [*arrays[:-1], np.zeros_like(arrays[-1])]
            jit.compile(kernel.text, kernel.symbol, target.name)(*alone, *scratch, nth=2)
            np.testing.assert_array_equal(arrays[-1], alone[-1])
        elif not known:
            known.append(lifted)
        else:
            samples = [s for f in known for s in (f.samples if isinstance(f, Form) else [f])]
            known.append(Form([*samples, lifted], len(arrays) + len(scratch)))
    assert shared >= 2
