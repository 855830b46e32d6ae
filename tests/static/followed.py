"""A model of which only the forward is static, losses behind it, and how they are compared with define-by-run."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.static.follow.follow import TailFunction
from kusari.static.follow.joint_backward import JointBackward

WEIGHT = np.array([0.5, 2.0, 1.0], "f")


class Model(kusari.Chain):
    """Only its forward is static."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        rs = np.random.RandomState(seed)
        with self.init_scope():
            self.l = L.Linear(5, 3, initialW=rs.randn(3, 5).astype("f"))
            self.scale = kusari.Parameter(np.array(1.5, "f"))

    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return F.tanh(self.l(x)) * 2

    @kusari.static_graph
    def two(self, x: Any) -> Any:
        return F.tanh(self.l(x)), F.sigmoid(self.l(x))

    @kusari.static_graph
    def again(self, y: Any) -> Any:
        return F.sin(y) * F.sum(self.l.W * self.l.W)


def data(i: int, n: int = 4) -> tuple[Any, Any]:
    rs = np.random.RandomState(i)
    return rs.randn(n, 5).astype("f"), rs.randint(0, 3, n).astype("i")


def schedule(model: Any, name: str = "forward") -> Any:
    static = getattr(type(model), name).static
    return next(e for o in static.caches(model) for e in reversed(o.entries.values()))


def schedules(of: Any, *functions: Any) -> list[Any]:
    """All schedules of static functions on an object, and of the functions composed of many others that follow them."""
    found = [e for f in functions for o in f.static.caches(of) for e in o.entries.values()]
    return [*found, *(e for f in found for e in schedules(None, *f.tail.composed.values()))]


def runs(model: Any) -> dict[str, str]:
    """How each function runs that follows."""
    kinds = [k for k in schedule(model).tail.kinds.values() if isinstance(k, TailFunction)]
    return {k.text.partition("(")[0]: k.runs for k in kinds}


def joined(model: Any, name: str = "forward") -> list[JointBackward]:
    return [j for j in schedule(model, name).tail.joined.values() if isinstance(j, JointBackward)]


def gradients(model: Any, loss: Callable[..., Any], *arrays: Any, **how: Any) -> dict[str, Any]:
    model.cleargrads()
    y = loss(model, *arrays)
    if y.size > 1:
        y.grad = np.linspace(1, 2, y.size).astype(y.dtype).reshape(y.shape)
    y.backward(**how)
    found = {n: p.grad.copy() for n, p in model.namedparams() if p.grad is not None}
    return {**found, "loss": y.array.copy()}


def equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, 2e-5, 4e-6 * max(1, abs(array).max()), err_msg=name)


def both(model: Any, loss: Callable[..., Any], *arrays: Any, **how: Any) -> None:
    """Compare with a program in which nothing is static."""
    found = gradients(model, loss, *arrays, **how)
    with kusari.using_config("use_static_graph", False):
        equal(found, gradients(model, loss, *arrays, **how))


def cross_entropy(m: Any, x: Any, t: Any, **options: Any) -> Any:
    return F.softmax_cross_entropy(m(x), t, **options)


def binary(m: Any, x: Any, t: Any) -> Any:
    return F.sigmoid_cross_entropy(m(x), np.stack([t - 1] * 3, 1))


