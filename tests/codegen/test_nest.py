"""Loop nests: compiled kernels against the interpreter, for every pattern, target and number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from bodies import arrays_for, bodies, body, cross_entropy, normalize, softmax
from hypothesis import given
from hypothesis import strategies as st
from kernels import assert_untouched, call, guarded, overwriting

from kusari.codegen.llvm.nest.writer import nest_kernel
from kusari.codegen.target import AVX2, AVX512, GENERIC, NEON, SSE, Target
from kusari.ir import Builder, Graph, Value, interpret
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of

SIZES = (1, 2, 13, 16, 33, 130)


def check(graph: Graph, arrays: Sequence[np.ndarray] | None = None, target: Target = AVX512,
          threads: Sequence[int] = (1, 3), rtol: float = 3e-5) -> None:
    """The kernel gives what the interpreter gives, also when its outputs take the operands' buffers."""
    arrays = arrays_for(graph.inputs) if arrays is None else arrays
    nest = nest_of(graph)
    kernel = nest_kernel(nest, target)
    with np.errstate(all="ignore"):
        want = interpret(graph, arrays)
    for n in threads:
        outputs, buffers = zip(*(guarded(v.shape, v.tensor.dtype) for v in graph.outputs), strict=True)
        call(kernel, [*arrays, *outputs], n)
        compare(outputs, want, rtol)
        for raw in buffers:
            assert_untouched(raw)
        if (found := overwriting(graph, arrays)) is not None:
            operands, reused = found
            call(kernel, [*operands, *reused], n)
            compare(reused, want, rtol)


def compare(got: Sequence[np.ndarray], want: Sequence[np.ndarray], rtol: float) -> None:
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def shapes_of(graph: Graph) -> list[tuple[int, bool]]:
    return [(d.extent, d.reduced) for d in nest_of(graph).dims]


def test_analysis_of_a_row() -> None:
    nest = nest_of(body(softmax, ("f4", (4, 10))))
    assert [(d.extent, d.reduced) for d in nest.dims] == [(4, False), (10, True)]
    assert [(s.kind, s.fn, s.stage) for s in nest.steps] == [
        ("load", "", 0), ("reduce", "max", 1), ("call", "subtract", 1), ("call", "exp", 1), ("reduce", "sum", 2),
        ("call", "true_divide", 2)]
    assert nest.stages == 3 and nest.store_stage(0) == 2
    assert nest.overwrites() == [(0, 0)]


@pytest.mark.parametrize("shape, axes, dims", [
    ((4, 5, 6), (), [(120, False)]),
    ((4, 5, 6), (0, 1, 2), [(120, True)]),
    ((4, 5, 6), (2,), [(20, False), (6, True)]),
    ((4, 5, 6), (0,), [(4, True), (30, False)]),
    ((4, 5, 6), (1,), [(4, False), (5, True), (6, False)]),
    ((4, 5, 6), (0, 2), [(4, True), (5, False), (6, True)]),
    ((1, 5, 1, 6), (0, 3), [(5, False), (6, True)]),
])
def test_domains_collapse(shape, axes, dims) -> None:
    def build(b: Builder, x: Value) -> Value:
        y = b.call("negative", x)
        return b.reduce("sum", y, axes) if axes else y
    assert shapes_of(body(build, ("f4", shape))) == dims


def test_broadcast_operands_keep_dims_apart() -> None:
    add = body(lambda b, x, y: b.call("add", x, y), ("f4", (4, 5, 6)), ("f4", (5, 1)))
    assert shapes_of(add) == [(4, False), (5, False), (6, False)]
    assert [o.strides for o in nest_of(add).operands] == [(30, 6, 1), (0, 1, 0)]


@pytest.mark.parametrize("build, shapes, reason", [
    (lambda b, x: b.reduce("sum", b.reduce("sum", x, 1), 0), [(4, 5)], "different axes"),
    (lambda b, x, y: (b.call("negative", x), b.call("negative", y)), [(4,), (5,)], "whole domain"),
    (lambda b, x, y: (b.call("exp", y), b.call("add", x, y)), [(4, 5), (5,)], "neither the whole domain"),
    (lambda b, x: b.call("add", x, b.reshape(x, (1, 4))), [(4, 1)], "are one axis"),
    (lambda b, x: b.transpose(x), [(4, 5)], "transpose does not run"),
    (lambda b, x: b.reshape(x, (20,)), [(4, 5)], "reshape does not run"),
    (lambda b, x, y: b.call("add", b.call("negative", x), b.reduce("sum", y, 0)), [(4, 5), (3, 5)], "whole domain"),
])
def test_what_is_not_a_nest(build, shapes, reason) -> None:
    with pytest.raises(NotANest, match=reason):
        nest_of(body(build, *[("f4", s) for s in shapes]))


