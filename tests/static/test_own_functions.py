"""Functions of the user's own: gradients that they do not give, and numbers that they draw, are define-by-run's."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Function, FunctionNode, Variable, optimizers

GENERATOR = np.random.RandomState(9)


def data(i: int, *shape: int) -> Any:
    return np.random.RandomState(i).randn(*shape).astype("f") * 0.5


class OneOfTwo(FunctionNode):
    """Gives its second input no gradient."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((1,))
        return inputs[0] * inputs[1],

    def backward(self, indexes: Any, gys: Any) -> Any:
        w, = self.get_retained_inputs()
        return tuple([gys[0] * w if i == 0 else None for i in indexes])


class OneOfTwoOld(Function):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] * inputs[1],

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * inputs[1], None


class Nothing(FunctionNode):
    """Has no gradient, but counts how often it is asked for one."""

    asked = 0

    def forward(self, inputs: Any) -> Any:
        return np.maximum(inputs[0], 0),

    def backward(self, indexes: Any, gys: Any) -> Any:
        Nothing.asked += 1
        return (None,) * len(indexes)


class WithoutBackward(FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return np.sign(inputs[0]) + inputs[0],


class Sometimes(FunctionNode):
    """Gives a gradient if its input is positive, in sum."""

    def forward(self, inputs: Any) -> Any:
        self.negative = inputs[0].sum() < 0
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return None if self.negative else gys[0] * 2,


class SometimesDrawing(FunctionNode):
    """Gives a gradient if that of its output is positive, in sum, and draws in any case."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        np.random.rand(3)
        return None if gys[0].array.sum() < 0 else gys[0] * 2,


class TwoOutputs(FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2, inputs[1] * 3

    def backward(self, indexes: Any, gys: Any) -> Any:
        return tuple([None if gys[i] is None else gys[i] * (2 + i) for i in indexes])


class Noise(FunctionNode):
    """Draws forward and backward, from NumPy's generator or one of its own."""

    def __init__(self, generator: Any = np.random) -> None:
        self.generator = generator

    def forward(self, inputs: Any) -> Any:
        self.noise = self.generator.normal(size=inputs[0].shape).astype("f")
        return inputs[0] * self.noise,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * self.noise * float(self.generator.normal()),


class NoiseOld(Function):
    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def forward(self, inputs: Any) -> Any:
        self.noise = self.generator.rand(*inputs[0].shape).astype("f")
        return inputs[0] * self.noise,

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * self.noise * self.generator.rand(1).astype("f"),


class Chance(FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] * np.float32(random.random()),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * random.random(),


class Seeded(Noise):
    """Makes its generator itself."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.RandomState(seed))


class Notes:
    def __init__(self) -> None:
        self.count = 0
        self.arrays: list[Any] = []


class Noting(FunctionNode):
    """Keeps what it sees in objects that its constructor makes."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.notes = Notes()

    def forward(self, inputs: Any) -> Any:
        self.seen.append(inputs[0] * 1)
        self.notes.count += 1
        self.notes.arrays.append(inputs[0] + 1)
        return inputs[0] * self.seen[0] * self.notes.count,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * self.seen[0] * self.notes.arrays[0] * len(self.seen),


class NotingOld(Function):
    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def forward(self, inputs: Any) -> Any:
        self.seen[str(len(self.seen))] = inputs[0] * 1
        return inputs[0] * len(self.seen),

    def backward(self, inputs: Any, gys: Any) -> Any:
        return gys[0] * self.seen["0"],


class Adding(FunctionNode):
    """Adds to gradients itself."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 3,

    def backward_accumulate(self, indexes: Any, gys: Any, gxs: Any) -> Any:
        return tuple([gys[0] * 3 if g is None else g + gys[0] * 3 for g in gxs])


class Wide(FunctionNode):
    """Its gradient has another dtype."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 3,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return Variable(gys[0].array.astype("d") * 3),


def then(f: Callable[[Any], Any], rest: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A body: a hidden value, stored, that is made by ``f``, and what follows."""
    def body(m: Any, x: Any) -> Any:
        m.h = f(m.l(x))
        return F.sum(rest(m, m.h))
    return body


def hidden(m: Any, x: Any) -> Any:
    m.h = F.tanh(m.l(x))
    return m.h


def network(m: Any, h: Any) -> Any:
    return m.m(h) * h


def two(m: Any, x: Any, both: bool) -> Any:
    m.h, other = TwoOutputs().apply((m.l(x), m.m(x)))
    return F.sum(m.h * m.s) + (F.sum(other * other) if both else 0)


def infinite(m: Any, x: Any) -> Any:
    """Zeros in place of no gradient would become NaN behind infinite numbers."""
    m.h = Nothing().apply((F.log(m.l(x) * 0),))[0]
    return F.sum(m.m(x)) + F.sum(m.h)


def sometimes_before_noise(m: Any, x: Any) -> Any:
    m.h = SometimesDrawing().apply((m.l(x) * m.s,))[0]
    return F.sum(Noise().apply((m.h * F.broadcast_to(x[:1, :1], (3, 4)),))[0])


def drawn(m: Any, x: Any) -> Any:
    m.h = F.dropout(m.l(x))
    return F.sum(F.dropout(Noise().apply((m.m(Noise().apply((m.h,))[0]),))[0] * m.h))


def own_generator(m: Any, x: Any) -> Any:
    m.h = Noise(m.generator).apply((m.l(x),))[0]
    return F.sum(Noise(m.generator).apply((m.m(F.dropout(m.h)),))[0] * m.h)


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "parameter": lambda m, x: F.sum(OneOfTwo().apply((hidden(m, x), m.s))[0] * 2),
    "hidden": lambda m, x: F.sum(OneOfTwo().apply((x, hidden(m, x)))[0] * m.s),
    "both": lambda m, x: F.sum(OneOfTwo().apply((hidden(m, x), m.h))[0] * m.s),
    "some": lambda m, x: F.sum(OneOfTwo().apply((x, hidden(m, x)))[0] * m.s) + F.sum(m.h),
    "old": lambda m, x: F.sum(OneOfTwoOld()(hidden(m, x), m.s)),
    "nothing": then(lambda h: Nothing().apply((h,))[0], lambda m, h: h * m.s),
    "nothing at all": then(lambda h: Nothing().apply((h,))[0], lambda m, h: h),
    "infinite": infinite,
    "without backward": then(lambda h: WithoutBackward().apply((h,))[0], lambda m, h: h * h),
    "sometimes": then(lambda h: Sometimes().apply((h,))[0], network),
    "sometimes, noise": sometimes_before_noise,
    "one output": lambda m, x: two(m, x, False),
    "both outputs": lambda m, x: two(m, x, True),
    "noise": drawn,
    "own generator": own_generator,
    "old generator": then(lambda h: NoiseOld(GENERATOR)(h), network),
    "random": then(lambda h: Chance().apply((h,))[0], network),
    "seeded": then(lambda h: Seeded(3).apply((h,))[0], lambda m, h: Seeded(4).apply((m.m(h),))[0] * h),
    "noting": then(lambda h: Noting().apply((h,))[0], network),
    "noting, old": then(lambda h: NotingOld()(h), network),
    "adding": then(lambda h: Adding().apply((h,))[0], network),
    "wide": then(lambda h: Wide().apply((F.cast(F.cast(h, "d"), "f"),))[0], network),
}


# -- how gradients are asked for ---------------------------------------------------------------------------------------

def backward(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    y.backward()
    return y


def step(m: Any, x: Any, optimizer: Any) -> Any:
    optimizer.update(m.call, x.array)


def step_of_variable(m: Any, x: Any, optimizer: Any) -> Any:
    optimizer.update(m.call, x)


def call_then_step(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    optimizer.update(m.call, x)
    return y


def grad(m: Any, x: Any, optimizer: Any) -> Any:
    return kusari.grad([m.call(x)], [x, m.s, m.l.W])


def grad_of_hidden(m: Any, x: Any, optimizer: Any) -> Any:
    return kusari.grad([m.call(x)], [m.h, x])


def retaining(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    y.backward(retain_grad=True)
    return y, m.h.grad


def twice(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    y.backward()
    y.backward(retain_grad=True)
    return m.h.grad


def gradient_penalty(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    g, = kusari.grad([y], [x], enable_double_backprop=True)
    (y if g is None else y + F.sum(g * g)).backward()
    return g


def cut(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    m.h.unchain_backward()
    y.backward()
    return m.h.grad


def two_in_flight(m: Any, x: Any, optimizer: Any) -> Any:
    y, z = m.call(x), m.call(Variable(x.array * -2))
    z.backward()
    y.backward()
    return y, z


def siblings(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    m.h.grad = np.ones_like(m.h.array)
    y.grad = np.array(2, "f")
    y.backward()
    m.h.backward()
    return y


def followed(m: Any, x: Any, optimizer: Any) -> Any:
    y = m.call(x)
    (y * y * F.sum(m.s)).backward(loss_scale=4.0)


ROWS: list[tuple[str, Any]] = [
    ("parameter", backward), ("parameter", grad), ("hidden", backward), ("hidden", two_in_flight),
    ("old", backward), ("old", two_in_flight),
    ("nothing", backward), ("nothing", grad), ("nothing", step_of_variable), ("nothing", siblings),
    ("nothing at all", backward), ("nothing at all", call_then_step), ("infinite", step), ("infinite", backward),
    ("without backward", backward), ("without backward", step_of_variable),
    ("sometimes", backward), ("sometimes", step_of_variable), ("sometimes", two_in_flight),
    ("sometimes, noise", backward), ("sometimes, noise", followed), ("one output", backward),
    ("own generator", retaining), ("own generator", grad_of_hidden), ("own generator", cut), ("own generator", twice),
    ("own generator", gradient_penalty), ("old generator", retaining),
    ("old generator", cut), ("random", gradient_penalty), ("random", cut), ("random", retaining),
    ("seeded", backward), ("seeded", gradient_penalty), ("seeded", two_in_flight), ("seeded", step),
    ("noting", backward), ("noting", two_in_flight), ("noting", step), ("noting, old", two_in_flight),
    ("adding", backward), ("adding", step), ("wide", backward), ("wide", two_in_flight),
]
RECOMPUTED: list[dict[str, Any]] = [{"memory": "low"}, {"memory": "balanced"}, {"memory": 0.3}]
VERIFIED: list[dict[str, Any]] = [{"verify": 1}, {"verify": 2}]
UNDER_OPTIONS: list[tuple[tuple[str, Any], dict[str, Any]]] = [
    *((row, options) for options in RECOMPUTED + VERIFIED for row in (
        ("own generator", gradient_penalty), ("old generator", retaining), ("seeded", two_in_flight),
        ("sometimes, noise", backward), ("parameter", backward))),
    *((row, options) for options in VERIFIED for row in (
        ("noise", twice), ("own generator", step), ("random", backward)))]


def name(row: Any) -> str:
    return f"{row[0]}-{row[1].__name__}"


def run(both: Any, row: Any, options: dict[str, Any], aside: str | None = None) -> None:
    body, ask = BODIES[row[0]], row[1]

    def make(decorate: Any) -> Callable[[int], Any]:
        class Model(kusari.Chain):
            call = (kusari.static_graph(**options) if decorate is kusari.static_graph else decorate)(
                lambda self, x: body(self, x))

            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(4, 4, initialW=data(1, 4, 4), initial_bias=data(2, 4))
                    self.m = L.Linear(4, 4, initialW=data(3, 4, 4))
                    self.s = kusari.Parameter(data(4, 3, 4))
                self.h: Any = None
                self.generator = np.random.default_rng(4)

        GENERATOR.seed(9)
        Nothing.asked = 0
        model = Model()
        optimizer = optimizers.Adam(0.05).setup(model)

        def call(i: int) -> Any:
            np.random.seed(i)
            model.cleargrads()
            x = Variable(data(200 + i, 3, 4))
            with np.errstate(divide="ignore"):
                found = ask(model, x, optimizer)
            return (found, model.h, x.grad, [(n, p.grad, p.array) for n, p in sorted(model.namedparams())],
                    Nothing.asked, random.getstate()[1][-1], str(model.generator.bit_generator.state["state"]),
                    GENERATOR.get_state()[2])
        return call
    both(make, range(6), aside=aside, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("row", ROWS, ids=map(name, ROWS))
def test_own_functions(both: Any, row: Any) -> None:
    run(both, row, {})


@pytest.mark.parametrize(("row", "options"), UNDER_OPTIONS, ids=[f"{name(row)}-{o}" for row, o in UNDER_OPTIONS])
def test_own_functions_under_options(both: Any, row: Any, options: dict[str, Any]) -> None:
    run(both, row, options)


def test_a_generator_that_only_the_call_holds_steps_aside(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions draw from it, in an order that nobody sees."""
    def body(m: Any, x: Any) -> Any:
        generator = np.random.RandomState(3)
        m.h = Noise(generator).apply((m.l(x),))[0]
        return F.sum(Noise(generator).apply((m.m(m.h),))[0] * m.h)
    monkeypatch.setitem(BODIES, "local", body)
    run(both, ("local", backward), {}, aside="a generator of random numbers in its attribute 'generator'")
