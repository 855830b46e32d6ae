"""Winograd's algorithm in compiled graphs: when it is chosen, and that its results are those of define-by-run."""
from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.codegen import generate
from kusari.codegen.contractions import ConvSpec
from kusari.codegen.llvm.contraction.winograd.choose import described, winograd_of
from kusari.codegen.llvm.contraction.winograd.kernel import winograd_kernel
from kusari.codegen.llvm.contraction.winograd.spec import Way
from kusari.codegen.target import AVX512, TARGETS
from kusari.ir import Builder, Graph, Value, tensor_type
from kusari.passes import plan, run_pipeline
from kusari.runtime import Executable
from kusari.static.compile.target import host_target


def spec_of(direction="forward", n=8, c=32, k=32, size=(16, 16), out=None, kernel=(3, 3), **more) -> ConvSpec:
    one, pad = (1,) * len(kernel), more.pop("pad", (1,) * len(kernel))
    out = out or tuple(s + 2 * p - k + 1 for s, p, k in zip(size, pad, kernel, strict=True))
    fields = {"stride": one, "dilate": one, **more}
    return ConvSpec(direction, n, c, k, size, out, kernel, pad=pad, **fields)


def strided(direction="forward", size=(32, 32), pad=(1, 1), **more) -> ConvSpec:
    out = tuple((s + 2 * p - 3) // 2 + 1 for s, p in zip(size, pad, strict=True))
    return spec_of(direction, size=size, out=out, stride=(2, 2), pad=pad, **{"c": 64, "k": 128, **more})


@pytest.mark.parametrize(("spec", "tile"), [
    (spec_of(), 4), (spec_of("input"), 4), (spec_of("weight"), 4), (spec_of(pad=(2, 0)), 4),
    (spec_of(n=1, c=256, k=256, size=(14, 14)), 4), (spec_of(n=1, c=512, k=512, size=(7, 7)), 2),  # must pay
    (spec_of(n=1, c=512, k=512, size=(4, 4)), 0), (spec_of(c=3), 0), (spec_of("weight", c=1), 0),
    (spec_of(dtype=np.dtype("float64")), 0), (spec_of(groups=2), 0), (spec_of(stride=(2, 1), out=(8, 16)), 0),
    (spec_of(dilate=(1, 2), out=(16, 14)), 0), (spec_of(kernel=(3, 1)), 0), (spec_of(kernel=(5, 5)), 0),
    (spec_of(kernel=(3,), size=(64,)), 0), (spec_of(kernel=(3, 3, 3), size=(8, 8, 8)), 0),
    (spec_of(out=(15, 13)), 0),                             # windows end before the image does
    (strided(), 4), (strided(n=1, size=(55, 57)), 4), (strided("input"), 0), (strided("weight"), 0),
    (strided(c=40), 0),                                     # no whole vectors of channels
    (strided(n=1, c=256, k=512, size=(14, 14)), 0),         # must pay
    (strided(size=(32, 32), pad=(0, 0)), 0),                # windows end before the image does
    (spec_of("input", out=(15, 13)), 4), (spec_of("input", pad=(3, 3)), 0),
], ids=str)
def test_where_it_is_chosen(spec: ConvSpec, tile: int) -> None:
    found = winograd_of(spec, AVX512, 4)
    assert (found.tile if found else 0) == tile
    assert winograd_of(spec, AVX512, 0) is None
    smaller = winograd_of(spec, AVX512, 2)
    assert smaller is None or smaller.tile == 2


def test_the_gradient_of_the_input_is_a_convolution_of_the_other_array() -> None:
    found = described(spec_of("input", c=5, k=7, size=(13, 12), pad=(0, 2)), 4)
    assert found is not None
    assert (found.channels, found.maps, found.transposed) == (7, 5, True)
    assert (found.out_height, found.out_width) == (13, 12)
    assert found.pad == (2, 2, 0, 0)


GEOMETRIES = [((3, 32, 32, 14, 13), (1, 1)), ((3, 47, 48, 9, 12), (0, 2)), ((5, 64, 32, 7, 7), (1, 0)),
              ((1, 130, 128, 11, 13), (1, 1))]


def outputs(nodes, inputs, results, arrays, winograd, threads):
    planned = plan(run_pipeline(Graph("g", tuple(inputs), (), (), tuple(nodes), tuple(results))))
    program = generate(planned, host_target(), "llvm", winograd)
    symbols = " ".join(r.kernel.symbol for r in program.instructions if r.kernel is not None)
    frame = Executable(planned, program, threads).acquire()
    frame.bind_all(arrays)
    frame.fresh_outputs()
    frame.run()
    return [y.copy() for y in frame.outputs()], symbols


@pytest.mark.parametrize(("shape", "pad", "threads"), [
    pytest.param(*g, threads, marks=() if (i, threads) in ((0, 2), (2, 1)) else pytest.mark.slow)
    for i, g in enumerate(GEOMETRIES) for threads in (1, 2)], ids=str)
def test_graphs_with_all_three(shape, pad, threads: int) -> None:
    """Forward with a bias and ReLU in the same kernel, and both gradients, against direct sums."""
    n, c, k, h, w = shape
    rng = np.random.default_rng(0)
    size = (h + 2 * pad[0] - 2, w + 2 * pad[1] - 2)
    arrays = [rng.normal(size=s).astype("f") for s in ((n, c, h, w), (k, c, 3, 3), (1, k, 1, 1), (n, k, *size))]
    x, weights, bias, gy = inputs = [Value(tensor_type("float32", a.shape)) for a in arrays]
    attrs = {"stride": (1, 1), "pad": pad, "dilate": (1, 1), "groups": 1}
    b = Builder()
    y = b.one("conv", x, weights, size=size, **attrs)
    results = [b.call("maximum", b.call("add", y, bias), 0.0), b.one("conv_input", gy, weights, size=(h, w), **attrs),
               b.one("conv_weight", x, gy, size=(3, 3), **attrs)]
    exact, _ = outputs(b.nodes, inputs, results, arrays, 0, threads)
    for tile, bound in ((2, 8), (4, 25)):
        found, symbols = outputs(b.nodes, inputs, results, arrays, tile, threads)
        assert symbols.count(f"winograd{tile}_") >= 4
        assert "_maps_" in symbols or n > 1
        for a, e, terms in zip(found, exact, (9 * c, 9 * k, n * size[0] * size[1]), strict=True):
            assert abs(a - e).max() <= bound * 2.0 ** -24 * np.sqrt(terms) * e.std()


@pytest.mark.parametrize(("n", "h", "w", "threads"), [
    (1, 45, 63, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 32, 32, 2), (4, 48, 56, 1)))])