def test_equal_structure_gives_equal_text() -> None:
    one, two = (nest_kernel(nest_of(body(softmax, ("f4", (4, 10)))), AVX512) for _ in range(2))
    other = nest_kernel(nest_of(body(softmax, ("f4", (4, 11)))), AVX512)
    assert one == two and one.text != other.text


@pytest.mark.parametrize("target", (AVX512, AVX2, SSE, NEON, GENERIC), ids=lambda t: t.name)
@pytest.mark.parametrize("name", ("softmax", "columns", "middle", "layer", "batch", "loss"))
def test_patterns(name: str, target: Target) -> None:
    sizes = ((1, 1), (1, 7), (5, 16), (3, 33), (7, 260), (130, 3), (2, 1000))
    for n, m in sizes if target is AVX512 else sizes[3:5]:
        if name == "softmax":
            check(body(softmax, ("f4", (n, m))), target=target)
        elif name == "columns":
            check(body(lambda b, x: softmax(b, x, 0), ("f4", (m, n))), target=target)
        elif name == "middle":
            check(body(softmax, ("f4", (3, n, m))), target=target)
        elif name == "layer":
            check(body(normalize, ("f4", (n, m)), ("f4", (m,)), ("f4", (m,))), target=target, rtol=3e-4)
        elif name == "batch":
            check(body(lambda b, x, g, c: normalize(b, x, g, c, (0, 2)), ("f4", (3, n, m)), ("f4", (1, n, 1)),
                       ("f4", (1, n, 1))), target=target, rtol=3e-4)
        else:
            check(body(cross_entropy, ("f4", (n, m)), ("i4", (n,))), target=target)


@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "?"))
def test_dtypes(dtype: str) -> None:
    fns = ("any", "all", "max") if dtype == "?" else ("sum", "max", "min", "prod")
    tolerance = {"f2": 1e-2, "f4": 3e-5}.get(dtype, 1e-12)
    for shape, axes in product(((5, 37), (40, 3)), ((0,), (1,), (0, 1))):
        check(body(lambda b, x, axes=axes: tuple(b.reduce(fn, x, axes) for fn in fns), (dtype, shape)), rtol=tolerance)
    if dtype != "?":
        check(body(lambda b, x, y: b.call("maximum", b.call("add", x, y), 1), (dtype, (5, 37)), (dtype, (37,))),
              rtol=tolerance)
    check(body(lambda b, x, y: b.call("where", b.call("greater", x, y), b.cast(x, "f4"), 0.5), (dtype, (70,)),
               (dtype, (1,))))


@pytest.mark.parametrize("source, dtype, target", [
    pytest.param(*kinds, target, marks=() if (i + k) % 2 == 0 else pytest.mark.slow, id=f"{kinds} {target.name}")
    for i, kinds in enumerate((("i4", "u1"), ("f8", "f4"), ("i8", "i2"), ("i4", "?"), ("f4", "f2")))
    for k, target in enumerate((AVX512, AVX2, SSE, NEON, GENERIC))])
def test_the_last_lanes_of_a_narrower_type(source: str, dtype: str, target: Target) -> None:
    """One lane of 17 is written as one byte: not as the four of the number that it is cut from."""
    lanes = target.lanes(4)
    for n in (lanes + 1, lanes + 2, lanes + 3, 2 * lanes - 1):
        check(body(lambda b, x: b.cast(x, dtype), (source, (3, n, 1))), target=target, threads=(1,))
        # Rows of their own, because the other operand is the same along them.
        check(body(lambda b, x, y: (b.cast(x, dtype), b.call("add", x, y)), (source, (3, n)), (source, (3, 1))),
              target=target, threads=(1, 3))


@pytest.mark.parametrize("fn, empty", [("sum", 0), ("prod", 1)])
def test_empty_domains(fn: str, empty: int) -> None:
    for shape, axes in (((0, 3), (0,)), ((3, 0), (1,)), ((0,), (0,)), ((0, 3), (1,))):
        check(body(lambda b, x, axes=axes: b.reduce(fn, x, axes), ("f4", shape)))
    check(body(lambda b, x: b.call("exp", x), ("f4", (0, 4))))
    for shape, axes in (((4, 0), (1,)), ((0, 4), (0,))):  # a result of the whole domain beside one per row
        def both(b: Builder, x: Value, axes: tuple[int, ...] = axes) -> tuple[Value, Value]:
            y = b.call("exp", x)
            return y, b.reduce(fn, y, axes)
        check(body(both, ("f4", shape)))


def test_nan_and_infinity_pass_through() -> None:
    x = arrays_for(body(softmax, ("f4", (4, 40))).inputs)[0]
    x[0, 3], x[1, 39], x[2, 7] = np.nan, np.inf, -np.inf
    for fn, axes in product(("max", "min", "sum"), (0, 1)):
        check(body(lambda b, v, fn=fn, axes=axes: b.reduce(fn, v, axes), ("f4", (4, 40))), [x])
    check(body(softmax, ("f4", (4, 40))), [x])
    for number in (0.0, np.nan):
        check(body(lambda b, v, number=number: (b.call("maximum", v, number), b.call("minimum", number, v)),
                   ("f4", (4, 40))), [x])


