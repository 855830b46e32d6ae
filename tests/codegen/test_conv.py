"""Convolutions in LLVM IR against the primitives' NumPy: geometry, groups, epilogues, targets, numbers of threads."""
from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import CONVOLUTIONS, OPS, arrays_of, spec_of, terms
from hypothesis import given
from hypothesis import strategies as st

from kusari.codegen.contractions import ConvSpec, GemmOperand
from kusari.codegen.llvm.contraction.conv import direct as conv_direct
from kusari.codegen.llvm.contraction.conv import panels as conv_panels
from kusari.codegen.llvm.contraction.conv.choose import choose, suits
from kusari.codegen.llvm.contraction.conv.geometry import gathering
from kusari.codegen.llvm.contraction.conv.kernel import conv_kernel
from kusari.codegen.llvm.contraction.winograd.choose import Transformed, candidates, explained, winograd_of
from kusari.codegen.target import TARGETS
from kusari.ir import PRIMITIVES, Arg, Call, Lit, evaluate

F32, F64 = np.dtype("float32"), np.dtype("float64")
TURNS = tuple(TARGETS)  # vectors of any width run anywhere
def check(jit, spec: ConvSpec, operands=(), target="avx512", nth=1, algorithm=None, seed=1) -> None:
    """The bound: a sum of products is off by eps * sqrt(terms) of the product's spread, a few times over."""
    inputs, wide = arrays_of(spec, np.random.default_rng(seed))
    args = [wide.astype(spec.dtype), *(np.broadcast_to(o, wide.shape) for o in operands)]
    expected = [np.broadcast_to(evaluate(e, args), wide.shape) for e in spec.exprs]
    kernel = conv_kernel(spec, TARGETS[target], algorithm)
    flats = [np.full(wide.size + 64, 77).astype(e.dtype) for e in expected]
    scratch = np.full(kernel.scratch * nth + 128, 255, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    exact = [np.array(a, copy=True) for a in inputs]
    jit.compile(kernel.text, kernel.symbol, target)(*exact, *operands, *flats, scratch, nth=nth)
    assert (scratch[kernel.scratch * nth:] == 255).all(), "wrote past the scratch"
    bound = 8 * np.finfo(spec.dtype).eps * max(terms(spec), 1) ** 0.5
    for f, e in zip(flats, expected, strict=True):
        assert (f[wide.size:] == f[-1]).all(), "wrote past the end"
        np.testing.assert_allclose(f[:wide.size].reshape(wide.shape), e, rtol=bound, atol=bound * 4)


# Those that every run of the tests goes through.
QUICK = ("plain", "lenet 2", "strided", "tiny maps", "dilated and strided", "groups", "depthwise", "1-d", "3-d")


@pytest.mark.parametrize("algorithm", ["panels", "columns", "direct", "taps"])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CONVOLUTIONS])
def test_every_algorithm_that_suits(jit, name: str, algorithm: str) -> None:
    for i, direction in enumerate(OPS):
        spec = spec_of(direction, **CONVOLUTIONS[name])
        if suits(algorithm, spec):
            target = TURNS[(list(CONVOLUTIONS).index(name) + i) % len(TURNS)]
            check(jit, spec, target=target, nth=2, algorithm=algorithm)
        else:
            with pytest.raises(ValueError, match="does not suit"):
                conv_kernel(spec, TARGETS["avx512"], algorithm)


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("name", ["plain", "lenet 2", "strided", "dilated and strided", "1-d", "3-d"])
def test_filters_beyond_a_cache_are_copied_for_each_tile(jit, monkeypatch, name: str, target: str) -> None:
    spec = spec_of("input", **CONVOLUTIONS[name])
    whole = conv_kernel(spec, TARGETS[target], "columns").scratch
    monkeypatch.setitem(TARGETS, target, replace(TARGETS[target], l2_bytes=64))
    assert conv_kernel(spec, TARGETS[target], "columns").scratch > whole
    check(jit, spec, target=target, nth=2, algorithm="columns")


