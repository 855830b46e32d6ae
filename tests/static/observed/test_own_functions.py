"""Functions of the user's own: without gradients, with generators, objects and results of their own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Storing, gradients
from static.observed.harness import check

import kusari
import kusari.functions as F
from kusari import FunctionNode, Variable


class Partial(FunctionNode):
    """Has no gradient for some of its inputs."""

    def __init__(self, without: tuple[int, ...]) -> None:
        self.without = without

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        return inputs[0] * inputs[1],

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = self.get_retained_inputs()
        found = grads[0] * b, grads[0] * a
        return tuple(None if i in self.without else found[i] for i in indexes)


class Drawing(FunctionNode):
    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.mask = self.generator.rand(*inputs[0].shape).astype("f")
        return inputs[0] * self.mask,

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads[0] * self.mask,


class DrawingBackward(FunctionNode):
    generator = np.random.RandomState(0)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0] * 2,

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads[0] * self.generator.rand(),


class Counting(FunctionNode):
    calls: list[str] = []

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls.append("forward")
        return inputs[0] * 2,

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls.append("backward")
        return grads[0] * 2,


class Scaled(FunctionNode):
    """Reads an object of the user's, forward and backward."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0] * np.float32(self.of.scale),

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads[0] * self.of.scale,


class Straight(FunctionNode):
    """Rounds, with a gradient as if it did not; of the old style in that it keeps what it needs."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.kept = inputs[0].copy()
        return np.round(inputs[0]),

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads[0] * (abs(self.kept) < 1),


class Two(FunctionNode):
    """Has two results, one of which nobody may use."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0] * 2, inputs[0] + 1

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = grads
        return sum((g * k for g, k in ((a, 2.0), (b, 1.0)) if g is not None), start=0.0) * 1.0,


class Old(kusari.Function):
    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.where = inputs[0] > 0
        return inputs[0] * self.where,

    def backward(self, inputs: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads[0] * self.where * 3,


class Recomputed(FunctionNode):
    """Computes again in backward, and gives parameters their gradients there."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0,))
        with kusari.no_backprop_mode():
            return self.of(Variable(inputs[0])).array,

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        x = Variable(self.get_retained_inputs()[0].array)
        with kusari.force_backprop_mode():
            y = self.of(x)
        y.grad = grads[0].array
        y.backward()
        return x.grad_var,


OWN: dict[str, Callable[[Any, Any], Any]] = {
    "no gradient for the first": lambda s, h: Partial((0,)).apply((h, s.m(h)))[0],
    "no gradient for the second": lambda s, h: Partial((1,)).apply((h, s.m(h)))[0],
    "no gradient at all": lambda s, h: Partial((0, 1)).apply((h, s.m(h)))[0] + h,
    "no gradient for a parameter": lambda s, h: Partial((1,)).apply((h, F.broadcast_to(s.m.b, h.shape)))[0],
    "a generator of its own": lambda s, h: Drawing(s.rs).apply((h,))[0],
    "a generator of NumPy's": lambda s, h: Drawing(np.random).apply((h,))[0],
    "a generator that is made": lambda s, h: Drawing(np.random.RandomState(1)).apply((h,))[0],
    "a generator in backward": lambda s, h: DrawingBackward().apply((h,))[0],
    "counted calls": lambda s, h: Counting().apply((h,))[0],
    "an object of the user's": lambda s, h: Scaled(s).apply((h,))[0],
    "kept arrays": lambda s, h: Straight().apply((h * 2,))[0],
    "one of two results": lambda s, h: Two().apply((h,))[0],
    "the other of two results": lambda s, h: Two().apply((h,))[1],
    "two results": lambda s, h: sum(Two().apply((h,))),
    "gradients of data": lambda s, h: Counting().apply((Variable(h.array),))[0] + h,
    "gradients for parameters": lambda s, h: Recomputed(s.m).apply((h,))[0],
    "gradients for parameters, of data": lambda s, h: Recomputed(s.m).apply((Variable(h.array),))[0] + h,
    "forgotten": lambda s, h: F.forget(lambda v: F.tanh(s.m(v)), h),
    "forgotten, of data": lambda s, h: F.forget(lambda v: F.tanh(s.m(v)), h.array) + h,
    "forgotten without gradients": lambda s, h: F.forget(s.m, Variable(h.array, requires_grad=False)) + h,
    "old style": lambda s, h: Old()(h),
    "kept instance": lambda s, h: Scaled(s.of).apply((h,))[0] + h,
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("how", ["result", "stored", "step"])
def test_functions_of_the_user(how: str, name: str) -> None:
    def program(decorate: Any) -> Any:
        DrawingBackward.generator = np.random.RandomState(1)
        Counting.calls = []

        class Decorated(Storing):
            rs: Any = None
            of: Any = None

            @decorate
            def forward(self, x: Any) -> Any:
                h = OWN[name](self, F.tanh(self.l(x)))
                if how == "stored":
                    self.h = h
                return F.sum(F.tanh(h) ** 2)

        model = Decorated()
        model.rs, model.of = np.random.RandomState(2), type("Of", (), {"scale": 1.0})()
        optimizer = kusari.optimizers.SGD(0.01).setup(model)

        def call(i: int, x: Any) -> Any:
            model.scale = model.of.scale = 1.0 + i // 3
            if how == "step":
                optimizer.update(model, x)
            else:
                model.cleargrads()
                y = model(x)
                (y if how == "result" else F.sum(model.h) + y).backward()
            return gradients(model), [p.array.copy() for p in model.params()], Counting.calls.copy(), \
                model.rs.get_state(), DrawingBackward.generator.get_state()
        return call

    check(program)