def test_strides_of_two(n: int, h: int, w: int, threads: int) -> None:
    """With a bias of each map and a second array in the same kernel, against direct sums."""
    rng = np.random.default_rng(1)
    size = ((h - 1) // 2 + 1, (w - 1) // 2 + 1)
    arrays = [rng.normal(size=s).astype("f") for s in ((n, 64, h, w), (128, 64, 3, 3), (1, 128, 1, 1), (n, 128, *size))]
    x, weights, bias, other = inputs = [Value(tensor_type("float32", a.shape)) for a in arrays]
    b = Builder()
    y = b.one("conv", x, weights, size=size, stride=(2, 2), pad=(1, 1), dilate=(1, 1), groups=1)
    results = [b.call("maximum", b.call("add", b.call("add", y, bias), other), 0.0)]
    (exact,), _ = outputs(b.nodes, inputs, results, arrays, 2, threads)   # tiles of two have no strides
    (found,), symbols = outputs(b.nodes, inputs, results, arrays, 4, threads)
    assert symbols.count("winograd4_") == 2
    assert abs(found - exact).max() <= 25 * 2.0 ** -24 * np.sqrt(9 * 64) * exact.std()


@pytest.mark.parametrize("tile", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_compiled_equals_define_by_run(tile: int) -> None:
    """A network of convolutions, forward and backward; the switch is ``config.winograd``."""
    rng = np.random.default_rng(0)
    w1, w2 = (rng.normal(size=s).astype("f") / 12 for s in ((24, 16, 3, 3), (16, 24, 3, 3)))
    x = rng.normal(size=(4, 16, 15, 15)).astype("f")

    def run(function):
        variables = [kusari.Variable(a.copy()) for a in (x, w1, w2)]
        y = function(*variables)
        F.sum(y * y).backward()
        return [y.array, *(v.grad for v in variables)]

    def network(x, w1, w2):
        return F.convolution_2d(F.relu(F.convolution_2d(x, w1, pad=1)), w2, pad=1) + x

    expected = run(network)
    with kusari.using_config("winograd", tile):
        static = kusari.static_graph(network)
        for _ in range(3):
            found = run(static)
    for a, e in zip(found, expected, strict=True):
        assert abs(a - e).max() <= 2e-6 * abs(e).max()


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse", "neon"])
def test_every_target_has_texts(name: str) -> None:
    """Generation itself must not depend on the machine."""
    found = winograd_of(spec_of(), TARGETS[name], 4)
    assert found is not None
    assert all(winograd_kernel(replace(found, way=way), TARGETS[name], number).text
               for way in get_args(Way) for number in (0, 1))


def test_no_other_tiles() -> None:
    planned = plan(Graph("empty", (), (), (), (), ()))
    with pytest.raises(ValueError, match="tiles of 2 or 4"):
        generate(planned, AVX512, "llvm", 3)
