"""Values: random numbers, accumulated and shared gradients, kinds of arguments, results and arrays."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.hazards import gradients, xs
from static.models import Model

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

# -- random numbers ----------------------------------------------------------------------------------------------------

RANDOM = {
    "dropout": lambda x, s: F.dropout(F.relu(x), 0.3),
    "two": lambda x, s: F.dropout(F.dropout(F.relu(x), 0.3) + F.dropout(x, 0.5), 0.1),
    "gaussian": lambda x, s: F.gaussian(F.tanh(x), x * 0.1),
    "zoneout": lambda x, s: F.zoneout(F.relu(x), F.tanh(x), 0.4),
    "rrelu": lambda x, s: F.rrelu(F.tanh(x)),
    "gumbel": lambda x, s: F.gumbel_softmax(F.tanh(x)),
    "unused": lambda x, s: (F.dropout(x, 0.3), F.relu(x))[1],
    "inside-static_code": lambda x, s: F.relu(x) + s(F.relu(x)),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", RANDOM)
def test_random_functions_draw_what_define_by_run_draws(both: Any, name: str, train: bool) -> None:
    @kusari.static_code
    def noise(h: Any) -> Any:
        return np.random.rand(*h.shape).astype("f")

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any) -> Any:
            return RANDOM[name](x, noise)

        def call(x: Any) -> Any:
            with kusari.using_config("train", train):
                v = Variable(x)
                y = f(v)
                F.sum(y * y).backward()
                return y, v.grad
        return call

    both(make, xs(), rtol=1e-4, atol=1e-5)


# -- gradients ---------------------------------------------------------------------------------------------------------

def test_gradients_accumulate_until_they_are_cleared(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.sum(F.tanh(self.l(x))))

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            if i % 3 == 0:
                model.cleargrads()
            model(x).backward()
            return gradients(model)
        return call

    both(make, list(enumerate(xs(7))))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_siamese_calls_in_any_order_of_backward(both: Any, order: tuple[int, int]) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.tanh(self.m(F.tanh(self.l(x)))))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            outs = [F.sum(model(x) ** 2), F.sum(model(x * 2) ** 2)]
            for k in order:
                outs[k].backward()
            outs2 = F.sum(model(model(x)))
            outs2.backward()
            return outs, outs2, gradients(model)
        return call

    both(make, xs())


def test_two_evaluations_then_backward_through_the_first(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.tanh(self.m(F.tanh(self.l(x)))))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            first = model(x)
            second = model(-x)
            with kusari.no_backprop_mode():
                third = model(x + 1)
            F.sum(first).backward()
            return first, second, third, gradients(model)
        return call

    both(make, xs())


def test_grad_touches_no_parameter(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.sum(F.tanh(self.l(x))))

        model = Decorated()

        def call(x: Any) -> Any:
            v = Variable(x)
            y = model(v)
            gx, gw = kusari.grad([y], [v, model.l.W])
            return gx, gw, gradients(model, v)
        return call

    def cleared(decorate: Any) -> Any:
        call = make(decorate)
        return call

    both(cleared, xs())


def test_no_stale_gradient_after_forward_only(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.sum(F.tanh(self.l(x))))

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            model.cleargrads()
            y = model(x)
            if i % 2 == 0:
                y.backward()
            return y, gradients(model)
        return call

    both(make, list(enumerate(xs(7))))


def test_double_backward(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.sum(self.m(F.tanh(self.l(x)))))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            y = model(v)
            gx, = kusari.grad([y], [v], enable_double_backprop=True)
            (y + F.sum(gx * gx)).backward()
            return y, gx, gradients(model, v)
        return call

    both(make, xs())


def test_double_backward_inside(both: Any) -> None:
    """A gradient penalty computed by the static function itself."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def forward(self, x: Any) -> Any:
                y = F.sum(self.m(F.tanh(self.l(x))))
                gx, = kusari.grad([y], [x], enable_double_backprop=True)
                return y + F.sum(gx * gx)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            y = model(Variable(x))
            y.backward()
            return y, [p.grad for n, p in model.namedparams() if p.grad is not None]
        return call

    both(make, xs())


def test_parts_without_gradient(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def forward(self, x: Any) -> Any:
                h = F.tanh(self.l(x))
                with kusari.no_backprop_mode():
                    target = F.tanh(self.m(h))
                h2 = F.relu(self.l(h))
                h2.unchain()
                return F.sum(h * target) + F.sum(h2)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            y = model(x)
            y.backward()
            return y, gradients(model)
        return call

    both(make, xs())


def test_unchained_backward_outside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.tanh(self.l(x)))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            h = model(x)
            h2 = model(h)
            h.unchain_backward()
            F.sum(h2).backward()
            return h2, gradients(model)
        return call

    both(make, xs())


CHANGED: dict[str, Any] = {
    "product": lambda s, x: F.sum(s.l(x) ** 2),
    "outputs kept": lambda s, x: F.sum(s.l(F.tanh(x))),
    "computed again": lambda s, x: F.sum(s.l(F.relu(x) * F.sigmoid(x))),
    "inputs kept": lambda s, x: F.sum(F.exp(x * 0.1) * s.l(x)) + F.sum(F.sin(x)),
}


@pytest.mark.parametrize(("name", "size"), [
    pytest.param(name, size, marks=() if i % 2 == k else pytest.mark.slow)
    for i, name in enumerate(CHANGED) for k, size in enumerate((4, 200))])
def test_inputs_changed_between_forward_and_backward(both: Any, name: str, size: int) -> None:
    """Define-by-run's functions keep inputs, not copies of them: gradients depend on what is there in the backward."""
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(size, size)

            loss = decorate(CHANGED[name])

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            y = model.loss(v)
            x *= 3
            y.backward()
            return y, gradients(model, v)
        return call

    both(make, xs(shape=(size, size)), rtol=1e-3, atol=1e-3 * size)


def test_several_outputs_and_some_gradients(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: (F.tanh(self.l(x)), F.relu(self.m(x)), x))

        model = Decorated()

        def call(item: Any) -> Any:
            which, x = item
            model.cleargrads()
            v = Variable(x)
            ys = model(v)
            sum([F.sum(ys[k]) for k in which], Variable(np.zeros((), "f"))).backward()
            return ys, gradients(model, v)
        return call

    both(make, list(zip([(0, 1, 2), (0,), (1,), (0, 1), (2,), (1, 0), (0,)], xs(7), strict=True)))


def test_requires_grad_of_arguments(both: Any) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(a: Any, b: Any) -> Any:
            return F.sum(F.tanh(a) * b)

        def call(item: Any) -> Any:
            flags, x = item
            a, b = (Variable(x * k, requires_grad=r) for k, r in zip((1, 2), flags, strict=True))
            y = f(a, b)
            if any(flags):
                y.backward()
            return y, y.requires_grad, a.grad, b.grad
        return call

    both(make, list(zip([(1, 1), (1, 1), (1, 0), (1, 0), (0, 1), (0, 0), (0, 0)], xs(7), strict=True)))
