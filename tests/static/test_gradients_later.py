"""Gradients asked for after something has changed, in many ways: they read what define-by-run reads then."""
from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import FunctionNode, Variable, optimizers, serializers
from kusari.errors import GradientError


def data(i: int, *shape: int) -> Any:
    return np.random.RandomState(i).randn(*shape).astype("f") * 0.5


class Cube(FunctionNode):
    """Of the user's; retains both of its inputs."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0, 1))
        return inputs[0] ** 2 * inputs[1],

    def backward(self, indexes: Any, gys: Any) -> Any:
        x, w = self.get_retained_inputs()
        return tuple([(2 * x * w, x * x)[i] * gys[0] for i in indexes])


class Exp(FunctionNode):
    """Of the user's; retains its output."""

    def forward(self, inputs: Any) -> Any:
        self.retain_outputs((0,))
        return np.exp(inputs[0] * 0.3),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return self.get_retained_outputs()[0] * gys[0] * 0.3,


class Product(kusari.Function):
    """Of the user's, and of the old style."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * inputs[1],

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * inputs[1], gys[0] * inputs[0]


class Model(kusari.Chain):
    """``h`` is stored by each of the functions below, ``last`` is what it has returned."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 4, initialW=data(1, 4, 4), initial_bias=data(2, 4))
            self.m = L.Linear(4, 4, initialW=data(3, 4, 4))
            self.bn = L.BatchNormalization(4)
            self.s = kusari.Parameter(data(4, 3, 4))
            self.v = kusari.Parameter(data(5, 16))
        self.h: Any = None
        self.last: Any = None


def network(m: Any, x: Any) -> Any:
    m.h = F.tanh(m.l(x))
    return F.sum(m.m(m.h) ** 2)


def several(m: Any, x: Any) -> Any:
    m.h = F.tanh(m.l(x))
    return m.m(m.h)


def products(m: Any, x: Any) -> Any:
    m.h = x * m.s
    return F.sum(m.h * m.h * m.s * x)


def views(m: Any, x: Any) -> Any:
    w = F.reshape(m.v, (4, 4))
    m.h = F.linear(x, w)
    return F.sum(F.linear(F.tanh(m.h), F.transpose(w)) * F.reshape(m.v[:12], (3, 4)))


def broadcast(m: Any, x: Any) -> Any:
    b = F.broadcast_to(m.l.b, (3, 4))
    m.h = b * x
    return F.sum(F.exp(m.h) * b)


def argument_views(m: Any, x: Any) -> Any:
    m.h = F.reshape(x, (4, 3)) * F.transpose(m.s)
    return F.sum(F.sin(m.h) * x[:, 1:].reshape(3, 3)[0])


def computed(m: Any, x: Any) -> Any:
    m.h = F.matmul(x, m.l.W * 2 + 1)
    return F.sum(F.exp(F.sin(m.h) * m.s) * m.s)


def normalized(m: Any, x: Any) -> Any:
    m.h = F.relu(m.bn(x * m.s))
    return F.sum(m.h ** 2)


def dropped(m: Any, x: Any) -> Any:
    m.h = F.dropout(m.l(x))
    return F.sum(m.m(m.h) ** 2)


def own_on_parameter(m: Any, x: Any) -> Any:
    m.h = Cube().apply((x, m.s))[0]
    return F.sum(F.tanh(m.h) * m.s)


def own_on_result(m: Any, x: Any) -> Any:
    m.h = m.l(x)
    return F.sum(Cube().apply((m.h, m.s))[0] * m.s)


def own_output(m: Any, x: Any) -> Any:
    m.h = Exp().apply((m.l(x),))[0]
    return F.sum(m.m(m.h) * m.h)


def own_old(m: Any, x: Any) -> Any:
    m.h = Product()(m.l(x), m.s)
    return F.sum(m.m(m.h) * m.h)


# -- what changes between the forward and the gradient -----------------------------------------------------------------

def in_place(m: Any, x: Any, optimizer: Any) -> None:
    for p in m.params():
        p.array[...] = p.array * 0.5 + 0.1


def assigned(m: Any, x: Any, optimizer: Any) -> None:
    for p in m.params():
        p.array = p.array * 0.5 + 0.1


def updated(m: Any, x: Any, optimizer: Any) -> None:
    for p in m.params():
        p.grad = np.full_like(p.array, 0.3)
    optimizer.update()
    m.cleargrads()


def altered(m: Any) -> Model:
    other = Model()
    for p, q in zip(other.params(), m.params(), strict=True):
        p.array[...] = q.array * 0.5 + 0.1
    return other


def loaded(m: Any, x: Any, optimizer: Any) -> None:
    other, file = altered(m), io.BytesIO()
    serializers.save_npz(file, other)
    file.seek(0)
    serializers.load_npz(file, m)


