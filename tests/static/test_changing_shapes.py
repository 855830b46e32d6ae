"""Functions whose results have other shapes or dtypes when values change: masks, and functions of the user's own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Function, FunctionNode, Variable
from kusari.optimizers import SGD

LOG: list[Any] = []  # what users' functions have done, in order


class Positive(FunctionNode):
    """Takes the positive elements, however many there are."""

    def forward(self, inputs: Any) -> Any:
        LOG.append("positive")
        self.where = inputs[0] > 0
        return inputs[0][self.where],

    def backward(self, indexes: Any, gys: Any) -> Any:
        g = np.zeros(self.where.shape, "f")
        g[self.where] = gys[0].array
        return Variable(g),


class OldPositive(Function):
    def forward(self, inputs: Any) -> Any:
        LOG.append("old positive")
        return inputs[0][inputs[0] > 0],

    def backward(self, inputs: Any, gys: Any) -> Any:
        g = np.zeros_like(inputs[0])
        g[inputs[0] > 0] = gys[0]
        return g,


class Noisy(FunctionNode):
    """Counts, and draws random numbers."""

    def forward(self, inputs: Any) -> Any:
        LOG.append("noisy")
        self.noise = np.random.randn(*inputs[0].shape).astype("f")
        return inputs[0] * (1 + len(LOG) * 0.01) + self.noise * 0.1,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * self.noise,


class OldNoisy(Function):
    def forward(self, inputs: Any) -> Any:
        LOG.append("old noisy")
        self.noise = np.random.randn()
        return inputs[0] * np.float32(self.noise),

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * np.float32(self.noise),


class Wide(FunctionNode):
    """Gives float64 or float32."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0].astype("d" if inputs[0].sum() > 0 else "f"),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return F.cast(gys[0], "f"),


class Several(FunctionNode):
    """Gives one or two results."""

    def forward(self, inputs: Any) -> Any:
        return (inputs[0], inputs[0] * 2)[:1 + (inputs[0].sum() > 0)]

    def backward(self, indexes: Any, gys: Any) -> Any:
        gys = [g for g in gys if g is not None]
        return gys[0] if len(gys) == 1 else gys[0] + gys[1] * 2,


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l, self.m, self.norm = L.Linear(4, 4), L.Linear(4, 4), L.BatchNormalization(4)
        self.mask = np.array([True, True, False, True])
        self.count, self.kept = 0, None

    @kusari.static_code
    def tick(self) -> None:
        self.count += 1

    @kusari.static_code
    def doubled(self, h: Any) -> Any:
        LOG.append("doubled")
        return h.array * 2


def stored(self: Any, x: Any, m: Any) -> Any:
    self.kept = F.sum(self.l(x)[m])
    return self.kept * 2


def with_code(self: Any, x: Any, m: Any) -> Any:
    self.tick()
    h = self.doubled(self.l(x))
    self.tick()
    return Positive().apply((self.l(x) + h,))[0]


def with_several(self: Any, x: Any, m: Any) -> Any:
    ys = Several().apply((self.l(x),))
    return F.sum(ys[0]) + len(ys)


def with_report(self: Any, x: Any, m: Any) -> Any:
    h = Noisy().apply((self.l(x),))[0]
    kusari.report({"h": F.sum(h)}, self)
    return Positive().apply((h,))[0]


def code_and_mask(self: Any, x: Any, m: Any) -> Any:
    h = Noisy().apply((self.l(x),))[0]
    self.tick()
    return self.m(h)[m]


