"""Functions of the user's that change what they are given: others read that memory, too."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()


class Doubles(kusari.FunctionNode):
    """Doubles its input in place and sums it."""

    def forward(self, inputs: Any) -> Any:
        inputs[0][...] *= 2
        return inputs[0].sum(axis=1),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return F.broadcast_to(F.expand_dims(gys[0], 1), self.inputs[0].shape),


class InPlace(kusari.FunctionNode):
    """Doubles its input in place and returns it."""

    def forward(self, inputs: Any) -> Any:
        inputs[0][...] *= 2
        return inputs[0],

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


class Put(kusari.Function):
    """Puts rows into a stack, as a thin stack does."""

    def forward(self, inputs: Any) -> Any:
        stack, at, rows = inputs
        stack[np.arange(len(at)), at] = rows
        return stack,

    def backward(self, inputs: Any, grads: Any) -> Any:
        _, at, _ = inputs
        g = grads[0].copy()
        taken = g[np.arange(len(at)), at]
        g[np.arange(len(at)), at] = 0
        return g, None, taken


def row(name: str, body: Any, expected: str | None = "falls back",
        pattern: str | None = "changes an array that it is given") -> None:
    def program(decorate: Any) -> Any:
        model = build(decorate(lambda self, x: body(self, x)))
        return lambda i, x: model(x)
    program.__name__ = name
    ROWS.add(program, expected, pattern)


def read_later(self: Any, x: Any) -> Any:
    h = self.l(x)
    y = Doubles().apply((h,))[0]
    return F.expand_dims(y, 1) + F.tanh(h)


def returned_and_read_later(self: Any, x: Any) -> Any:
    h = self.l(x)
    return InPlace().apply((h,))[0] + F.tanh(h)


def kept_for_a_gradient(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    a = h * h
    return InPlace().apply((h,))[0] + a


def the_output_alone(self: Any, x: Any) -> Any:
    return InPlace().apply((self.l(x) * 1,))[0]


def an_argument(self: Any, x: Any) -> Any:
    return F.expand_dims(Doubles().apply((x,))[0], 1) + self.l(x)


def a_constant(self: Any, x: Any) -> Any:
    return InPlace().apply((np.ones(4, "f"),))[0] * self.l(x)


def a_thin_stack(self: Any, x: Any) -> Any:
    stack: Any = Variable(np.zeros((len(x), 3, 4), "f"))
    for i in range(3):
        stack = Put()(stack, np.full(len(x), i), F.tanh(self.l(x) + i))
    return F.sum(stack, axis=1)


def a_copy(self: Any, x: Any) -> Any:
    h = self.l(x)
    return F.expand_dims(Doubles().apply((F.copy(h, -1),))[0], 1) + h


class Copies(InPlace):
    """Doubles a copy."""

    def forward(self, inputs: Any) -> Any:
        y = inputs[0].copy()
        y *= 2
        return y,


def a_copy_of_its_own(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    return Copies().apply((h,))[0] + h * h


for name, body in dict(read_later=read_later, returned_and_read_later=returned_and_read_later,
                       kept_for_a_gradient=kept_for_a_gradient, the_output_alone=the_output_alone,
                       an_argument=an_argument, a_constant=a_constant, a_thin_stack=a_thin_stack,
                       a_copy=a_copy).items():
    row(name, body)
row("a_copy_of_its_own", a_copy_of_its_own, "replays", None)


class Spoils(kusari.FunctionNode):
    """Its backward halves what it has retained."""

    output = False

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0,))
        if self.output:
            self.retain_outputs((0,))
        return inputs[0] * 3,

    def backward(self, indexes: Any, gys: Any) -> Any:
        kept, = self.get_retained_outputs() if self.output else self.get_retained_inputs()
        kept.array[...] *= 0.5
        return gys[0] * 3,


class SpoilsItsOutput(Spoils):
    """Its backward halves its output."""

    output = True


def a_backward_spoils_its_input(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    return Spoils().apply((h,))[0] + self.m(h) * h


def a_backward_spoils_its_output(self: Any, x: Any) -> Any:
    h = SpoilsItsOutput().apply((F.tanh(self.l(x)),))[0]
    return self.m(h) * h


for body in (a_backward_spoils_its_input, a_backward_spoils_its_output):
    row(body.__name__, body, "falls back", "changes an array that it has retained")


# -- in some calls only, not in the traced ones ------------------------------------------------------------------------


class Later(InPlace):
    """Doubles its input in place from one call on, and returns it, or another array."""

    def __init__(self, model: Any, returns: bool) -> None:
        self.model, self.returns = model, returns

    def forward(self, inputs: Any) -> Any:
        if self.model.i >= CHANGED:
            inputs[0][...] *= 2
        return inputs[0] if self.returns else inputs[0] + 1,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


def later(name: str, body: Any, whole: bool = False) -> None:
    def program(decorate: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = body(self, x)
            return F.sum(F.tanh(y)) if whole else y
        model = build(decorate(forward), i=0, n=0)
        optimizer = kusari.optimizers.SGD(0.1).setup(model)

        def call(i: int, x: Any) -> Any:
            model.i = i
            y = optimizer.update(model.forward, x) if whole else model(x)
            if whole:
                model.cleargrads()
                return y, x, model.n
            model.cleargrads()
            F.sum(y * y).backward()
            return y, [p.grad for p in model.params()], x, model.n
        return call
    program.__name__ = f"later_{name}{'_in_a_step' * whole}"
    ROWS.add(program, "falls back", "changes an array that it is given, in some calls")


def later_read_twice(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.n += 1
    return Later(self, False).apply((h,))[0] + h * h


def later_returned(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    return Later(self, True).apply((h,))[0] * F.tanh(h)


def later_an_argument(self: Any, x: Any) -> Any:
    return F.tanh(Later(self, False).apply((x,))[0]) * self.l(x)


def later_a_large_one(self: Any, x: Any) -> Any:
    h = F.broadcast_to(F.tanh(self.l(x)), (2000, 3, 4)) * 1
    return F.sum(Later(self, False).apply((h,))[0] + h, axis=0)


def later_after_draws(self: Any, x: Any) -> Any:
    h = F.dropout(self.l(x)) * np.random.rand()
    h = Later(self, False).apply((h,))[0] + h
    return F.dropout(h)


def later_in_a_chain(self: Any, x: Any) -> Any:
    h = self.l(x)
    for k in range(3):
        h = Later(self, k == 1).apply((h * 1,))[0] + F.tanh(h)
    return h


for body in (later_read_twice, later_returned, later_an_argument, later_a_large_one, later_after_draws,
             later_in_a_chain):
    for whole in (False, True):
        later(body.__name__.removeprefix("later_"), body, whole)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
