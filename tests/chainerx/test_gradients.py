"""Gradients of ChainerX: those of Variables, of any order, in several graphs."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.chainerx as chx
import kusari.functions as F

RNG = np.random.RandomState(0)
X, Y, W = (RNG.uniform(0.2, 0.9, shape).astype(np.float32) for shape in ((2, 3), (2, 3), (4, 3)))
IMAGE, KERNEL = RNG.rand(2, 3, 5, 5).astype(np.float32), RNG.rand(4, 3, 3, 3).astype(np.float32)
SQUARE = (RNG.rand(3, 3) + 3 * np.eye(3)).astype(np.float32)
LABELS = np.array([1, 0])

# A routine, what Variables have in its place, and the arguments.
PAIRS: list[tuple[str, Any, Any, tuple[Any, ...]]] = [
    *[(name, getattr(chx, name), getattr(F, name), (X,)) for name in (
        "exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
        "sinh", "cosh", "tanh", "sigmoid", "relu", "erf", "square", "elu", "leaky_relu", "clipped_relu", "softplus",
        "crelu", "softmax", "cumsum", "transpose", "sum", "max", "min", "squeeze", "fliplr", "flipud")],
    ("fabs", chx.fabs, F.absolute, (X,)), ("negative", chx.negative, lambda x: -x, (X,)),
    ("reciprocal", chx.reciprocal, lambda x: 1 / x, (X,)), ("exp2", chx.exp2, lambda x: 2.0 ** x, (X,)),
    ("number", lambda x: 2 - x / 3, lambda x: 2 - x / 3, (X,)), ("add", chx.add, lambda x, y: x + y, (X, Y)),
    ("subtract", chx.subtract, lambda x, y: x - y, (X, Y)), ("multiply", chx.multiply, lambda x, y: x * y, (X, Y)),
    ("divide", chx.divide, lambda x, y: x / y, (X, Y)), ("power", chx.power, lambda x, y: x ** y, (X, Y)),
    ("maximum", chx.maximum, F.maximum, (X, Y)), ("minimum", chx.minimum, F.minimum, (X, Y)),
    ("arctan2", chx.arctan2, F.arctan2, (X, Y)), ("item", lambda x: x[1], lambda x: x[1], (X,)),
    ("where", lambda x, y: chx.where(x > 0.5, x, y), lambda x, y: F.where(x.array > 0.5, x, y), (X, Y)),
    ("clip", lambda x: x.clip(0.4, 0.7), lambda x: F.clip(x, 0.4, 0.7), (X,)),
    ("take", lambda x: x.take([2, 2, 0], axis=1), lambda x: x[:, [2, 2, 0]], (X,)),
    ("repeat", lambda x: x.repeat(2, 1), lambda x: F.repeat(x, 2, 1), (X,)),
    ("stack", lambda x, y: chx.stack([x, y]), lambda x, y: F.stack([x, y]), (X, Y)),
    ("concatenate", lambda x, y: chx.concatenate([x, y]), lambda x, y: F.concat([x, y], 0), (X, Y)),
    ("split", lambda x: chx.split(x, [1], 1)[1], lambda x: F.split_axis(x, [1], 1)[1], (X,)),
    ("broadcast", lambda x: chx.broadcast_to(x, (2, 2, 3)), lambda x: F.broadcast_to(x, (2, 2, 3)), (X,)),
    ("dot", lambda x, w: chx.dot(x, w.T), lambda x, w: F.matmul(x, w.T), (X, W)),
    ("linear", chx.linear, F.linear, (X, W)), ("conv", chx.conv, F.convolution_nd, (IMAGE, KERNEL)),
    ("conv_transpose", chx.conv_transpose, F.deconvolution_nd, (IMAGE, KERNEL.transpose(1, 0, 2, 3))),
    ("average_pool", lambda x: chx.average_pool(x, 2, pad_mode="zero"), lambda x: F.average_pooling_nd(x, 2), (IMAGE,)),
    ("max_pool", lambda x: chx.max_pool(x, 2), lambda x: F.max_pooling_nd(x, 2, cover_all=False), (IMAGE,)),
    ("inv", chx.linalg.inv, F.inv, (SQUARE,)), ("huber", lambda x, y: chx.huber_loss(x, y, 0.1),
                                                lambda x, y: F.huber_loss(x, y, 0.1, "no"), (X, Y)),
    ("lstm", lambda c, x: chx.lstm(c, x)[1], lambda c, x: F.lstm(c, x)[1], (X[:, :1], np.tile(X, 2)[:, :4])),
    ("gaussian_kl", chx.gaussian_kl_divergence, lambda x, y: F.gaussian_kl_divergence(x, y, "no"), (X, Y)),
    ("squared_error", chx.squared_error, F.squared_error, (X, Y)),
    ("absolute_error", chx.absolute_error, F.absolute_error, (X, Y)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "routine", "function", "arrays"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_values_and_gradients_are_those_of_variables(name: str, routine: Any, function: Any, arrays: Any) -> None:
    xs, vs = [chx.array(a).require_grad() for a in arrays], [kusari.Variable(a.copy()) for a in arrays]
    y, v = routine(*xs), function(*vs)
    gy = np.asarray(RNG.rand(*v.shape), np.float32)
    y.set_grad(chx.array(gy))
    v.grad = gy
    y.backward()
    v.backward()
    np.testing.assert_array_equal(chx.to_numpy(y), v.array)
    for x, w in zip(xs, vs, strict=True):
        np.testing.assert_array_equal(chx.to_numpy(x.grad), w.grad)


def positive(a: Any) -> Any:
    return chx.dot(a, a.T) + 3 * chx.eye(3, dtype=a.dtype)


@pytest.mark.parametrize("function", [
    lambda a: chx.linalg.cholesky(positive(a)), lambda a: chx.linalg.eigh(positive(a))[0],
    lambda a: chx.abs(chx.linalg.eigh(positive(a))[1]), lambda a: chx.linalg.solve(a, a * a),
    lambda a: chx.linalg.solve(a, a[0]), lambda a: chx.linalg.pinv(a[:, :2]), lambda a: chx.linalg.qr(a[:, :2])[0],
    lambda a: chx.linalg.qr(a)[1], lambda a: chx.linalg.svd(a[:2], full_matrices=False)[1],
    lambda a: chx.abs(chx.linalg.svd(a[:, :2], full_matrices=False)[0]), lambda a: chx.arcsinh(a),
    lambda a: chx.arccosh(a + 2), lambda a: a.var(0), lambda a: chx.logsumexp(a, 1), lambda a: chx.log_softmax(a),
    lambda a: chx.diag(a[0], 1), lambda a: chx.tril(a), lambda a: a % 0.7, lambda a: chx.fmod(a, 0.7),
    lambda a: chx.softmax_cross_entropy(a, chx.array([0, 2, 1])), lambda a: chx.dot(a.reshape((1, 3, 3)), a),
    lambda a: chx.nansum(a, 0), lambda a: chx.moveaxis(a.reshape((1, 3, 3)), 0, 2), lambda a: a.to_device("native:1"),
])  # fmt: skip
def test_gradients_of_both_orders_are_numerical_ones(function: Any) -> None:
    def run(xs: Any) -> Any:
        y = function(xs[0])
        return [y.to_device("native:0") * y.to_device("native:0")]

    x = chx.array(SQUARE.astype(np.float64)).require_grad()
    y, = run([x])
    gy = chx.array(RNG.rand(*y.shape)).require_grad()
    eps = [chx.full(a.shape, 1e-4, "float64") for a in (x, gy)]
    chx.check_backward(run, [x], [gy], eps[:1], 1e-5, 1e-4)
    chx.check_double_backward(run, [x], [gy], [chx.array(RNG.rand(*x.shape))], eps, 1e-4, 1e-3)


def test_a_wrong_gradient_is_found() -> None:
    x, one = chx.ones(2).require_grad(), chx.ones(2)
    with pytest.raises(chx.GradientCheckError):
        chx.check_backward(lambda xs: [xs[0].as_grad_stopped() * xs[0]], [x], [one], [one * 1e-3])


def test_gradients_are_added_and_cleared() -> None:
    x = chx.array(X).require_grad()
    for _ in range(2):
        (2 * x).sum().backward()
    assert x.grad.tolist() == np.full((2, 3), 4).tolist()
    assert x.grad is x.get_grad()
    x.cleargrad()
    assert x.grad is None
    first, second = chx.ones(2).require_grad(), chx.ones(2).require_grad()
    (first + second).backward()
    first.grad.fill(5)
    assert second.grad.tolist() == [1, 1]  # they share no memory


def test_several_graphs() -> None:
    with chx.backprop_scope("outer") as outer, chx.backprop_scope("inner") as inner:
        x = chx.array([3.0], "float64").require_grad(inner)
        w = chx.array([2.0], "float64").require_grad(outer)
        y = w * x * x
        assert not y.is_backprop_required()
        assert y.is_backprop_required(inner) and y.is_backprop_required(outer)
        assert y.is_backprop_required(chx.anygraph)
        gx, = chx.grad([y], [x], inner)
        assert (gx.is_backprop_required(inner), gx.is_backprop_required(outer)) == (False, True)
        gx.backward(outer)
        assert (w.get_grad(outer).tolist(), x.get_grad(inner)) == ([6], None)
        alone = y.as_grad_stopped([inner])
        assert (alone.is_backprop_required(inner), alone.is_backprop_required(outer)) == (False, True)
        assert chx.grad([alone], [x, w], inner) == [None, None]
        assert not y.as_grad_stopped([inner, outer]).is_backprop_required(chx.anygraph)
        with pytest.raises(chx.ChainerxError, match="wants no gradient"):
            w.get_grad(inner)
    with pytest.raises(chx.ChainerxError, match="expired"):
        y.backward(outer)
    assert "<expired>" in repr(y)


def test_modes() -> None:
    x = chx.ones(2).require_grad()
    with chx.backprop_scope("other") as other:
        x.require_grad(other)
        with chx.no_backprop_mode():
            assert not (x + 1).is_backprop_required(chx.anygraph) and not chx.is_backprop_required()
            with chx.force_backprop_mode(other):
                y = x + 1
                assert (y.is_backprop_required(), y.is_backprop_required(other)) == (False, True)
                v = F.exp(kusari.Variable(x))
                assert (v.chx_array.is_backprop_required(), v.chx_array.is_backprop_required(other)) == (False, True)
        with chx.no_backprop_mode(other):
            assert not (x + 1).is_backprop_required(other)
        with kusari.no_backprop_mode():
            assert not chx.is_backprop_required() and not (x + 1).is_backprop_required(chx.anygraph)
    assert chx.is_backprop_required() and (x + 1).is_backprop_required()


def test_what_wants_no_gradient_keeps_no_graph() -> None:
    x = chx.ones(2)
    assert (x * x + 1)._variable is None
    assert (x.require_grad() > 0)._variable is x.argmax()._variable is None


@pytest.mark.parametrize(("change", "error"), [
    ({"dtype": "float64"}, "dtype"), ({"shape": 3}, "shape"), ({"device": "native:1"}, "device"),
])  # fmt: skip
def test_wrong_gradients(change: dict[str, Any], error: str) -> None:
    x = chx.ones(2).require_grad()
    with pytest.raises(chx.GradientError, match=f"another {error}"):
        x.grad = chx.ones(**{"shape": 2, **change})
    with pytest.raises(chx.GradientError, match="1 outputs, but 2"):
        chx.grad([x], [x], grad_outputs=[x, x])
    with pytest.raises(chx.ChainerxError, match="require_grad"):
        _ = chx.ones(2).grad
