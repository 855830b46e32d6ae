"""Python that replays run as it is: the user's own functions, static_code, report; and whole steps around them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.hazards import xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Function, FunctionNode, Variable, optimizers

# -- the user's own functions ------------------------------------------------------------------------------------------

class Masked(FunctionNode):
    """Keeps its mask, which it draws, on itself."""

    def forward(self, inputs: Any) -> Any:
        x, = inputs
        self.mask = (np.random.rand(*x.shape) < 0.5).astype(x.dtype)
        return x * self.mask,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * self.mask,


class Reversed(FunctionNode):
    """Gives back its input itself, with a gradient of its own."""

    def forward(self, inputs: Any) -> Any:
        return inputs

    def backward(self, indexes: Any, gys: Any) -> Any:
        return tuple(-g for g in gys)


class Retaining(FunctionNode):
    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        return np.exp(inputs[0]) * inputs[1], inputs[0] + inputs[1]

    def backward(self, indexes: Any, gys: Any) -> Any:
        x, = self.get_retained_inputs()
        y, = self.get_retained_outputs()
        first, second = gys
        gx = None if first is None else first * y
        gw = None if first is None else first * F.exp(x)
        if second is not None:
            gx = second if gx is None else gx + second
            gw = second if gw is None else gw + second
        return tuple([(gx, gw)[i] for i in indexes])


class OldStyle(Function):
    def __init__(self, k: float) -> None:
        self.k = k

    def forward(self, inputs: Any) -> Any:
        x, = inputs
        self.noise = np.random.randn(*x.shape).astype(x.dtype)
        return x * self.k + self.noise,

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * self.k * self.noise * inputs[0],


class NoGradient(FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return np.sign(inputs[0]),


class InPlace(FunctionNode):
    """Changes the array it is given."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] + 1, inputs[0]

    def backward(self, indexes: Any, gys: Any) -> Any:
        return sum([g for g in gys if g is not None][1:], next(g for g in gys if g is not None)),


class Counting(FunctionNode):
    """Counts its applications outside."""

    calls = 0

    def forward(self, inputs: Any) -> Any:
        type(self).calls += 1
        return inputs[0] * self.calls,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


FUNCTIONS = {
    "masked": lambda h: Masked().apply((h,))[0],
    "masked-twice": lambda h: Masked().apply((Masked().apply((h,))[0],))[0],
    "reversed": lambda h: Reversed().apply((h,))[0],
    "reversed-and-plain": lambda h: Reversed().apply((h,))[0] * 2 + h * 3,
    "plain-and-reversed": lambda h: h * 3 * Reversed().apply((h,))[0] + F.tanh(h),
    "both-outputs": lambda h: (lambda a, b: a + b)(*Retaining().apply((h, F.tanh(h)))),
    "first-output": lambda h: Retaining().apply((h, F.tanh(h)))[0],
    "second-output": lambda h: Retaining().apply((h, F.tanh(h)))[1],
    "old-style": lambda h: OldStyle(0.5)(h),
    "no-gradient": lambda h: h * NoGradient().apply((h,))[0],
    "gives-input": lambda h: (lambda a, b: a * b)(*InPlace().apply((h,))),
    "counting": lambda h: Counting().apply((h,))[0],
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["on-argument", "on-value"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_user_functions(both: Any, name: str, first: bool, train: bool) -> None:
    def make(decorate: Any) -> Any:
        Counting.calls = 0

        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(4, 4)

            @decorate
            def forward(self, x: Any) -> Any:
                h = x if first else self.l(x)
                return F.sum(self.l(FUNCTIONS[name](h)) ** 2)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            with kusari.using_config("train", train):
                y = model(v)
                z = model(v * 2)
            (y + z).backward()
            return y, z, v.grad, [p.grad for p in model.params()]
        return call

    both(make, xs(), rtol=1e-4, atol=1e-4)


def test_user_functions_with_attributes_from_arguments(both: Any) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, k: float) -> Any:
            return F.relu(OldStyle(k)(x))

        def call(item: Any) -> Any:
            k, x = item
            v = Variable(x)
            y = f(v, k)
            F.sum(y).backward()
            return y, v.grad
        return call

    both(make, list(zip([1.0, 1.0, 2.0, 2.0, 1.0, 3.0], xs(6), strict=True)))


def test_errors_of_user_functions_reach_the_caller(both: Any) -> None:
    class Picky(FunctionNode):
        def forward(self, inputs: Any) -> Any:
            if inputs[0][0, 0] < 0:
                raise ValueError("negative")
            return inputs[0] * 2,

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any) -> Any:
            return F.tanh(Picky().apply((F.tanh(x),))[0])

        def call(x: Any) -> Any:
            try:
                return f(x)
            except ValueError as error:
                return str(error)
        return call

    both(make, xs(10))


