"""Variables that get other arrays between a call and its backward: gradients are those of define-by-run."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import Variable, static_graph

W = kusari.Parameter(np.linspace(-1, 1, 20, dtype="f").reshape(4, 5))


def body(x: Any, w: Any) -> Any:
    return F.exp(F.tanh(x) * F.sigmoid(x) + x) * w * W + F.tanh(x * x)


def r(i: int, dtype: str = "f", *shape: int) -> Any:
    return np.random.RandomState(i).randn(*shape or (4, 5)).astype(dtype)


def gradients(f: Any, how: str) -> list[Any]:
    seen: list[Any] = []
    for i in range(5):
        W.cleargrad()
        x, w = Variable(r(i)), Variable(r(i + 7), requires_grad=how == "wanted")
        h = x * 2 if how == "computed" else x
        y = f(h, w)
        if how == "shape":
            h.array = r(i, "f", 1, 5)
        elif how == "dtype":
            w.array = r(i, "d")
        elif i:
            h.array, w.array = r(i + 9), r(i + 8) if i > 2 else w.array
        if how == "twice":
            g, = kusari.grad([F.sum(y)], [x], enable_double_backprop=True)
            y = g
        F.sum(y * y).backward(retain_grad=how == "retained")
        seen += [y.array, x.grad, w.grad, W.grad, h.grad]
    return seen


@pytest.mark.parametrize("memory", ["speed", "low"])
@pytest.mark.parametrize("how", ["wanted", "unwanted", "computed", "shape", "dtype", "twice", "retained"])
def test_replaced(how: str, memory: str) -> None:
    f = static_graph(body, strict=True, memory=memory)
    for a, b in zip(gradients(body, how), gradients(f, how), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


RESULTS: dict[str, Any] = {
    "one": lambda x: F.tanh(x * W),
    "two": lambda x: (lambda h: (F.tanh(h * x), h, {"a": F.exp(h).array}))(F.tanh(x * W)),
    "array alone": lambda x: (lambda h: (F.sum(h * x), h.array))(F.tanh(x * W)),
    "reshaped": lambda x: F.reshape(F.tanh(x * W), (-1,)),
    "transposed": lambda x: F.transpose(F.tanh(x * W)),
    "identity": lambda x: F.identity(F.tanh(x * W)),
    "a part": lambda x: F.tanh(x * W)[1:, ::2],
    "beside a view": lambda x: (lambda h: (F.reshape(h, (-1,)), h * W))(F.tanh(x * W)),
    "beside a part": lambda x: (lambda h: (h[:2], h ** 2))(F.tanh(x * W)),
    "broadcast": lambda x: (lambda h: (h * F.broadcast_to(h[:1], h.shape), h))(F.tanh(x * W)),
}
OPTIONS: dict[str, Any] = {"plain": {}, "low": {"memory": "low"}, "verified": {"verify": 1},
                           "session": {"backend": "onnxruntime"}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("how", ["in place", "assigned"])
def test_results(name: str, how: str, options: str) -> None:
    """Results that are changed before the backward are what define-by-run's gradients read."""
    def gradients(f: Any) -> list[Any]:
        seen: list[Any] = []
        for i in range(5):
            W.cleargrad()
            found = f(r(i))
            found = found if isinstance(found, tuple) else (found,)
            loss = F.sum(found[0] * found[0].array.copy()) + (F.sum(F.sin(found[1])) if name == "two" and i % 2 else 0)
            for y in found[:2]:
                array = y.array if isinstance(y, Variable) else y
                if how == "in place" or not isinstance(y, Variable):
                    array[...] = 0.25
                else:
                    y.array = np.asarray(array * np.float32(0.5))
            loss.backward()
            seen.append(W.grad.copy())
        return seen
    if options == "session":
        pytest.importorskip("onnxruntime")
    f = static_graph(strict=True, **OPTIONS[options])(RESULTS[name])
    for a, b in zip(gradients(RESULTS[name]), gradients(f), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", ["speed", "low"])
def test_what_is_computed_again_from_results(memory: str) -> None:
    """What a backward computes again it does not compute from what callers have made of results."""
    def body(x: Any) -> Any:
        h = F.tanh(x)
        a = h * 2 + 1
        return a * a * x, h
    grads = []
    for f in (body, static_graph(body, strict=True, memory=memory)):
        for i in range(3):
            x = Variable(r(i, "f", 300, 300))
            y, h = f(x)
            h.array[...] = 3
            F.sum(y).backward()
        grads.append(x.grad)
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_arrays_stored_inside() -> None:
    """``h.array = …`` inside a call keeps the graph behind ``h``, which a recorded value would not."""
    def body(x: Any) -> Any:
        h = F.tanh(x * W)
        h.array = h.array * 2
        return F.sum(F.exp(h))
    f = static_graph(body)
    with pytest.warns(kusari.static.StaticGraphWarning, match=r"\.array of a Variable may be"):
        for i in range(3):
            grads = []
            for g in (body, f):
                W.cleargrad()
                g(r(i)).backward()
                grads.append(W.grad)
            np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5)
