"""Random numbers: every draw of define-by-run, in its order, and the generators' states afterwards."""
from __future__ import annotations

import random
import secrets
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Model, build
from static.observed.harness import Rows, before, check

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import initializers

ROWS = Rows()
GENERATOR: Any = np.random.RandomState(0)


class Noisy(Model):
    def __init__(self) -> None:
        super().__init__()
        self.rs = np.random.RandomState(3)
        self.generator = np.random.default_rng(4)
        self.random = random.Random(5)
        self.drop = with_ratio(F.dropout, 0.3)


def with_ratio(f: Any, ratio: float) -> Any:
    return lambda x: f(x, ratio=ratio)


def seeded(s: Any, h: Any) -> Any:
    np.random.seed(3)
    return F.dropout(h)


def state_put_back(s: Any, h: Any) -> Any:
    state = np.random.get_state()
    y = F.dropout(h)
    np.random.set_state(state)
    return y + F.dropout(h)


def tossed(s: Any, h: Any) -> Any:
    return F.tanh(h) if np.random.rand() < 0.5 else F.relu(h)


def shuffled(s: Any, h: Any) -> Any:
    order = [0, 1, 2]
    random.shuffle(order)
    return h[order]


def shuffled_in_place(s: Any, h: Any) -> Any:
    order = np.arange(3)
    np.random.shuffle(order)
    return h[order]


def until(s: Any, h: Any) -> Any:
    while random.random() < 0.5:
        h = F.tanh(h)
    return h


