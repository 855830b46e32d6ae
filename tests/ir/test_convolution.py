"""The ops of convolution and pooling: what they mean, what they refuse, their text."""
from __future__ import annotations

import numpy as np
import pytest

from kusari.ir import (
    PRIMITIVES,
    Builder,
    Graph,
    Value,
    VerifyError,
    Windows,
    interpret,
    parse_graph,
    print_graph,
    tensor_type,
    verify,
)
from kusari.ir.arithmetic import operations
from kusari.ir.convolution import padding_after

GEOMETRY = {"stride": (2, 1), "pad": (1, 0), "dilate": (1, 2), "groups": 2}
X, W, Y = (3, 4, 7, 6), (6, 2, 3, 2), (3, 6, 4, 4)


def graph(op: str, first: tuple[int, ...], second: tuple[int, ...], size: tuple[int, ...], **attrs) -> Graph:
    a, b = (Value(tensor_type("f", s)) for s in (first, second))
    builder = Builder()
    y = builder.one(op, a, b, **{**GEOMETRY, "size": size, **attrs})
    return Graph("g", (a, b), (), (), tuple(builder.nodes), (y,))


def by_definition(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Every product of the sum, one after the other."""
    y = np.zeros(Y)
    for n, o, i, j in np.ndindex(*Y):
        for c, s, t in np.ndindex(*W[1:]):
            h, v = 2 * i - 1 + s, j + 2 * t
            if 0 <= h < X[2] and 0 <= v < X[3]:
                y[n, o, i, j] += x[n, o // 3 * 2 + c, h, v] * w[o, c, s, t]
    return y


def test_convolutions_are_the_sums_they_are_defined_as_and_their_gradients() -> None:
    rng = np.random.default_rng(0)
    x, w, g = rng.normal(size=X).astype("f"), rng.normal(size=W).astype("f"), rng.normal(size=Y).astype("f")
    y, = interpret(graph("conv", X, W, Y[2:]), [x, w])
    np.testing.assert_allclose(y, by_definition(x, w), rtol=1e-4, atol=1e-5)
    gx, = interpret(graph("conv_input", Y, W, X[2:]), [g, w])
    gw, = interpret(graph("conv_weight", X, Y, W[2:]), [x, g])
    # A convolution is linear in x and in w: its gradients are its transposes.
    np.testing.assert_allclose(np.vdot(gx, x), np.vdot(g, y), rtol=1e-3)
    np.testing.assert_allclose(np.vdot(gw, w), np.vdot(g, y), rtol=1e-3)


@pytest.mark.parametrize("op, shapes", [("conv", (X, W, Y[2:])), ("conv_input", (Y, W, X[2:])),
                                        ("conv_weight", (X, Y, W[2:]))])
def test_arithmetic_is_that_of_the_definition_in_all_directions(op, shapes):
    assert operations(graph(op, *shapes).nodes[0]) == 2 * np.prod(Y) * np.prod(W[1:])


@pytest.mark.parametrize("transa", [False, True])
def test_arithmetic_of_a_product(transa):
    a, b = Value(tensor_type("f", (5, 7, 3) if transa else (5, 3, 7))), Value(tensor_type("f", (5, 7, 2)))
    builder = Builder()
    builder.matmul(a, b, transa=transa)
    assert operations(builder.nodes[0]) == 2 * 5 * 3 * 7 * 2


@pytest.mark.parametrize("op, shapes", [("conv", (X, W, Y[2:])), ("conv_input", (Y, W, X[2:])),
                                        ("conv_weight", (X, Y, W[2:]))])
def test_texts_are_read_back(op: str, shapes) -> None:
    text = print_graph(graph(op, *shapes))
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize("op, shapes", [
    ("conv", (X, (6, 3, 3, 2), Y[2:])), ("conv", ((3, 4, 7), W, (4,))), ("conv_input", ((3, 5, 4, 4), W, X[2:])),
    ("conv_weight", (X, (2, 6, 4, 4), W[2:])), ("conv", (X, W, (4,)))])
def test_extents_that_do_not_fit_are_refused(op: str, shapes) -> None:
    with pytest.raises(ValueError, match="fit each other|expected 2 extents"):
        graph(op, *shapes)


def test_the_checker_knows_the_types() -> None:
    made = graph("conv", X, W, Y[2:])
    verify(made)
    made.nodes[0].outputs[0].type = tensor_type("f", (1, 2))
    with pytest.raises(VerifyError):
        verify(made)


def test_arrays_without_elements() -> None:
    for n, c, o in ((0, 4, 6), (2, 0, 6), (2, 4, 0)):
        x, w, y = (n, c, 5), (o, c, 3), (n, o, 3)
        more = {"stride": (1,), "pad": (0,), "dilate": (1,), "groups": 1}
        for op, first, second, size, result in (("conv", x, w, (3,), y), ("conv_input", y, w, (5,), x),
                                                ("conv_weight", x, y, (3,), w)):
            out, = interpret(graph(op, first, second, size, **more), [np.ones(first, "f"), np.ones(second, "f")])
            assert out.shape == result and not out.any()


def test_padding_after_the_axis_is_what_windows_need() -> None:
    assert padding_after(Windows((7, 6), (4, 2), (3, 2), (2, 2), (1, 0), (1, 1))) == (1, -2)


def test_places_of_maxima_are_refused_for_sums() -> None:
    more = {"kernel": (2,), "stride": (1,), "pad": (0,), "size": (3,)}
    with pytest.raises(ValueError, match="a sum has no place"):
        Builder().emit(PRIMITIVES["pool"], Value(tensor_type("f", (1, 1, 4))), fn="sum", places=True, **more)
    places = Value(tensor_type("q", (1, 1, 3)))
    with pytest.raises(ValueError, match="places as int32"):
        Builder().emit(PRIMITIVES["unpool"], Value(tensor_type("f", (1, 1, 3))), places, **{**more, "size": (4,)})
