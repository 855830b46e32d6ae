"""Gradients through what calls return and store: cut, kept, of second order, after changes, over several calls."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Storing, build, gradients
from static.observed.harness import Rows, check

import kusari
import kusari.functions as F
from kusari import Parameter, Variable

ROWS = Rows()


def grads_of(*args: Any, **options: Any) -> Any:
    return kusari.grad(*args, **options)


# What is done with the results of a call: ``m`` is the model, ``v`` its argument, ``y`` its result.

def plain(m: Any, v: Any, y: Any) -> Any:
    y.backward()


def stored_is_cut(m: Any, v: Any, y: Any) -> Any:
    m.h.unchain()
    y.backward()


def stored_is_cut_backward(m: Any, v: Any, y: Any) -> Any:
    m.h.unchain_backward()
    y.backward()


def part_is_cut(m: Any, v: Any, y: Any) -> Any:
    m.parts[1].unchain()
    y.backward()


def result_is_cut(m: Any, v: Any, y: Any) -> Any:
    (y * 2).unchain_backward()
    y.backward()
    F.sum(m.h).backward()


def stored_first(m: Any, v: Any, y: Any) -> Any:
    F.sum(m.h * m.h).backward()
    y.backward()


def stored_last(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    F.sum(m.h * m.h).backward()


def only_stored(m: Any, v: Any, y: Any) -> Any:
    F.sum(m.parts[0]).backward()


def both_at_once(m: Any, v: Any, y: Any) -> Any:
    (y + F.sum(m.h) + F.sum(m.parts[1] ** 2)).backward()


def grad_of_stored(m: Any, v: Any, y: Any) -> Any:
    return [g.array for g in grads_of([y], [m.h])]


def grad_of_two_stored(m: Any, v: Any, y: Any) -> Any:
    return [g.array for g in grads_of([y], [m.h, m.parts[1]])]


def grad_to_the_argument(m: Any, v: Any, y: Any) -> Any:
    return [g.array for g in grads_of([m.parts[0]], [v], grad_outputs=[Variable(np.ones((3, 4), "f"))])]


def grad_to_parameters(m: Any, v: Any, y: Any) -> Any:
    return [g if g is None else g.array for g in grads_of([y], [m.l.W, m.m.b])]


def grad_of_stored_between(m: Any, v: Any, y: Any) -> Any:
    return [g.array for g in grads_of([F.sum(m.parts[1])], [m.h])]


def grad_twice(m: Any, v: Any, y: Any) -> Any:
    first = grads_of([y], [m.h], retain_grad=True)
    return [g.array for g in (*first, *grads_of([y], [m.h]))]


def second_order(m: Any, v: Any, y: Any) -> Any:
    g, = grads_of([y], [v], enable_double_backprop=True)
    F.sum(g ** 2).backward()


def second_order_of_stored(m: Any, v: Any, y: Any) -> Any:
    g, = grads_of([y], [m.h], enable_double_backprop=True)
    F.sum(g ** 2).backward()


def second_order_by_backward(m: Any, v: Any, y: Any) -> Any:
    y.backward(enable_double_backprop=True)
    g = v.grad_var
    m.cleargrads()
    v.cleargrad()
    F.sum(F.tanh(g)).backward()


def third_order(m: Any, v: Any, y: Any) -> Any:
    g, = grads_of([y], [v], enable_double_backprop=True)
    h, = grads_of([F.sum(g ** 2)], [v], enable_double_backprop=True)
    F.sum(h ** 2).backward()


def retained(m: Any, v: Any, y: Any) -> Any:
    y.backward(retain_grad=True)
    return m.h.grad, m.parts[1].grad


def twice(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    y.backward()


def accumulated(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    F.sum(m.parts[1]).backward()
    y.backward()


def scaled_loss(m: Any, v: Any, y: Any) -> Any:
    y.backward(loss_scale=4.0)


def with_a_gradient_set(m: Any, v: Any, y: Any) -> Any:
    y.grad = np.array(3, "f")
    y.backward()


def stored_with_a_gradient_set(m: Any, v: Any, y: Any) -> Any:
    m.h.grad = np.full((3, 4), 2, "f")
    m.h.backward()
    y.backward()


def parameters_changed(m: Any, v: Any, y: Any) -> Any:
    m.l.W.array *= 1.5
    m.m.W.array = m.m.W.array + 0.5
    y.backward()


def arguments_changed(m: Any, v: Any, y: Any) -> Any:
    v.array += 1
    y.backward()


def arguments_replaced(m: Any, v: Any, y: Any) -> Any:
    v.array = v.array * 2
    y.backward()


def stored_changed(m: Any, v: Any, y: Any) -> Any:
    m.h.array[...] *= 0.5
    y.backward()


def frozen(m: Any, v: Any, y: Any) -> Any:
    m.m.disable_update()
    y.backward()
    m.m.enable_update()


def cleared_between(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    m.l.cleargrads()
    F.sum(m.h).backward()


def without_backprop(m: Any, v: Any, y: Any) -> Any:
    with kusari.no_backprop_mode():
        z = y * 2
    y.backward()
    return z.array


def of_earlier_calls(m: Any, v: Any, y: Any) -> Any:
    last, m.last = getattr(m, "last", None), m.h
    (y if last is None else y + F.sum(last)).backward()


def stored_of_an_earlier_call(m: Any, v: Any, y: Any) -> Any:
    """Its graph is that of the call before."""
    earlier, m.earlier = getattr(m, "earlier", None), y
    if earlier is not None:
        earlier.backward()


def called_again(m: Any, v: Any, y: Any) -> Any:
    z = m(v * 2)
    (y * z).backward()


def called_on_its_result(m: Any, v: Any, y: Any) -> Any:
    m(m.h).backward()


def grad_as_variables(m: Any, v: Any, y: Any) -> Any:
    return kusari.grad([y], [v, m.l.W, m.m.b])


def unchained_argument(m: Any, v: Any, y: Any) -> Any:
    v.unchain()
    y.backward()


def creators(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    return m.h.creator is None, y.creator is None, y.label


def ranks(m: Any, v: Any, y: Any) -> Any:
    y.backward()
    return y.rank, m.h.rank, v.rank


def walked(m: Any, v: Any, y: Any) -> Any:
    """The graph as it is seen from outside, up to the argument."""
    found, todo = set(), [y.creator_node]
    while todo:
        node = todo.pop()
        if node is not None:
            found |= {id(i) for i in node.inputs}
            todo += [i.creator_node for i in node.inputs]
    y.backward()
    return id(v.node) in found, id(m.l.W.node) in found


AFTERWARDS = [
    plain, stored_is_cut, stored_is_cut_backward, part_is_cut, result_is_cut, stored_first, stored_last, only_stored,
    both_at_once, grad_of_stored, grad_of_two_stored, grad_to_the_argument, grad_to_parameters, grad_of_stored_between,
    grad_twice, second_order, second_order_of_stored, second_order_by_backward, third_order, retained, twice,
    accumulated, scaled_loss, with_a_gradient_set, stored_with_a_gradient_set, parameters_changed, arguments_changed,
    arguments_replaced, stored_changed, frozen, cleared_between, without_backprop, of_earlier_calls,
    stored_of_an_earlier_call, called_again, called_on_its_result, unchained_argument, grad_as_variables,
    creators, ranks, walked,
]


@pytest.mark.parametrize("afterwards", AFTERWARDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("how", ["always", "later", "parameters changed", "after a step", "train is False"])
def test_afterwards(how: str, afterwards: Callable[[Any, Any, Any], Any]) -> None:
    """In every call; only from the fifth on, when it is compiled for what is usual; when the parameters are others."""
    def program(decorate: Any) -> Any:
        class Decorated(Storing):
            forward = decorate(Storing.body)

            def loss(self, v: Any) -> Any:
                self.y = self.forward(v)
                return self.y

        model = Decorated()
        model.y = None
        if how == "after a step":
            Decorated.loss = decorate(Decorated.loss)
        optimizer = kusari.optimizers.SGD(0.01).setup(model)

        def call(i: int, x: Any) -> Any:
            v = Variable(x)
            if i % 2 == 0:
                model.cleargrads()
            if how == "after a step":
                optimizer.update(model.loss, v)
                y = model.y
            else:
                with kusari.using_config("train", how != "train is False"):
                    y = model(v)
            if how == "parameters changed":
                for p in model.params():
                    p.array *= 0.9
            result = (plain if how == "later" and i < 4 else afterwards)(model, v, y)
            return y.array, model.h.array, result, gradients(model, v), [p.array.copy() for p in model.params()]
        return call

    check(program, tolerance=1e-4)


def inside(body: Callable[[Any, Any], Any]) -> Any:
    """Return a program whose function does things with graphs itself."""
    def program(decorate: Any) -> Any:
        class Decorated(Storing):
            forward = decorate(lambda self, v: body(self, v))

        model = Decorated()

        def call(i: int, x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            y = model(v)
            F.sum(F.tanh(y)).backward()
            return y, gradients(model, v), model.h
        return call
    return program


def cut_inside(s: Any, v: Any) -> Any:
    h = F.tanh(s.l(v))
    h.unchain()
    return s.m(h)


def cut_backward_inside(s: Any, v: Any) -> Any:
    h = F.tanh(s.l(v))
    y = s.m(h)
    h.unchain_backward()
    return y


def stored_and_cut(s: Any, v: Any) -> Any:
    """As truncated backpropagation does it: the state goes on, its graph does not."""
    s.h = F.tanh(s.l(v)) if s.h is None else F.tanh(s.l(v) + s.h)
    y = s.m(s.h)
    s.h.unchain_backward()
    return y


def the_argument(s: Any, v: Any) -> Any:
    return v


def array_of(s: Any, v: Any) -> Any:
    return s.m(F.tanh(s.l(v)).array)


def wrapped_again(s: Any, v: Any) -> Any:
    return s.m(Variable(F.tanh(s.l(v)).array)) + s.l(v)


def no_backprop_inside(s: Any, v: Any) -> Any:
    with kusari.no_backprop_mode():
        h = F.tanh(s.l(v))
    return s.m(h) + s.l(v)


def forced_inside(s: Any, v: Any) -> Any:
    with kusari.no_backprop_mode(), kusari.force_backprop_mode():
        return s.m(F.tanh(s.l(v)))


def penalty(s: Any, v: Any) -> Any:
    y = F.sum(F.tanh(s.l(v)) ** 2)
    g, = grads_of([y], [v], enable_double_backprop=True)
    return y + F.sum(g ** 2)


def backward_inside(s: Any, v: Any) -> Any:
    y = F.sum(F.tanh(s.l(v)) ** 2)
    y.backward()
    return y * 1.0


def requires_no_gradient(s: Any, v: Any) -> Any:
    return s.m(Variable(F.tanh(s.l(v)).array, requires_grad=False)) + s.l(v)


def forgotten(s: Any, v: Any) -> Any:
    return F.forget(lambda h: F.tanh(s.m(h)), s.l(v))


def retained_inside(s: Any, v: Any) -> Any:
    s.h = F.tanh(s.l(v))
    s.h.retain_data()
    return s.m(s.h)


def gradient_of_an_argument(s: Any, v: Any) -> Any:
    return F.tanh(s.l(v)) if v.grad is None else F.relu(s.l(v))


def a_parameter_scaled(s: Any, v: Any) -> Any:
    return F.linear(v, s.l.W * 2, s.l.b) + F.sum(s.m.W ** 2)


def one_parameter_twice(s: Any, v: Any) -> Any:
    return s.l(F.tanh(s.l(v))) + F.matmul(v, s.l.W)


def max_with_ties(s: Any, v: Any) -> Any:
    h = F.fix(s.l(v) * 2) + s.m(v) * 0
    return F.max(h, axis=1)


INSIDE = [
    cut_inside, cut_backward_inside, stored_and_cut, array_of, wrapped_again, no_backprop_inside, forced_inside,
    penalty, backward_inside, requires_no_gradient, forgotten, retained_inside, gradient_of_an_argument,
    a_parameter_scaled, one_parameter_twice, max_with_ties, the_argument,
]


@pytest.mark.parametrize("body", INSIDE, ids=lambda f: f.__name__)
def test_inside(body: Callable[[Any, Any], Any]) -> None:
    check(inside(body), tolerance=1e-4)


@ROWS.replays
def an_argument_with_a_graph_of_its_own(decorate: Any) -> Any:
    model = build(decorate(lambda s, h: F.tanh(s.l(h)) * h))

    def call(i: int, x: Any) -> Any:
        model.cleargrads()
        v = Variable(x)
        h = F.relu(v) if i // 2 % 2 == 0 else v * 2
        if i == 5:
            h.unchain()
        F.sum(model(h)).backward(retain_grad=i == 6)
        return gradients(model, v, h)
    return call


@ROWS.replays
def gradients_of_a_parameter_as_argument(decorate: Any) -> Any:
    model = build(decorate(lambda s, p, x: F.tanh(s.l(x)) * F.sum(p ** 2)))
    p = Parameter(np.full(3, 0.5, "f"))

    def call(i: int, x: Any) -> Any:
        model.cleargrads()
        if i % 3 == 0:
            p.cleargrad()
        F.sum(model(p, x)).backward()
        p.array *= 0.9
        return gradients(model, p)
    return call


@ROWS.replays
def a_state_over_several_calls(decorate: Any) -> Any:
    class Decorated(Storing):
        @decorate
        def forward(self, x: Any) -> Any:
            h = self.l(x) if self.h is None else self.l(x) + self.m(self.h)
            self.h = F.tanh(h)
            return F.sum(self.h)

    model = Decorated()
    total: list[Any] = []

    def call(i: int, x: Any) -> Any:
        total.append(model(x))
        if i % 3 == 2:
            model.cleargrads()
            F.sum(F.stack(total)).backward()
            total.clear()
            model.h.unchain_backward()
        return gradients(model), model.h.array
    return call


@ROWS.replays
def gradients_of_all_calls_at_once(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(F.tanh(s.l(x)))))
    losses: list[Any] = []

    def call(i: int, x: Any) -> Any:
        losses.append(model(x))
        model.cleargrads()
        F.sum(F.stack(losses)).backward()
        return gradients(model)
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