# Each: what a function of the model and a result draws. Functions of the library that draw must replay.
DRAWS: dict[str, tuple[str | None, Callable[[Any, Any], Any]]] = {
    "dropout": ("replays", lambda s, h: F.dropout(h)),
    "two dropouts": ("replays", lambda s, h: F.dropout(F.dropout(h, 0.2), 0.4)),
    "dropouts that are exchanged": ("replays", lambda s, h: (F.dropout(h, 0.2), F.dropout(h * 2, 0.4))[::-1][0]),
    "dropout that nobody uses": ("replays", lambda s, h: (F.dropout(h), h)[1]),
    "dropout in a loop": ("replays", lambda s, h: [h := F.dropout(h, 0.1) for _ in range(3)][-1]),
    "dropout in a helper": ("replays", lambda s, h: s.drop(h)),
    "dropout by its mask": (None, lambda s, h: F.dropout(h, 0.5, return_mask=True)[0]),
    "the mask itself": (None, lambda s, h: h * F.dropout(h, 0.5, return_mask=True)[1]),
    "dropout with a mask": (None, lambda s, h: F.dropout(h, 0.5, mask=np.ones((3, 4), "f"))),
    "gaussian": ("replays", lambda s, h: F.gaussian(h, h * 0)),
    "gaussian's noise": (None, lambda s, h: F.gaussian(h, h * 0, return_eps=True)[1] * h),
    "zoneout": ("replays", lambda s, h: F.zoneout(h, h * 2)),
    "gumbel": ("replays", lambda s, h: F.gumbel_softmax(h)),
    "randomized relu": ("replays", lambda s, h: F.rrelu(h)),
    "simplified dropconnect": (None, lambda s, h: F.simplified_dropconnect(h, s.m.W, s.m.b)),
    "rand": (None, lambda s, h: h * np.random.rand()),
    "randn": (None, lambda s, h: h * np.random.randn()),
    "two randn": (None, lambda s, h: h * np.random.randn() + np.random.randn()),
    "three normal": (None, lambda s, h: h * sum(np.random.normal() for _ in range(3))),
    "randn and dropout": (None, lambda s, h: F.dropout(h) * np.random.randn()),
    "standard_normal of an odd size": (None, lambda s, h: h + np.random.standard_normal(3).astype("f")[:, None]),
    "normal array": (None, lambda s, h: h + np.random.normal(size=h.shape).astype("f")),
    "uniform array": (None, lambda s, h: h * np.random.uniform(0, 1, h.shape).astype(h.dtype)),
    "mask": (None, lambda s, h: h * (np.random.rand(*h.shape) < 0.5)),
    "randint": (None, lambda s, h: h[np.random.randint(3)]),
    "permutation": (None, lambda s, h: h[np.random.permutation(3)]),
    "choice": (None, lambda s, h: h * float(np.random.choice([1.0, 2.0, 3.0]))),
    "gamma": (None, lambda s, h: h * np.random.gamma(2.0)),
    "binomial": (None, lambda s, h: h * np.random.binomial(5, 0.5)),
    "bytes": (None, lambda s, h: h * np.random.bytes(1)[0]),
    "a toss": (None, tossed),
    "seeded inside": (None, seeded),
    "seeded with an argument's number": (None, lambda s, h: (np.random.seed(len(h)), F.dropout(h))[1]),
    "state put back": (None, state_put_back),
    "state that is looked at": (None, lambda s, h: h * (int(tuple(np.random.get_state())[2]) % 5)),
    "RandomState of the model": (None, lambda s, h: h * s.rs.rand()),
    "randn of the model": (None, lambda s, h: h * s.rs.randn()),
    "array of the model's RandomState": (None, lambda s, h: h + s.rs.rand(3, 4).astype("f")),
    "default_rng of the model": (None, lambda s, h: h * s.generator.random()),
    "normal of default_rng": (None, lambda s, h: h + s.generator.normal(size=(3, 4)).astype("f")),
    "default_rng that is made": ("replays", lambda s, h: h * float(np.random.default_rng(0).random())),
    "RandomState that is made": ("replays", lambda s, h: h * float(np.random.RandomState(0).rand())),
    "global RandomState": (None, lambda s, h: h * GENERATOR.rand()),
    "method of a RandomState": (None, lambda s, h: h * s.__dict__["draw"]()),
    "random.random": (None, lambda s, h: h * random.random()),
    "random.gauss": (None, lambda s, h: h * random.gauss(0, 1)),
    "random.choice": (None, lambda s, h: random.choice([F.tanh, F.relu])(h)),
    "Random of the model": (None, lambda s, h: h * s.random.random()),
    "gauss of the model": (None, lambda s, h: h * s.random.gauss(0, 1)),
    "random.seed": (None, lambda s, h: (random.seed(1), h * random.random())[1]),
    "shuffled": (None, shuffled),
    "shuffled array": (None, shuffled_in_place),
    "a loop of tosses": (None, until),
    "an initializer": (None, lambda s, h: h + initializers.generate_array(initializers.Normal(), (4,), np, "f")),
    "a new link": (None, lambda s, h: L.Linear(4, 4)(h)),
    "a distribution": (None, lambda s, h: kusari.distributions.Normal(h, h * 0 + 1).sample()),
    "negative sampling": (None, lambda s, h: s.sample(h)),
    "secrets that do not matter": (None, lambda s, h: h * (1 + 0 * secrets.randbelow(5))),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("how", ["train", "test", "a number waits"])
def test_draws(how: str, name: str) -> None:
    """Of the two numbers that Box-Muller makes, the second may wait for the first call."""
    expected, body = DRAWS[name]
    train = how != "test"

    def program(decorate: Any) -> Any:
        global GENERATOR
        GENERATOR = np.random.RandomState(6)

        class Decorated(Noisy):
            @decorate
            def forward(self, x: Any) -> Any:
                return body(self, self.l(x))

            def sample(self, h: Any) -> Any:
                def sampler(shape: Any) -> Any:
                    return np.random.randint(0, 4, shape)
                return F.negative_sampling(h, np.zeros(3, "i"), self.m.W, sampler, 2)

        model = Decorated()
        model.__dict__["draw"] = model.rs.rand
        states = [model.rs, GENERATOR]
        if how == "a number waits":
            for g in (np.random, *states):
                g.randn()
            model.random.gauss(0, 1)
            random.gauss(0, 1)

        def call(i: int, x: Any) -> Any:
            if i % 3 == 2:
                np.random.randn()
                model.rs.randn()
            with kusari.using_config("train", train):
                y = model(x)
            F.sum(F.tanh(y)).backward()
            return y, model, [r.get_state() for r in states], model.generator.bit_generator.state, \
                model.random.getstate()
        return call

    check(program, expected if train else None)


@ROWS.replays
def dropout_that_is_switched(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.dropout(s.l(x), s.ratio)), ratio=0.5)

    def call(i: int, x: Any) -> Any:
        with kusari.using_config("train", i % 4 != 3):
            return model(x)
    return call