def test_scratch_holds_whole_vectors_of_results_that_are_finished() -> None:
    """Such as the last row of the last filter."""
    target = TARGETS["avx512"]
    flat = spec_of("forward", n=5, c=6, k=6, size=(9, 5), kernel=(3, 3), pad=1, dilate=2, groups=2)
    assert conv_direct.choose(flat, target)[:3] == (3, 1, 3) and conv_direct.choose(flat, target).flat
    staged = 256   # three planes of 11 x 7 and a vector, in whole lines of the cache
    last = 2 * 48 + 6 * 7  # of the third filter: 7 x 3 results lie like the staged plane
    assert conv_kernel(flat, target, "direct").scratch >= 4 * (2 * staged + last + 16)
    merged = spec_of("forward", n=3, c=16, k=64, size=(11, 4), kernel=(3, 4), groups=4)
    assert conv_panels.choose(merged, target)[:3] == (8, 2, 3)
    before = 544 + 2320 + 400  # elements of staged images, of the panel and of the table, in whole lines
    last = 7 * 32 + 2 * 9      # of the eighth filter: 9 results of the third sample
    assert conv_kernel(merged, target, "panels").scratch >= 4 * (before + last + 16)


@pytest.mark.parametrize("direction", OPS)
def test_double_precision(jit, direction: str) -> None:
    case = dict(n=2, c=6, k=11, size=(9, 10), kernel=(3, 3), pad=1, groups=1, dtype=F64)
    check(jit, spec_of(direction, **case), nth=2)
    check(jit, spec_of(direction, **case, stride=2), target="avx2")


rng = np.random.default_rng(2)
acc = Arg(0)


@pytest.mark.parametrize("direction", ["forward", "input"])
@pytest.mark.parametrize("case", [
    dict(n=2, c=5, k=7, size=(9, 9), kernel=(3, 3)), dict(n=2, c=5, k=7, size=(9, 9), kernel=(3, 3), stride=2),
    dict(n=9, c=6, k=4, size=(3, 3), kernel=(2, 2), groups=2), dict(n=2, c=5, k=7, size=(6, 6), kernel=(1, 1)),
    dict(n=2, c=5, k=5, size=(9, 19), kernel=(3, 3), groups=5),
    dict(n=1, c=8, k=8, size=(7, 9), kernel=(3, 3), groups=4),
], ids=["plain", "strided", "merged", "1x1", "depthwise", "groups"])
def test_epilogues(jit, case, direction: str) -> None:
    plain = spec_of(direction, **case)
    rows, shape = (plain.k, plain.out) if direction == "forward" else (plain.c, plain.size)
    positions = int(np.prod(shape))
    bias = rng.normal(size=(rows, 1, 1)).astype("f")
    full, mask = rng.normal(size=(plain.n, rows, *shape)), rng.normal(size=(plain.n, rows, *shape)) > 0
    row = rng.normal(size=(plain.n, 1, 1, 1)).astype("f")
    kinds = (GemmOperand(F32, 1, 0), GemmOperand(F64, positions, 1, rows * positions),
             GemmOperand(np.dtype("bool"), positions, 1, rows * positions), GemmOperand(F32, 0, 0, 1))
    exprs = (Call("maximum", (Call("add", (acc, Arg(1))), Lit(0))),
             Call("where", (Arg(3), Call("multiply", (acc, Arg(4))), Lit(0.0))), Call("add", (acc, Arg(2))))
    check(jit, spec_of(direction, **case, exprs=exprs, operands=kinds), (bias, full, mask, row), nth=2)
    heavy = (Call("tanh", (Call("add", (acc, Arg(1))),)), acc)
    check(jit, spec_of(direction, **case, exprs=heavy, operands=kinds[:1]), (bias,), "avx2")


@pytest.mark.parametrize("case", [
    dict(n=2, c=5, k=7, size=(12, 12), kernel=(5, 5)), dict(n=8, c=3, k=5, size=(4, 4), kernel=(3, 3), pad=1),
    dict(n=16, c=3, k=5, size=(1, 1), kernel=(3, 3), pad=1), dict(n=2, c=3, k=5, size=(8, 6), kernel=(3, 3), pad=1),
], ids=["8x8", "4x4", "1x1", "8x6"])
def test_panels_of_short_rows(jit, case) -> None:
    for direction in ("forward", "input"):
        check(jit, spec_of(direction, **case), nth=2, algorithm="panels")


