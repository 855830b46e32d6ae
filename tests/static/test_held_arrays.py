"""Arrays in attributes of the user's own functions: replays give them those of the call."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.hazards import xs

import kusari.functions as F
from kusari import Function, FunctionNode, Variable

OUTSIDE = np.full((3, 4), 2, "f")


@pytest.mark.parametrize("factor,aside", [
    (lambda x, m: m, None), (lambda x, m: m[:1] > 0, None), (lambda x, m: F.tanh(x).array, None),
    (lambda x, m: (F.tanh(x).array * 3)[:, ::-1], None), (lambda x, m: np.arange(4, dtype="f"), None),
    (lambda x, m: OUTSIDE, None)],
    ids=["argument", "of an argument", "computed", "a part", "constant", "outside"])
@pytest.mark.parametrize("old", (False, True), ids=["node", "old"])
def test_arrays_given_to_a_constructor(both: Any, old: bool, factor: Any, aside: str | None) -> None:
    class Old(Function):
        def __init__(self, factor: Any) -> None:
            self.factor = factor

        def forward(self, inputs: Any) -> Any:
            return inputs[0] * self.factor,

        def backward(self, inputs: Any, gys: Any) -> Any:
            return gys[0] * self.factor,

    class Times(FunctionNode):
        def __init__(self, factor: Any) -> None:
            self.factor = factor

        def forward(self, inputs: Any) -> Any:
            return inputs[0] * self.factor,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0] * self.factor,

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, m: Any) -> Any:
            held = factor(x, m)
            y = Old(held)(F.sin(x)) if old else Times(held).apply((F.sin(x),))[0]
            return F.tanh(y)

        def call(x: Any) -> Any:
            v = Variable(x)
            y = f(v, np.abs(x) - 1)
            F.sum(y).backward()
            return y, v.grad
        return call

    both(make, xs(), aside=aside)


@pytest.mark.parametrize("kept", (False, True))
def test_an_array_that_a_function_holds_changes_before_its_backward(both: Any, kept: bool) -> None:
    class Times(FunctionNode):
        def __init__(self, factor: Any) -> None:
            self.factor = factor

        def forward(self, inputs: Any) -> Any:
            return inputs[0] * self.factor,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0] * self.factor,

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, m: Any) -> Any:
            h = F.tanh(m)
            held = h.array if kept else h.array * 2
            return Times(held).apply((F.sin(x),))[0], h if kept else held

        def call(x: Any) -> Any:
            v = Variable(x)
            y, held = f(v, np.abs(x))
            (held.array if kept else held)[:] *= 3
            F.sum(y).backward()
            return y, v.grad
        return call

    both(make, xs())


@pytest.mark.parametrize("keep", (lambda f: f * 2, lambda f: f[::-1], lambda f: None), ids=["new", "view", "nothing"])
def test_a_forward_that_puts_another_array_into_its_attribute(both: Any, keep: Any) -> None:
    class Times(FunctionNode):
        def __init__(self, factor: Any) -> None:
            self.factor = factor

        def forward(self, inputs: Any) -> Any:
            y = inputs[0] * self.factor
            self.factor = keep(self.factor)
            return y,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0] * (3 if self.factor is None else self.factor),

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, m: Any) -> Any:
            return Times(m).apply((F.sin(x),))[0]

        def call(x: Any) -> Any:
            v = Variable(x)
            F.sum(f(v, np.abs(x))).backward()
            return v.grad
        return call

    both(make, xs())


def test_a_function_that_changes_an_array_it_holds_steps_aside(both: Any) -> None:
    class Counts(FunctionNode):
        def __init__(self, sums: Any) -> None:
            self.sums = sums

        def forward(self, inputs: Any) -> Any:
            self.sums += inputs[0]
            return inputs[0] * self.sums,

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, m: Any) -> Any:
            y = Counts(m).apply((x,))[0]
            return y + m

        return lambda x: f(x, np.abs(x))

    both(make, xs(), aside="an array in its attribute 'sums'")