@ROWS.replays
def dropout_of_another_ratio(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.dropout(s.l(x), s.ratio)), ratio=0.5)
    return before(model, lambda i: setattr(model, "ratio", 0.1 + 0.2 * (i // 3)))


@ROWS.replays
def seeds_between_calls(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.dropout(s.l(x))))
    return before(model, lambda i: np.random.seed(i // 2))


@ROWS.replays
def a_number_that_waits(decorate: Any) -> Any:
    """Dropout leaves it alone."""
    static = decorate(lambda x: F.dropout(F.tanh(x)))
    return lambda i, x: (np.random.randn() if i % 2 else None, static(x), np.random.randn())


def generator(make: Callable[[], Any], draw: Callable[[Any], Any], outside: Callable[[Any], Any]) -> Any:
    """Return a program whose function is given a generator, in several ways."""
    def program(decorate: Any) -> Any:
        g = make()
        straight = decorate(lambda x, g: F.tanh(x) * draw(g))
        inside = decorate(lambda x, o: F.tanh(x) * draw(o["g"][0]))
        held = decorate(lambda x, o: F.tanh(x) * draw(o.g))
        named = decorate(lambda x, *, g=None: F.tanh(x) * draw(g))
        box = types.SimpleNamespace(g=g)
        return lambda i, x: (straight(x, g), inside(x, {"g": [g]}), held(x, box), named(x, g=g), outside(g))
    return program


GENERATORS: dict[str, Any] = {
    "RandomState": (lambda: np.random.RandomState(0), lambda g: g.rand(), lambda g: g.get_state()),
    "RandomState's normal": (lambda: np.random.RandomState(0), lambda g: g.randn(), lambda g: g.get_state()),
    "RandomState's array": (lambda: np.random.RandomState(0), lambda g: g.rand(3, 4).astype("f"),
                            lambda g: g.get_state()),
    "default_rng": (lambda: np.random.default_rng(0), lambda g: g.random(), lambda g: g.bit_generator.state),
    "default_rng's array": (lambda: np.random.default_rng(0), lambda g: g.random((3, 4), "f"),
                            lambda g: g.bit_generator.state),
    "Random": (lambda: random.Random(0), lambda g: g.random(), lambda g: g.getstate()),
    "Random's gauss": (lambda: random.Random(0), lambda g: g.gauss(0, 1), lambda g: g.getstate()),
    "a bound method": (lambda: np.random.RandomState(0).rand, lambda g: g(), lambda g: g()),
    "an iterator": (lambda: iter(range(1, 500)), lambda g: next(g), lambda g: next(g)),
    "a generator": (lambda: (k for k in range(1, 500)), lambda g: next(g), lambda g: next(g)),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_as_arguments(name: str) -> None:
    check(generator(*GENERATORS[name]))


@ROWS.replays
def the_global_generator_as_an_object(decorate: Any) -> Any:
    of = np.random.mtrand._rand
    static = decorate(lambda x: F.tanh(x) * of.rand() + F.dropout(x))
    return lambda i, x: static(x)


@ROWS.replays
def a_method_of_the_global_generator(decorate: Any) -> Any:
    draw = np.random.rand
    model = build(decorate(lambda s, x: s.l(x) * s.noise()), noise=draw)
    return lambda i, x: model(x)


@ROWS.replays
def a_global_generator_that_is_replaced(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * GENERATOR.rand())

    def change(i: int) -> None:
        global GENERATOR
        if i % 3 == 0:
            GENERATOR = np.random.RandomState(i)
    return before(static, change)


@ROWS.falls_back("are drawn from")
def a_subclass_of_a_generator(decorate: Any) -> Any:
    class Mine(random.Random):
        def random(self) -> float:
            return 0.25 + super().random() / 2

    mine = Mine(1)
    static = decorate(lambda x: F.tanh(x) * mine.uniform(1, 2))
    return lambda i, x: (static(x), mine.getstate())


@ROWS.replays
def a_class_that_draws(decorate: Any) -> Any:
    class Noise:
        def __init__(self) -> None:
            self.rs = np.random.RandomState(2)

        def __call__(self, h: Any) -> Any:
            return h + self.rs.randn(*h.shape).astype("f")

    model = build(decorate(lambda s, x: s.noise(s.l(x))), noise=Noise())
    return lambda i, x: model(x)


@ROWS.replays
def a_whole_step_that_draws(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(F.tanh(F.dropout(s.l(x)) * np.random.randn()))))
    optimizer = kusari.optimizers.SGD(0.01).setup(model)

    def call(i: int, x: Any) -> Any:
        optimizer.update(model, x)
        return model
    return call


@ROWS.replays
def a_whole_step_with_dropout(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(F.tanh(F.dropout(s.l(x))))))
    optimizer = kusari.optimizers.SGD(0.01).setup(model)

    def call(i: int, x: Any) -> Any:
        if i % 3 == 1:
            np.random.randn()
        optimizer.update(model, x)
        return model
    return call


@ROWS.replays
def a_recurrent_layer_with_dropout(decorate: Any) -> Any:
    class Decorated(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.rnn = L.NStepLSTM(1, 4, 4, 0.5)

        @decorate
        def forward(self, x: Any) -> Any:
            return F.dropout(self.rnn(None, None, [x, x * 2])[0][0])

    model = Decorated()
    return lambda i, x: model(x)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