def test_a_last_panel_begins_earlier_but_where_results_may_lie_in_an_operand(jit, monkeypatch) -> None:
    case = dict(direction="forward", n=2, c=6, k=28, size=(14, 14), kernel=(1, 1), stride=2)  # 49 positions, 32 and 17
    real = conv_panels.choose
    monkeypatch.setattr(conv_panels, "choose", lambda *given: real(*given)._replace(rows=14, vectors=2, samples=1))
    add = (Call("add", (acc, Arg(1))),)
    bias, full = rng.normal(size=(28, 1, 1)).astype("f"), rng.normal(size=(2, 28, 7, 7)).astype("f")
    tiles = []
    for operand, kind in ((bias, GemmOperand(F32, 1, 0)), (full, GemmOperand(F32, 49, 1, 28 * 49))):
        spec = spec_of(**case, exprs=add, operands=(kind,))
        check(jit, spec, (operand,), nth=2, algorithm="panels")
        tiles.append(conv_kernel(spec, TARGETS["avx512"], "panels").text.count("llvm.fma.v16f32("))
    assert tiles[1] == 2 * tiles[0] - 1  # one is the declaration


FLAT = {  # positions in rows that fill no vectors
    "strided": dict(n=9, c=4, k=16, size=(44, 44), kernel=(8, 8), stride=4),
    "groups": dict(n=4, c=6, k=10, size=(12, 9), kernel=(3, 2), pad=(1, 0), groups=2),
    "dilated": dict(n=8, c=5, k=8, size=(20, 20), kernel=(3, 3), pad=2, dilate=2),
    "3-d": dict(n=8, c=3, k=6, size=(4, 9, 10), kernel=(2, 3, 3), pad=(0, 1, 1)),
    "input": dict(direction="input", n=8, c=9, k=8, size=(18, 18), kernel=(3, 3), pad=1),
}


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("name", FLAT)
def test_flat_tiles_leave_out_what_lies_between_rows(jit, monkeypatch, name: str, target: str) -> None:
    case = {"direction": "forward", **FLAT[name]}
    plain = spec_of(**case)
    rows, shape = (plain.k, plain.out) if plain.direction == "forward" else (plain.c, plain.size)
    bias = rng.normal(size=(rows, *(1 for _ in shape))).astype("f")
    full = rng.normal(size=(plain.n, rows, *shape)).astype("f")
    positions = int(np.prod(shape))
    kinds = (GemmOperand(F32, 1, 0), GemmOperand(F32, positions, 1, rows * positions))
    exprs = (Call("maximum", (Call("add", (acc, Arg(1))), Lit(0))), Call("multiply", (acc, Arg(2))))
    found = conv_direct._flat(plain, TARGETS[target], gathering(plain))
    shape_of = min(found, key=lambda tile: tile.cycles)
    monkeypatch.setattr(conv_direct, "choose", lambda *_: shape_of)
    check(jit, spec_of(**case, exprs=exprs, operands=kinds), (bias, full), target, nth=2, algorithm="direct")


@pytest.mark.parametrize("stride", [3, 5, 8])
def test_long_strides_are_staged_by_vectors(jit, stride: int) -> None:
    for size in (stride * 20 + 9, 31):
        check(jit, spec_of("forward", n=1, c=2, k=3, size=(size,), kernel=(9,), stride=stride, pad=2))


def test_rows_that_fill_no_vectors_are_flat() -> None:
    for case, flat in ((dict(n=16, c=4, k=16, size=(84, 84), kernel=(8, 8), stride=4), True),
                       (dict(n=16, c=4, k=16, size=(66, 66), kernel=(3, 3)), False),     # they fill four
                       (dict(n=1, c=4, k=16, size=(84, 84), kernel=(8, 8), stride=4), False)):  # threads share planes
        assert conv_direct.choose(spec_of("forward", **case), TARGETS["avx512"]).flat == flat, case