def copied(m: Any, x: Any, optimizer: Any) -> None:
    m.copyparams(altered(m))


def argument_in_place(m: Any, x: Any, optimizer: Any) -> None:
    x.array[...] = x.array * 0.5 + 0.2


def argument_assigned(m: Any, x: Any, optimizer: Any) -> None:
    x.array = x.array * 0.5 + 0.2


def result_in_place(m: Any, x: Any, optimizer: Any) -> None:
    m.h.array[...] = m.h.array * 0.5 + 0.2


def result_assigned(m: Any, x: Any, optimizer: Any) -> None:
    m.h.array = m.h.array * 0.5 + 0.2


def result_assigned_and_dropped(m: Any, x: Any, optimizer: Any) -> None:
    result_assigned(m, x, optimizer)
    m.h = Variable(np.ones((1, 1), "f")) * 1


def all_of_it(m: Any, x: Any, optimizer: Any) -> None:
    m.h.array[...] *= 2
    m.s.array[...] *= 2
    m.l.W.array = m.l.W.array * 1.5


def called_again(m: Any, x: Any, optimizer: Any) -> None:
    held, last = m.h, m.last
    m.call(Variable(data(77, 3, 4)))
    m.h, m.last = held, last
    updated(m, x, optimizer)


def nothing(m: Any, x: Any, optimizer: Any) -> None:
    pass


# -- how gradients are asked for ---------------------------------------------------------------------------------------

def seeded(y: Any) -> Any:
    if y.size > 1:
        y.grad = np.linspace(1, 2, y.size).astype("f").reshape(y.shape)
    return y