# -- static_code and report --------------------------------------------------------------------------------------------

def test_static_code(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(4, 4)
                self.calls = 0
                self.log: list[float] = []
                self.buffer = np.zeros((3, 4), "f")

            @kusari.static_code
            def observe(self, x: Any, factor: float = 1.0) -> None:
                self.calls += 1
                self.log.append(float(x.array.sum()) * factor)

            @kusari.static_code
            def fill(self, inputs: Any, outputs: Any) -> None:
                outputs[0][...] = np.abs(inputs[0].array) + self.calls

            @kusari.static_code
            def made(self, x: Any) -> Any:
                return x.array * self.calls, np.random.rand(3, 4).astype("f")

            @decorate
            def forward(self, x: Any) -> Any:
                h = self.l(x)
                self.observe(h)
                self.fill(inputs=[h], outputs=[self.buffer])
                h = F.relu(h) * self.buffer
                a, b = self.made(h)
                self.observe(h, factor=2.0)
                return F.sum(h * a + b)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            y = model(x)
            y.backward()
            return y, model.calls, model.log[-2:], model.buffer, [p.grad for p in model.params()]
        return call

    both(make, xs(6), rtol=1e-4, atol=1e-4)


def test_report(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(4, 4)

            @decorate
            def forward(self, x: Any, k: float) -> Any:
                h = self.l(x)
                kusari.report({"mean": F.mean(h), "k": k}, self.l)
                kusari.report({"sum": F.sum(F.dropout(h))}, self)
                return F.sum(h)

        model = Decorated()
        reporter = kusari.Reporter()
        reporter.add_observer("main", model)
        reporter.add_observers("main", model.namedlinks(skipself=True))

        def call(item: Any) -> Any:
            k, x = item
            observation: dict[str, Any] = {}
            with reporter.scope(observation):
                y = model(x, k)
            return y, observation
        return call

    both(make, list(zip([1.0, 1.0, 2.0, 2.0, 1.0], xs(), strict=True)), rtol=1e-4)


# -- whole steps -------------------------------------------------------------------------------------------------------

class StepModel(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 8)
            self.m = L.Linear(8, 1)
        self.alpha = 1.0
        self.scales = [1.0]
        self.kept: Any = None


FACTOR = 1.0


def _set_factor(value: float) -> None:
    global FACTOR
    FACTOR = value


STEPS: dict[str, tuple[Any, Any]] = {
    "plain": (lambda s, h: F.sum(h ** 2), lambda s, v: None),
    "attribute": (lambda s, h: F.sum(h ** 2) * s.alpha, lambda s, v: setattr(s, "alpha", v)),
    "list": (lambda s, h: F.sum(h ** 2) * s.scales[0], lambda s, v: s.scales.__setitem__(0, v)),
    "global": (lambda s, h: F.sum(h ** 2) * FACTOR, lambda s, v: _set_factor(v)),
    "dropout": (lambda s, h: F.sum(F.dropout(h) ** 2), lambda s, v: None),
    "user-function": (lambda s, h: F.sum(Masked().apply((h,))[0] ** 2), lambda s, v: None),
    "reversed": (lambda s, h: F.sum(Reversed().apply((h,))[0] ** 2 + h), lambda s, v: None),
    "stored": (lambda s, h: (setattr(s, "unused", 1), _store(s, F.sum(h ** 2)))[1], lambda s, v: None),
    "detached": (lambda s, h: F.sum(h * _constant(h)), lambda s, v: None),
    "array-replaced": (lambda s, h: F.sum(h ** 2), lambda s, v: setattr(s.l.W, "array", s.l.W.array * 0.5)),
    "link-replaced": (lambda s, h: F.sum(h ** 2), lambda s, v: None),
    "hook": (lambda s, h: F.sum(h ** 2), lambda s, v: None),
}


def _store(model: Any, loss: Any) -> Any:
    model.kept = loss
    return loss


def _constant(h: Any) -> Any:
    with kusari.no_backprop_mode():
        return F.tanh(h)


@pytest.mark.parametrize("name", STEPS)
def test_steps(both: Any, name: str) -> None:
    body, change = STEPS[name]

    def make(decorate: Any) -> Any:
        _set_factor(1.0)

        class Decorated(StepModel):
            @decorate
            def loss(self, x: Any) -> Any:
                return body(self, self.m(F.tanh(self.l(x))))

        model = Decorated()
        optimizer = optimizers.MomentumSGD(0.01).setup(model)
        last = None

        def call(item: Any) -> Any:
            nonlocal last
            i, v, x = item
            if v != last:
                change(model, v)
                last = v
            if i == 4 and name == "hook":
                optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(0.1))
            if i == 6 and name == "hook":
                optimizer.remove_hook("WeightDecay")
                optimizer.hyperparam.lr = 0.002
            optimizer.update(model.loss, x)
            kept = None if model.kept is None or name != "stored" else model.kept.array
            return [(p.array.copy(), p.grad.copy()) for p in model.params()], kept, optimizer.t
        return call

    data = [(i, v, x) for i, (v, x) in enumerate(zip([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0], xs(10),
                                                     strict=True))]
    both(make, data, rtol=1e-3, atol=1e-4)


def test_steps_with_accumulated_and_preset_gradients(both: Any) -> None:
    """A step clears gradients first; calls in between may accumulate."""
    def make(decorate: Any) -> Any:
        class Decorated(StepModel):
            loss = decorate(lambda self, x: F.sum(self.m(F.tanh(self.l(x))) ** 2))

        model = Decorated()
        optimizer = optimizers.SGD(0.01).setup(model)

        def call(item: Any) -> Any:
            i, x = item
            if i % 3 == 1:
                model.loss(x).backward()
                model.loss(x * 2).backward()
            if i % 3 == 2:
                model.cleargrads()
                model.loss(x).backward()
                model.loss(x * 2).backward()
                optimizer.update()
            else:
                optimizer.update(model.loss, x)
            return [p.array.copy() for p in model.params()], [p.grad for p in model.params()]
        return call

    both(make, list(enumerate(xs(9))), rtol=1e-3, atol=1e-4)


def test_steps_that_fail_change_nothing(both: Any) -> None:
    class Fails(FunctionNode):
        def forward(self, inputs: Any) -> Any:
            if inputs[0][0, 0] > 0.9:
                raise ValueError("too large")
            return inputs[0] * 1,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0],

    def make(decorate: Any) -> Any:
        class Decorated(StepModel):
            loss = decorate(lambda self, x: F.sum(self.m(F.tanh(self.l(Fails().apply((x,))[0]))) ** 2))

        model = Decorated()
        optimizer = optimizers.Adam(0.01).setup(model)

        def call(x: Any) -> Any:
            error = None
            try:
                optimizer.update(model.loss, x)
            except ValueError as e:
                error = str(e)
            return error, [p.array.copy() for p in model.params()], optimizer.t
        return call

    both(make, xs(12), rtol=1e-3, atol=1e-4)


def test_backward_and_updates_inside_step_aside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(StepModel):
            @decorate
            def train(self, x: Any, optimizer: Any) -> Any:
                loss = F.sum(self.m(F.tanh(self.l(x))) ** 2)
                self.cleargrads()
                loss.backward()
                optimizer.update()
                return loss

        model = Decorated()
        optimizer = optimizers.SGD(0.01).setup(model)
        return lambda x: (model.train(x, optimizer), [p.array.copy() for p in model.params()])

    both(make, xs(), aside="cannot repeat")