def squares(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.sum(y * y) / 7


def several(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return 0.3 * F.softmax_cross_entropy(y, t) + F.mean(F.absolute(y)) + F.sum(F.exp(y)[:, 1]) * 0.1


def two(m: Any, x: Any, t: Any) -> Any:
    a, b = m.two(x)
    return F.softmax_cross_entropy(a, t) + F.sum(a * b)


def one_of_two(m: Any, x: Any, t: Any) -> Any:
    return F.softmax_cross_entropy(m.two(x)[1], t)


def siamese(m: Any, x: Any, t: Any) -> Any:
    return F.sum((m(x) - m(-x)) ** 2) + F.softmax_cross_entropy(m(x * 2), t)


def chained(m: Any, x: Any, t: Any) -> Any:
    return F.softmax_cross_entropy(m.again(F.exp(m(x))), t)


def learned(m: Any, x: Any, t: Any) -> Any:
    return F.softmax_cross_entropy(m(x) * F.broadcast_to(m.scale, (len(x), 3)), t)


def times_parameter(m: Any, x: Any, t: Any) -> Any:
    return F.softmax_cross_entropy(m(x) * m.scale, t) * m.scale


def penalty(m: Any, x: Any, t: Any) -> Any:
    return F.softmax_cross_entropy(m(x), t) + F.sum(m.l.W * m.l.W)


def accurate(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.softmax_cross_entropy(y, t) * (1 + F.accuracy(y, t))


def masked(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.sum(y[np.random.RandomState(int(t.sum())).rand(*y.shape) > 0.5] * 2) + F.softmax_cross_entropy(y, t)


def normalized(m: Any, x: Any, t: Any) -> Any:
    mean, var = np.zeros(3, "f"), np.ones(3, "f")
    return F.sum(F.batch_normalization(m(x), np.ones(3, "f"), mean, running_mean=mean, running_var=var)) + F.sum(
        m(x) * mean * var)


class Doubled(kusari.FunctionNode):
    """Of the user's; nothing is known of it."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


def own_between(m: Any, x: Any, t: Any) -> Any:
    y = Doubled().apply((m(x),))[0]
    return F.softmax_cross_entropy(y, t) + F.sum(m(x) * y)


def own_beside(m: Any, x: Any, t: Any) -> Any:
    w = Doubled().apply((F.exp(m.l.W),))[0]
    other = m.two(F.matmul(x, w, transb=True)[:, :1] * x)[0]
    return F.softmax_cross_entropy(m(x) + F.sum(w, axis=1), t) * F.sum(w) + F.sum(other)


def cut(m: Any, x: Any, t: Any) -> Any:
    a, b = m.two(x)
    a.unchain_backward()
    return F.softmax_cross_entropy(b, t) + F.sum(a * a * b)


def dropped(m: Any, x: Any, t: Any) -> Any:
    np.random.seed(3)
    return F.softmax_cross_entropy(F.dropout(m(x), 0.4), t)


def drawn(m: Any, x: Any, t: Any) -> Any:
    np.random.seed(4)
    y = m(x)
    return F.sum(F.gaussian(y, y * 0.1))


def weighted(m: Any, x: Any, t: Any) -> Any:
    return cross_entropy(m, x, t, class_weight=WEIGHT)


def ignoring(m: Any, x: Any, t: Any) -> Any:
    return cross_entropy(m, x, np.where(t == 1, -1, t).astype("i"), normalize=False)


def counted(m: Any, x: Any, t: Any) -> Any:
    return cross_entropy(m, x, t, reduce="no")


def hinge(m: Any, x: Any, t: Any) -> Any:
    return F.hinge(m(x), t)


def squared(m: Any, x: Any, t: Any) -> Any:
    return F.mean_squared_error(m(x), np.ones((len(x), 3), "f"))


def selected(m: Any, x: Any, t: Any) -> Any:
    return -F.mean(F.select_item(F.log_softmax(m(x)), t))


def one_array(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    target = np.full((len(x), 3), 0.5, "f")
    return F.mean_squared_error(y, target) + F.mean_absolute_error(y, target)


def detached(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.sum(y * y.array) + F.softmax_cross_entropy(y, t)


def paths(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.connectionist_temporal_classification([y, y * 0.5, F.sin(y)], t[:, None] % 2 + 1, 0) * 2


def field(m: Any, x: Any, t: Any) -> Any:
    y = m(x)
    return F.crf1d(F.tanh(m.l.W[:, :3]), [y, y[:2] * 0.5], ys=[t, t[1:3]])


def recurrent(m: Any, x: Any, t: Any) -> Any:
    np.random.seed(5)
    y, w = m(x), m.l.W[:, :3]
    h, ys = F.n_step_gru(2, 0.4, np.ones((2, len(x), 3), "f"), [[w] * 6, [F.sin(w)] * 6], [[m.l.b] * 6] * 2, [y, y[:2]])
    return F.sum(h) + F.sum(ys[1] * 2)


LOSSES = (cross_entropy, binary, squares, several, two, one_of_two, siamese, chained, learned, times_parameter,
          penalty, own_between, own_beside, cut, accurate, masked, normalized, dropped, drawn, weighted, ignoring,
          counted, hinge, squared, selected, one_array, detached, paths, field, recurrent)
IN_PARTS = (counted, cut, own_between, masked, normalized)  # backwards that go from node to node