def test_sums_of_many_numbers_are_accurate() -> None:
    x = np.random.RandomState(0).uniform(0, 1, (1 << 20,)).astype("f4")
    got = np.empty(1, "f4")
    call(nest_kernel(nest_of(body(lambda b, v: b.reduce("sum", v), ("f4", x.shape))), AVX512), [x, got])
    assert abs(got[0] / x.sum(dtype="f8") - 1) < 2e-6


def test_threads_share_every_pattern_and_agree_to_the_bit() -> None:
    for graph in (body(softmax, ("f4", (50, 33))), body(lambda b, x: b.reduce("sum", x, 0), ("f4", (9, 700))),
                  body(lambda b, x: b.call("exp", x), ("f4", (10007,)))):
        kernel, arrays = nest_kernel(nest_of(graph), AVX512), arrays_for(graph.inputs)
        assert not kernel.serial
        results = []
        for threads in (1, 2, 5):
            out = np.empty(graph.outputs[0].shape, "f4")
            call(kernel, [*arrays, out], threads)
            results.append(out.tobytes())
        assert len(set(results)) == 1


def test_long_rows_keep_what_is_expensive() -> None:
    def sum_of(b: Builder, x: Value) -> tuple[Value, Value]:
        y = softmax(b, x)
        return b.reduce("max", y, 1), b.call("greater", y, 0.1)

    kernel = nest_kernel(nest_of(body(sum_of, ("f4", (4, 5000)))), AVX512)
    assert 5000 * 4 <= kernel.scratch < 5100 * 4
    long = nest_kernel(nest_of(body(softmax, ("f4", (4, 5000)))), AVX512)
    assert long.scratch == 0 and long.text.count("@llvm.x86.avx512.mask.scalef") < 20  # it waits in the output
    assert nest_kernel(nest_of(body(softmax, ("f4", (4, 100)))), AVX512).scratch == 0


def test_what_is_expensive_between_two_reduced_loops_is_computed_again() -> None:
    def residual(b: Builder, x: Value, y: Value) -> Value:
        difference = b.call("subtract", b.call("multiply", b.call("tanh", x), 0.5), b.call("tanh", y))
        return b.call("multiply", difference, b.reduce("sum", difference, (0, 1)))

    check(body(residual, ("f4", (40, 1)), ("f4", (40, 300))), rtol=3e-4)


@given(graph=bodies(), target=st.sampled_from((AVX512, AVX2, NEON, GENERIC)))
def test_random_nests(graph: Graph, target: Target) -> None:
    try:
        nest_of(graph)
    except NotANest:
        return
    check(graph, target=target, threads=(1, 2), rtol=2e-3)


@pytest.mark.parametrize("target, rows, n", [
    *((AVX512, 35 + n % 5, n) for n in (2, 3)), (AVX512, 16, 16), (AVX512, 37, 20), (AVX2, 19, 3), (SSE, 6, 3), *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (*((AVX512, 35 + n % 5, n) for n in (4, 5, 6, 10, 11, 24)),
                     (AVX2, 11, 8), (AVX2, 17, 12), (SSE, 9, 2)))])
def test_short_rows(target: Target, rows: int, n: int) -> None:
    graphs = [
        body(softmax, ("f4", (rows, n))), body(cross_entropy, ("f4", (rows, n)), ("i4", (rows,))),
        body(normalize, ("f4", (rows, n)), ("f4", (n,)), ("f4", (n,))),
        body(lambda b, x, y, z: b.call("multiply", b.call("add", x, y), z), ("f4", (rows, n)), ("f4", (rows, 1)),
             ("f4", (n,))),
        body(lambda b, x, y: b.reduce("max", b.call("subtract", x, y), 2), ("f4", (3, 1, n)), ("f4", (1, rows, n))),
        body(lambda b, x, y: (b.reduce("any", b.call("less", x, y), 1), b.call("greater", x, y)),
             ("f4", (rows, n)), ("f4", (rows, n))),
    ]
    for graph in graphs:
        check(graph, target=target, rtol=3e-4)
    x = np.random.default_rng(0).normal(size=(rows, n)).astype("f")
    x[1, 0], x[2, -1], x[3, 1] = np.nan, np.inf, -np.inf
    check(graphs[0], [x], target)
    check(body(lambda b, x: (b.reduce("max", x, 1), b.reduce("min", x, 1)), ("f4", (rows, n))), [x], target)


@pytest.mark.parametrize("dtype", ("f8", "i8", "i2", "f2", "bool"))
def test_short_rows_of_other_types(dtype: str) -> None:
    graph = body(lambda b, x, y: (b.reduce("max", x, 1), b.call("where", b.call("less", y, 0.0), x, x)),
                 (dtype, (37, 3)), ("f4", (37, 1)))
    check(graph)