def test_many_channels_are_summed_in_blocks(jit) -> None:
    for direction in ("forward", "input"):
        spec = spec_of(direction, n=1, c=700, k=700, size=(5, 5), kernel=(3, 3), pad=1)
        kernel = conv_kernel(spec, TARGETS["avx512"])
        assert kernel.scratch < 1 << 20
        check(jit, spec, nth=2)


@given(st.data())
def test_any_geometry(jit, data) -> None:
    rank = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    axis = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3), st.integers(0, 9))
    kernel, stride, pad, dilate, more = zip(*data.draw(st.lists(axis, min_size=rank, max_size=rank)), strict=True)
    # At least one window fits.
    size = tuple(max((k - 1) * d + 1 + m - 2 * p, 1)
                 for k, d, m, p in zip(kernel, dilate, more, pad, strict=True))
    spec = spec_of(data.draw(st.sampled_from(list(OPS))), data.draw(st.integers(1, 5)),
                   groups * data.draw(st.integers(1, 6)), groups * data.draw(st.integers(1, 20)), size, kernel, stride,
                   pad, dilate, groups)
    check(jit, spec, target=data.draw(st.sampled_from(TURNS)), nth=data.draw(st.integers(1, 3)))


@given(st.data())
def test_few_channels_in_each_group(jit, data) -> None:
    """Tiles of several filters and lines, weights that stay in registers and weights that do not."""
    rank = data.draw(st.integers(1, 3))
    axis = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2), st.integers(0, 19))
    kernel, stride, pad, dilate, more = zip(*data.draw(st.lists(axis, min_size=rank, max_size=rank)), strict=True)
    size = tuple(max((k - 1) * d + 1 + m - 2 * p, 1)
                 for k, d, m, p in zip(kernel, dilate, more, pad, strict=True))
    groups = data.draw(st.integers(4, 6))
    spec = spec_of(data.draw(st.sampled_from(["forward", "input"])), data.draw(st.integers(1, 3)),
                   groups * data.draw(st.sampled_from([1, 1, 2, 4])), groups * data.draw(st.integers(1, 5)), size,
                   kernel, stride if data.draw(st.booleans()) else 1, pad, dilate, groups)
    if suits("direct", spec):
        check(jit, spec, target=data.draw(st.sampled_from(TURNS)),
              nth=data.draw(st.integers(1, 3)), algorithm="direct")


NOT_FINITE = {
    "merged": dict(n=9, c=6, k=4, size=(3, 3), kernel=(3, 3), pad=1), "flat": FLAT["input"],
    "blocks": dict(n=1, c=9, k=700, size=(5, 5), kernel=(3, 3), pad=1),
    **{name: CONVOLUTIONS[name] for name in ("same", "strided", "dilated", "dilated and strided", "depthwise", "groups",
                                      "cover all", "3-d")}}


@pytest.mark.parametrize("direction", OPS)
@pytest.mark.parametrize("name", NOT_FINITE)
def test_nan_and_infinity_reach_what_depends_on_them_and_nothing_else(jit, direction: str, name: str) -> None:
    """A tap beyond the border is no product: zero times an infinite weight would be NaN."""
    case = {**NOT_FINITE[name], "direction": direction}
    spec = spec_of(**case)
    r = np.random.default_rng(3)
    op, clean = PRIMITIVES[OPS[direction]], arrays_of(spec, r)[0]
    attrs = {"stride": spec.stride, "pad": spec.pad, "dilate": spec.dilate, "groups": spec.groups, "size": {
        "forward": spec.out, "input": spec.size, "weight": spec.kernel}[direction]}
    for algorithm in ("panels", "columns", "direct", "taps"):
        if not suits(algorithm, spec):
            continue
        target = TURNS[(len(name) + len(algorithm)) % len(TURNS)]
        rows = spec.k if direction == "forward" else spec.c
        bias, more = np.zeros((rows, *(1 for _ in spec.size)), "f"), {}
        if direction != "weight":  # with an epilogue that is long in every other case
            add = Call("add", (acc, Arg(1)))
            long = Call("subtract", (Call("add", (add, Call("tanh", (Arg(1),)))), Arg(1)))
            more = {"exprs": (long if len(name) % 2 else add,), "operands": (GemmOperand(F32, 1, 0),)}
        kernel = conv_kernel(spec_of(**case, **more), TARGETS[target], algorithm)
        run = jit.compile(kernel.text, kernel.symbol, target)
        for which, value in itertools.product((0, 1), (np.nan, np.inf)):
            inputs = [x.copy() for x in clean]
            inputs[which].flat[r.integers(inputs[which].size)] = value
            with np.errstate(invalid="ignore"):
                expected, = op.call(attrs, *inputs)
            y, scratch = np.full_like(expected, 77), np.zeros(2 * kernel.scratch + 64, np.uint8)
            run(*inputs, *([bias] if more else []), y, scratch[-scratch.ctypes.data % 64:], nth=2)
            for kind in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(kind(y), kind(expected), f"{algorithm} {which} {value}")


