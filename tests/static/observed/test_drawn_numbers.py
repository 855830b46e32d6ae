"""Single numbers that a call draws: values of the schedule, drawn by each replay in the order of define-by-run."""
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from static.models import Model
from static.observed.harness import CHANGED, Rows, before, check, training

import kusari
import kusari.functions as F
from kusari import static_code

ROWS = Rows()
GENERATOR: Any = np.random.default_rng(1)


class Drawing(Model):
    def __init__(self) -> None:
        super().__init__()
        self.table = np.arange(20, dtype="f").reshape(5, 4)
        self.rng: Any = np.random.default_rng(4)
        self.old = np.random.RandomState(3)
        self.random: Any = random.Random(5)
        self.dice = 5

    def state(self) -> Any:
        return self.rng.bit_generator.state, self.old.get_state(), hash(self.random.getstate()), \
            GENERATOR.bit_generator.state, self.table.copy()


def drawing(decorate: Any, forward: Any) -> Any:
    global GENERATOR
    GENERATOR = np.random.default_rng(1)
    return type("Decorated", (Drawing,), {"forward": decorate(forward)})()


def seen(model: Any, change: Any = lambda i: None) -> Any:
    return before(lambda x: (model(x), model.state(), model), change)


DRAWS: dict[str, Any] = {
    "randint": lambda s: np.random.randint(3), "randint between": lambda s: np.random.randint(1, 3),
    "choice of numbers": lambda s: np.random.choice(3), "randrange": lambda s: random.randrange(3),
    "random's randint": lambda s: random.randint(0, 2), "integers": lambda s: s.rng.integers(3),
    "RandomState's randint": lambda s: s.old.randint(3), "Random's randrange": lambda s: s.random.randrange(3),
    "a global generator": lambda s: GENERATOR.integers(3), "int of random": lambda s: int(random.random() * 3),
    "int of rand": lambda s: int(np.random.rand() * 3), "binomial": lambda s: np.random.binomial(2, 0.5),
    "sum of two": lambda s: random.randrange(2) + s.rng.integers(2), "of an attribute": lambda s: random.randrange(
        s.dice) // 2}
USES: dict[str, Any] = {
    "a row": lambda s, h, x, i: h[i],
    "an element": lambda s, h, x, i: h * x[i, i], "a factor": lambda s, h, x, i: h * i,
    "a row of a table": lambda s, h, x, i: h + s.table[i], "a row of a weight": lambda s, h, x, i: h * s.m.W[i],
    "a part": lambda s, h, x, i: h[:, i:i + 2], "rows": lambda s, h, x, i: h[i:i + 1] + x[i:i + 1, None, ::2][0, 0, 0],
    "a part of an argument": lambda s, h, x, i: h[:, :2] * x[..., i:i + 2],
    "a power": lambda s, h, x, i: h * 0.5 ** i, "rolled": lambda s, h, x, i: h + np.roll(x, i, axis=1),
    "behind dropout": lambda s, h, x, i: F.dropout(h) * i, "the draw alone": lambda s, h, x, i: h,
    "returned": lambda s, h, x, i: (h, i, [i / 2]), "a branch": lambda s, h, x, i: F.relu(h) if i else h,
    "a shape": lambda s, h, x, i: h[:i + 1], "an item": lambda s, h, x, i: [h, h * 2, F.relu(h)][i],
    "a chosen function": lambda s, h, x, i: (F.relu, F.tanh, F.sin)[i](h), "a loop": lambda s, h, x, i: sum(
        [h] * (i + 1))}
DECIDING = ("a branch", "a shape", "an item", "a chosen function", "a loop")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("draw", DRAWS)
def test_drawn(draw: str, use: str) -> None:
    def program(decorate: Any) -> Any:
        return seen(drawing(decorate, lambda s, x: USES[use](s, s.l(x), x, DRAWS[draw](s))))
    check(program, None if use in DECIDING else "replays")


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("joined", [False, True])
def test_whole_steps(draw: str, joined: bool) -> None:
    def program(decorate: Any) -> Any:
        model = drawing(lambda f: f, lambda s, x: None)
        loss = decorate(lambda s, x: F.sum(F.dropout(s.l(x)) * DRAWS[draw](s)))
        return training(model, loss, kusari.optimizers.SGD(0.001), joined)
    check(program, "replays")


@pytest.mark.parametrize("draw", DRAWS)
def test_gradients_of_gradients(draw: str) -> None:
    def program(decorate: Any) -> Any:
        model = drawing(decorate, lambda s, x: F.sin(F.dropout(s.l(x)) * DRAWS[draw](s)) + F.dropout(x))

        def call(i: int, x: Any) -> Any:
            v = kusari.Variable(x)
            g, = kusari.grad([model(v)], [v], enable_double_backprop=True)
            model.cleargrads()
            F.sum(g * g).backward()
            return g.array, [None if p.grad is None else p.grad.copy() for p in model.params()], model.state()
        return call
    check(program, "replays")


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("options", [{"verify": 1}, {"memory": "low"}])
def test_options(draw: str, options: dict[str, Any]) -> None:
    def program(decorate: Any) -> Any:
        return seen(drawing(decorate, lambda s, x: F.tanh(s.l(x) * DRAWS[draw](s)) * DRAWS[draw](s)))
    check(program, "replays", **options)


@pytest.mark.parametrize("draw", DRAWS)
def test_calls_that_go_on_define_by_run_draw_once(draw: str) -> None:
    """A number decides, and is another one in one call; what was drawn before it is drawn again, the same."""
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = F.dropout(s.l(x)) * DRAWS[draw](s)
            if float(np.abs(x).max()) > 100:
                h = h * 2
            return h * DRAWS[draw](s)
        model = drawing(decorate, forward)
        return lambda i, x: (model(x * 1000 if i in (5, 6) else x), model.state())
    check(program, "replays")


class Drawer(kusari.FunctionNode):
    """Draws from the generators of a model, and raises in some calls."""

    def __init__(self, model: Any, number: int) -> None:
        super().__init__()
        self.model, self.number = model, number

    def forward(self, inputs: Any) -> Any:
        factor = self.model.rng.random() + random.random() + np.random.rand()
        if np.abs(inputs[0]).max() > 100 and self.number:
            raise ValueError("too large")
        return inputs[0] * np.float32(factor),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("number", [0, 1])
def test_functions_of_the_users_draw_in_between(draw: str, number: int) -> None:
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = s.l(x) * DRAWS[draw](s)
            h, = Drawer(s, 0).apply((h * DRAWS[draw](s),))
            h, = Drawer(s, number).apply((x * DRAWS[draw](s),))
            if float(np.abs(x).max()) > 100:
                h = h * 2
            return h * DRAWS[draw](s)
        model = drawing(decorate, forward)

        def call(i: int, x: Any) -> Any:
            try:
                return model(x * 1000 if i in (5, 6) else x), model.state()
            except ValueError as error:
                return error, model.state()
        return call
    check(program)


@ROWS.replays
def generators_seeded_between_calls(decorate: Any) -> Any:
    model = drawing(decorate, lambda s, x: s.l(x) * s.old.randint(9) * random.randrange(9) * np.random.randint(9))
    return seen(model, lambda i: (model.old.seed(i), random.seed(i), np.random.seed(i // 2)))


@ROWS.falls_back("takes a number out")
def a_draw_that_decides(decorate: Any) -> Any:
    model = drawing(decorate, lambda s, x: [F.tanh(s.l(x)), s.l(x)][s.rng.integers(2)])
    return lambda i, x: ([model(x) for _ in range(6)], model.state())


@ROWS.replays
def another_generator(decorate: Any) -> Any:
    model = drawing(decorate, lambda s, x: s.l(x) * s.rng.integers(9))
    return seen(model, lambda i: setattr(model, "rng", np.random.default_rng(7)) if i == CHANGED else None)


@ROWS.replays
def arrays_of_other_generators(decorate: Any) -> Any:
    return seen(drawing(decorate, lambda s, x: s.l(x) + s.rng.normal(size=x.shape).astype("f") * s.old.rand(4)[None]))


@ROWS.falls_back("random numbers are drawn")
def drawn_into_an_array(decorate: Any) -> Any:
    return seen(drawing(decorate, lambda s, x: (s.rng.random(out=np.zeros(3)), s.l(x))[1]))


@ROWS.falls_back("random numbers are drawn")
def shuffled_in_place(decorate: Any) -> Any:
    return seen(drawing(decorate, lambda s, x: (s.rng.shuffle(s.table), s.l(x))[1]))


@ROWS.falls_back("random numbers are drawn")
def of_a_class_of_ones_own(decorate: Any) -> Any:
    class Own(random.Random):
        def random(self) -> float:
            return 0.5 * super().random()
    model = drawing(decorate, lambda s, x: s.l(x) * s.random.uniform(0, 1))
    model.random = Own(3)
    return seen(model)


@ROWS.replays
def given_to_code_that_replays_run(decorate: Any) -> Any:
    @static_code
    def doubled(i: Any) -> Any:
        return np.full((3, 4), 2 * i, "f")
    return seen(drawing(decorate, lambda s, x: s.l(x) + doubled(random.randrange(4))))


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    ROWS.check(name)


def test_the_first_step_after_loading_draws_once() -> None:
    """It is made twice, so that it rounds as compiled code does."""
    def run(decorate: Any) -> Any:
        np.random.seed(0)
        random.seed(1)
        model = drawing(decorate, lambda s, x: F.sum(s.l(x)) * (random.random() + s.rng.random() + s.old.rand()))
        optimizer = kusari.optimizers.SGD(0.01).setup(model)
        saved = kusari.serializers.DictionarySerializer()
        optimizer.update(model, np.ones((3, 4), "f"))
        optimizer.serialize(saved)
        optimizer.serialize(kusari.serializers.NpzDeserializer(saved.target))
        optimizer.update(model, np.ones((3, 4), "f"))
        return random.getstate(), model.rng.bit_generator.state, model.old.get_state()[2], [
            p.array.copy() for p in model.params()]
    plain, static = run(lambda f: f), run(kusari.static_graph)
    assert plain[:3] == static[:3]
    for a, b in zip(plain[3], static[3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