# Each: a function of a model, an array and a mask.
BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mask": lambda s, x, m: s.l(x)[m],
    "mask of rows": lambda s, x, m: s.m(s.l(x)[m[:, 0]]),
    "mask of masks": lambda s, x, m: F.tanh(s.l(x))[m & s.mask],
    "mask in a Variable": lambda s, x, m: s.l(x)[Variable(m)],
    "mask and number": lambda s, x, m: s.l(x)[m[:, 0], 1],
    "mask in an attribute": lambda s, x, m: F.tanh(s.l(x))[:, s.mask],
    "mask behind statistics": lambda s, x, m: s.m(s.norm(s.l(x))[m[:, 0]]),
    "mask between draws": lambda s, x, m: F.dropout(s.m(F.dropout(s.l(x))[m[:, 0]])),
    "mask and its opposite": lambda s, x, m: F.sum(s.l(x)[m]) + F.sum(s.m(x)[~m]),
    "mask of scatter_add": lambda s, x, m: F.scatter_add(s.l(x), m, s.l(x)[m] * 2),
    "mask of what is stored": stored,
    "mask behind code": code_and_mask,
    "function": lambda s, x, m: Positive().apply((s.l(x),))[0],
    "function of the old style": lambda s, x, m: OldPositive()(OldNoisy()(s.l(x))),
    "two functions": lambda s, x, m: Positive().apply((Positive().apply((Noisy().apply((s.l(x),))[0],))[0],))[0],
    "behind draws": lambda s, x, m: Positive().apply((Noisy().apply((F.dropout(s.norm(s.l(x))),))[0],))[0],
    "before draws": lambda s, x, m: Noisy().apply(Positive().apply((F.dropout(s.norm(s.l(x))),)))[0] * F.sum(
        F.dropout(s.m(x))) * 0.01,
    "between normal draws": lambda s, x, m: F.dropout(Positive().apply((F.dropout(Noisy().apply((
        F.gaussian(s.l(x), s.m(x)),))[0]),))[0]),
    "dtype": lambda s, x, m: F.cast(Wide().apply((s.l(x),))[0], "f") * 2,
    "number of results": with_several,
    "behind code": with_code,
    "behind a report": with_report,
}


@pytest.mark.parametrize("mode", ["predict", "update", "step"])
@pytest.mark.parametrize("name", BODIES)
def test_shapes_that_change(alike: Any, name: str, mode: str) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def loss(self, x: Any, m: Any) -> Any:
                return F.sum(BODIES[name](self, x, m) ** 2)

        LOG.clear()
        model, reporter = Decorated(), kusari.Reporter()
        reporter.add_observer("main", model)
        opt = SGD(0.01).setup(model)
        model.cleargrads()

        def call(item: Any) -> Any:
            i, x, mask = item
            if i == 6:
                model.mask[2] = True
            y: Any = None
            observed: dict[str, Any] = {}
            with reporter.scope(observed):
                if mode == "predict":
                    with kusari.no_backprop_mode():
                        y = model.loss(x, mask)
                elif mode == "update":
                    model.cleargrads()
                    v = Variable(x)
                    model.loss(v, mask).backward()
                    y = v.grad.copy()
                else:
                    opt.update(model.loss, x, mask)
            return (y, [(p.array.copy(), p.grad) for p in model.params()], model.norm.avg_mean.copy(), model.norm.N,
                    model.count, list(LOG), [v.array for v in observed.values()], model.kept, opt.t)
        return call

    rs, items = np.random.RandomState(1), []
    for i in range(8):
        x = rs.randn(4, 4).astype("f")
        mask = np.zeros((4, 4), bool)
        mask[:(2, 2, 2, 3, 1, 2, 2, 4)[i]] = True
        items.append((i, np.abs(x) if i < 3 and name != "number of results" else x, mask))
    alike(make, items, fallbacks=1, rtol=2e-3, atol=1e-4)


def test_the_call_that_goes_on_gives_nothing_twice() -> None:
    calls: list[int] = []

    class Flat(FunctionNode):
        def forward(self, inputs: Any) -> Any:
            calls.append(len(calls))
            return inputs[0][inputs[0] > 0],

        def backward(self, indexes: Any, gys: Any) -> Any:
            raise NotImplementedError

    @kusari.static_graph
    def f(x: Any) -> Any:
        return F.exp(F.tanh(Flat().apply((F.sin(x) * 2,))[0]))

    x = np.linspace(0.1, 1, 4).astype("f")
    for _ in range(3):
        f(x)
    with pytest.warns(kusari.static.StaticGraphWarning, match="Flat gives results whose shapes or dtypes depend"):
        y = f(x - 0.5)
    np.testing.assert_allclose(y.array, np.exp(np.tanh(np.sin(x - 0.5)[2:] * 2)), rtol=1e-5)
    assert len(calls) == 4
    assert f(x).shape + f(x - 0.5).shape == (4, 2)
    assert len(calls) == 6


def test_strict_functions_raise() -> None:
    f = kusari.static_graph(strict=True)(lambda x, m: F.tanh(F.exp(x))[m] * 2)
    x = np.ones((3, 4), "f")
    for _ in range(3):
        f(x, x > 0)
    with pytest.raises(kusari.static.StaticGraphError, match="depend on values"):
        f(x, x > 1)
