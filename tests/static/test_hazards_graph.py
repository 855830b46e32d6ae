"""What looks into the graph behind a replay: gradients of gradients, and of one result with respect to another."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static import models
from static.hazards import xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable


class Cube(kusari.FunctionNode):
    """Of the user's; nothing is known of it."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0,))
        return inputs[0] ** 3,

    def backward(self, indexes: Any, gys: Any) -> Any:
        x, = self.get_retained_inputs()
        return 3 * x * x * gys[0],


class Noise(kusari.FunctionNode):
    """Draws random numbers, and keeps them on itself."""

    def forward(self, inputs: Any) -> Any:
        self.noise = np.random.randn(*inputs[0].shape).astype("f")
        return inputs[0] * self.noise,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * self.noise,


class Model(models.Normalized):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.cell = L.LSTM(4, 4)

    @kusari.static_code
    def noise(self, x: Any) -> Any:
        return np.random.randn(*x.shape).astype("f")


def partly(s: Any, x: Any) -> Any:
    with kusari.no_backprop_mode():
        h = s.l(x)
    return F.sum(s.m(h) * h * x)


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "dropout": lambda s, x: F.sum(F.dropout(F.tanh(s.l(x))) ** 2),
    "several draws": lambda s, x: F.sum(F.dropout(F.tanh(x), .3) * F.gaussian(x, x * 0) + F.zoneout(x, F.sin(x), .5)),
    "statistics": lambda s, x: F.sum(F.tanh(s.l(s.norm(x))) ** 2),
    "user": lambda s, x: F.sum(Cube().apply((F.tanh(s.l(x)),))[0]),
    "user draws": lambda s, x: F.sum(F.tanh(Noise().apply((F.tanh(x),))[0]) ** 2),
    "code": lambda s, x: F.sum((F.tanh(s.l(x)) * s.noise(x)) ** 2),
    "state": lambda s, x: F.sum(s.cell(x) * s.cell(x)),
    "detached": partly,
    "embedding": lambda s, x: F.sum(F.embed_id(F.argmax(x, axis=1), s.l.W) ** 2 * x),
}


@pytest.mark.parametrize("name", BODIES)
def test_gradients_of_gradients(both: Any, name: str) -> None:
    """A gradient penalty, and a gradient penalty on that."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            loss = decorate(BODIES[name])

        model = Decorated()

        def call(x: Any) -> Any:
            model.cell.reset_state()
            model.cleargrads()
            v = Variable(x)
            y = model.loss(v)
            np.random.rand(3)  # the forward's numbers are not the present ones
            g, = kusari.grad([y], [v], enable_double_backprop=True)
            gg, = kusari.grad([F.sum(g * g)], [v], enable_double_backprop=True)
            total = y if gg is None else y + F.sum(g * g) + F.sum(gg)
            total.backward()
            return (y, g, gg, v.grad, [p.grad for p in model.params()], model.norm.avg_mean.copy(),
                    model.norm.avg_var.copy(), model.norm.N)
        return call

    both(make, xs(4), rtol=2e-4, atol=2e-5)


def two(s: Any, x: Any) -> Any:
    """A loss, and a hidden value that it depends on."""
    h = F.tanh(s.l(x))
    return F.sum(s.m(h) ** 2), h


def same_twice(s: Any, x: Any) -> Any:
    h = F.tanh(s.l(x))
    return F.sum(h * h), h, h


def with_retained(y: Any, h: Any, v: Any) -> Any:
    z = y * 2 + F.sum(h * h)
    z.backward(retain_grad=True)
    return y.grad, h.grad, z.grad


def with_respect_to_both(y: Any, h: Any, v: Any) -> Any:
    return kusari.grad([y + F.sum(h)], [h, v])


def cut_one(y: Any, h: Any, v: Any) -> Any:
    h.unchain()
    y.backward()


def cut_behind_one(y: Any, h: Any, v: Any) -> Any:
    h.unchain_backward()
    y.backward()


def cut_behind_the_loss(y: Any, h: Any, v: Any) -> Any:
    y.unchain_backward()
    (y + F.sum(h)).backward()


def double(y: Any, h: Any, v: Any) -> Any:
    g, = kusari.grad([y * y], [h], enable_double_backprop=True)
    F.sum(g * g * h).backward()
    return g


def mixed(y: Any, h: Any, v: Any) -> Any:
    z = F.sum(h * h) * y + y
    g, = kusari.grad([z], [v], enable_double_backprop=True)
    (z + F.sum(g * g)).backward()
    return g


def after_another(y: Any, h: Any, v: Any) -> Any:
    """A plain backward through what has been looked into, twice."""
    kusari.grad([y], [h])
    y.backward()
    first = v.grad.copy()
    y.backward()
    return first


USES = [with_retained, with_respect_to_both, cut_one, cut_behind_one, cut_behind_the_loss, double, mixed, after_another]


@pytest.mark.parametrize("body", [two, same_twice])
@pytest.mark.parametrize("use", USES)
def test_results_that_depend_on_each_other(both: Any, use: Any, body: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            parts = decorate(body)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            y, h, *_ = model.parts(F.sin(v) * 2)
            found = use(y, h, v)
            return found, v.grad, [p.grad for p in model.params()]
        return call

    both(make, xs(4), rtol=2e-4, atol=2e-5)


def test_calls_in_a_row(both: Any) -> None:
    """What one call made and only the next one holds."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda s, x: (F.dropout(F.tanh(s.l(x)), .3), F.gaussian(x, x * 0)))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            a, b = model(v)
            a, c = model(a)
            z = F.sum(a * b + c)
            g, = kusari.grad([z], [v], enable_double_backprop=True)
            (z + F.sum(g * g)).backward()
            return z, g, v.grad, [p.grad for p in model.params()]
        return call

    both(make, xs(4), rtol=2e-4, atol=2e-5)