def test_the_choice_follows_the_shape() -> None:
    def chosen(direction: str, *args, **more) -> str:
        return choose(spec_of(direction, *args, **more), TARGETS["avx512"]).algorithm
    assert chosen("forward", 8, 64, 64, (14, 14), (1, 1)) == "product"
    assert chosen("forward", 8, 128, 128, (8, 8), (5, 5), pad=2) == "panels"
    assert chosen("input", 64, 20, 50, (12, 12), (5, 5)) == "columns"
    assert {chosen(d, 4, 32, 32, (56, 56), (3, 3), pad=1, groups=32) for d in OPS} == {"direct"}
    text = conv_kernel(spec_of("input", 64, 20, 50, (12, 12), (5, 5)), TARGETS["avx512"]).text
    assert re.search(r"\n; columns; chosen: columns: \d+ cycles by count, the fewest; others: .*panels \d+", text)


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
def test_what_is_explained_is_what_is_done(direction: str, target: str) -> None:
    for n, c, k, side in ((1, 3, 64, 20), (2, 64, 64, 28), (8, 128, 128, 8), (1, 64, 512, 4), (4, 16, 8, 7)):
        spec = spec_of(direction, n, c, k, (side, side), (3, 3), pad=1, dtype=F32)
        for largest in (0, 2, 4):
            table = candidates(spec, TARGETS[target], largest)
            found, winograd = explained(spec, TARGETS[target], largest), winograd_of(spec, TARGETS[target], largest)
            assert (found.algorithm, found.cycles) == (table[0].name, table[0].cycles)
            assert winograd == getattr(table[0], "spec", None)
            assert found.others == tuple((c.name, c.cycles) for c in table[1:])
            assert [c.cycles for c in table] == sorted(c.cycles for c in table)
            assert any("winograd" in c.name for c in table) == (largest > 0), table
            assert choose(spec, TARGETS[target]).algorithm == next(
                c.name for c in table if not isinstance(c, Transformed))
            assert str(found).startswith(f"{found.algorithm}: {found.cycles:.0f} cycles by count, {found.why}")


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("direction", ["forward", "input"])
def test_columns_of_a_window_are_a_loop_where_they_are_alike(jit, monkeypatch, direction: str, target: str) -> None:
    spec = spec_of(direction, n=2, c=1, k=1, size=(28, 28), kernel=(5, 5))
    check(jit, spec, target=target, nth=2, algorithm="direct")
    loop = conv_kernel(spec, TARGETS[target], "direct").text
    monkeypatch.setattr(conv_direct, "_MOST_UNROLLED_PRODUCTS", 800)
    long = conv_kernel(spec, TARGETS[target], "direct").text
    assert 4 * loop.count("call <") < long.count("call <")
    apart = spec_of(direction, n=2, c=1, k=1, size=(28, 28), kernel=(5, 5), stride=(1, 2))
    check(jit, apart, target=target, algorithm="direct" if direction == "forward" else None)


@pytest.mark.parametrize("direction", OPS)
def test_text_does_not_grow_with_the_shape(direction: str) -> None:
    small, large = (conv_kernel(spec_of(direction, n, 64, 64, size, (3, 3), 2, 1), TARGETS["avx512"]).text
                    for n, size in ((1, (16, 16)), (32, (128, 128))))
    assert len(large) < 1.5 * len(small)
    assert len(large) < 120_000