def backward(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward()


def retaining(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward(retain_grad=True)
    return m.h.grad, y.grad


def scaled(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward(loss_scale=8.0)


def of_result(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    return kusari.grad([y], [m.h, m.s])


def of_few(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    return kusari.grad([y], [x, m.l.W, m.s], retain_grad=True)


def twice_differentiated(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    gs = kusari.grad([y], [m.h, m.l.W, m.s], enable_double_backprop=True)
    sum([F.sum(g * g) for g in gs if g is not None], F.sum(y) * 0.1).backward()
    return gs


def double_backward(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward(enable_double_backprop=True)
    gs = [p.grad_var for p in m.params() if p.grad is not None]
    m.cleargrads()
    sum([F.sum(g * g) for g in gs]).backward()
    return gs


def cut(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    m.h.unchain()
    seeded(y).backward()
    return m.h.grad


def cut_behind(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    m.h.unchain_backward()
    seeded(y).backward()
    return m.h.grad


def followed(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    (F.sum(y * y) + F.sum(m.h * m.h) * F.sum(m.s)).backward()


def again_after_update(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward()
    optimizer.update()
    seeded(y).backward()


def again_cut_after_assignment(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    seeded(y).backward()
    assigned(m, x, optimizer)
    m.h.unchain_backward()
    seeded(y).backward(retain_grad=True)


def siblings(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    m.h.grad = data(9, *m.h.shape)
    y.grad = np.full_like(y.array, 2)
    kusari.backward([y, m.h])
    return m.h.grad


def after_siblings(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    m.h.grad = data(9, *m.h.shape)
    y.grad = np.full_like(y.array, 2)
    y.backward()
    m.h.backward()


def of_doubles(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    m.m.W.array = m.m.W.array.astype(np.float64)
    y.backward()
    found = m.m.W.grad
    m.m.W.cleargrad()
    m.m.W.array = m.m.W.array.astype(np.float32)
    return found


def of_other_shape(m: Any, x: Any, y: Any, optimizer: Any) -> Any:
    kept, m.m.W.array = m.m.W.array, data(7, 4, 5)
    with pytest.raises(GradientError) as caught:
        y.backward()
    m.m.W.array = kept
    return str(caught.value).partition("\n")[0]


ROWS = [
    (network, in_place, retaining), (network, in_place, of_result), (network, assigned, cut),
    (network, assigned, double_backward), (network, updated, cut_behind), (network, updated, twice_differentiated),
    (network, called_again, of_result), (network, called_again, double_backward),
    (network, result_in_place, cut), (network, result_assigned, twice_differentiated),
    (network, result_assigned_and_dropped, backward), (network, nothing, again_cut_after_assignment),
    (network, nothing, of_doubles), (network, nothing, of_other_shape),
    (several, result_assigned_and_dropped, followed),
    (products, assigned, cut_behind), (products, all_of_it, double_backward),
    (views, in_place, backward), (views, updated, followed), (views, updated, twice_differentiated),
    (broadcast, updated, backward), (broadcast, updated, siblings), (broadcast, in_place, scaled),
    (broadcast, updated, after_siblings), (network, loaded, of_result), (network, copied, retaining),
    (computed, loaded, cut_behind), (computed, copied, of_few),
    (argument_views, argument_in_place, backward), (argument_views, argument_assigned, followed),
    (computed, updated, cut_behind), (computed, assigned, twice_differentiated), (computed, called_again, retaining),
    (normalized, updated, of_result), (normalized, assigned, retaining), (dropped, updated, twice_differentiated),
    (dropped, in_place, cut), (dropped, result_assigned, of_result),
    (own_on_parameter, assigned, backward), (own_on_parameter, argument_assigned, backward),
    (own_on_parameter, argument_assigned, siblings),
    (own_on_result, result_in_place, backward), (own_on_result, result_assigned, followed),
    (own_on_result, in_place, of_result), (own_output, result_assigned, backward), (own_output, in_place, retaining),
    (own_old, assigned, backward), (own_old, updated, of_result), (own_old, argument_in_place, retaining),
]
WHOLE = [(network, updated, twice_differentiated), (network, result_assigned_and_dropped, backward),
         (products, nothing, double_backward), (computed, assigned, twice_differentiated),
         (dropped, in_place, double_backward), (views, assigned, backward), (broadcast, assigned, again_after_update)]


def name(row: Any) -> str:
    return "-".join(f.__name__ for f in row)


def seen_of(m: Any, x: Any, y: Any, found: Any) -> list[Any]:
    """Everything that can be observed, None where there is no gradient."""
    return [y, m.h, found, x.grad, [(n, p.grad, p.array) for n, p in sorted(m.namedparams())], m.bn.avg_mean.copy(),
            m.bn.avg_var.copy(), int(m.bn.N)]


@pytest.mark.parametrize("row", ROWS, ids=map(name, ROWS))
def test_gradients_of_calls(both: Any, row: Any) -> None:
    body, change, ask = row

    def make(decorate: Any) -> Callable[[int], Any]:
        model = type("Decorated", (Model,), {"call": decorate(body)})()
        optimizer = optimizers.SGD(0.05).setup(model)

        def call(i: int) -> Any:
            np.random.seed(i)
            x = Variable(data(100 + i, 3, 4))
            y = model.call(x)
            change(model, x, optimizer)
            found = ask(model, x, y, optimizer)
            seen = seen_of(model, x, y, found)
            model.cleargrads()
            return seen
        return call
    both(make, range(5), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("row", WHOLE, ids=map(name, WHOLE))
def test_gradients_of_what_a_whole_step_stores(both: Any, row: Any) -> None:
    body, change, ask = row

    def make(decorate: Any) -> Callable[[int], Any]:
        def loss(m: Any, x: Any) -> Any:
            m.last = body(m, x)
            return m.last
        model = type("Decorated", (Model,), {"call": decorate(loss)})()
        optimizer = optimizers.SGD(0.05).setup(model)

        def call(i: int) -> Any:
            np.random.seed(i)
            x = Variable(data(100 + i, 3, 4))
            optimizer.update(model.call, x)
            model.cleargrads()
            x.cleargrad()
            change(model, x, optimizer)
            y = model.last
            found = ask(model, x, y, optimizer)
            return seen_of(model, x, y, found)
        return call
    both(make, range(5), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("memory", ["low", *(pytest.param(m, marks=pytest.mark.slow) for m in ("balanced", 0.3))])
def test_what_is_computed_again_is_the_call_s(both: Any, memory: Any) -> None:
    """Gradients inside of a call with checkpoints read what was dropped, and what code has given, as they were."""
    class Deep(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(64, 64, initialW=data(1, 64, 64) * 0.2)
            self.h: Any = None

        @kusari.static_code
        def numbers(self, x: Any) -> Any:
            return np.cos(x.array)

    def body(self: Any, x: Any) -> Any:
        h = x
        for k in range(6):
            h = F.tanh(self.l(h)) * self.numbers(h)
            if k == 2:
                kept = h = F.dropout(h, 0.2)
        self.h = kept
        return F.sum(h * h)

    def make(decorate: Any) -> Callable[[int], Any]:
        keeping = decorate if decorate is not kusari.static_graph else kusari.static_graph(memory=memory)
        model = type("Decorated", (Deep,), {"call": keeping(body)})()

        def call(i: int) -> Any:
            np.random.seed(i)
            x = Variable(data(i, 64, 64))
            y = model.call(x)
            gs = kusari.grad([y], [model.h, x], enable_double_backprop=True)
            F.sum(gs[0] * gs[1]).backward()
            return y, gs, x.grad, model.l.W.grad
        return call
    both(make, range(4), rtol=1e-3, atol=1e-3)
