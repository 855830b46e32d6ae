"""Numbers in attributes, globals and dictionaries that change from call to call: values of the schedule, or guards."""
from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from static.models import Model, build
from static.observed.harness import Rows, before, check, late

import kusari
import kusari.functions as F
from kusari import static_code

ROWS = Rows()
STEP = 0


class Counting(Model):
    def __init__(self) -> None:
        super().__init__()
        self.t: Any = 0
        self.i: Any = 0
        self.scale: Any = 0.5
        self.average = np.zeros((3, 4), "f")
        self.buffer = np.zeros((3, 3, 4), "f")
        self.seen = {"n": 0}
        self.log: list[Any] = []

    def state(self) -> Any:
        return (self.t, self.i, self.scale, self.average.copy(), self.buffer.copy(), dict(self.seen), list(self.log))


class Pickled(Counting):
    """With a static method that pickles find again."""

    def forward(self, x: Any) -> Any:
        self.t += 1
        return self.l(x) * (0.9 ** self.t)


def counting(decorate: Any, forward: Any, **attributes: Any) -> Any:
    model = type("Decorated", (Counting,), {"forward": decorate(forward)})()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def seen(model: Any, change: Any = lambda i: None) -> Any:
    """Return calls of a model with what it keeps."""
    return before(lambda x: (model(x), model.state(), model), change)


def at(number: int, change: Any) -> Any:
    return lambda i: change() if i == number else None


# -- numbers that are followed ---------------------------------------------------------------------------------------


def _counted(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * (s.scale * 0.99 ** s.t)


def _counted_afterwards(s: Any, x: Any) -> Any:
    h = s.l(x) * (1 / (1 + s.t))
    s.t = s.t + 1
    return h


def _twice(s: Any, x: Any) -> Any:
    h = s.l(x)
    for _ in range(2):
        s.t += 1
        h = h * (1 + 0.1 * s.t)
    return h


def _ring(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.buffer[s.i] = h.array
    s.i = (s.i + 1) % len(s.buffer)
    return h + s.buffer.mean(axis=0)


def _ring_read(s: Any, x: Any) -> Any:
    h = s.l(x)
    old = s.buffer[s.i].copy()
    s.buffer[s.i] = h.array
    s.i = (s.i + 1) % 3
    return h + old


def _corrected(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.t += 1
    s.average = 0.9 * s.average + 0.1 * h.array
    return h - s.average / (1 - 0.9 ** s.t)


def _in_dictionary(s: Any, x: Any) -> Any:
    s.seen["n"] += 1
    return s.l(x) / s.seen["n"]


def _of_a_global(s: Any, x: Any) -> Any:
    global STEP
    STEP += 1
    return s.l(x) * (1.0 / STEP)


def _decayed(s: Any, x: Any) -> Any:
    s.scale *= 0.9
    return s.l(x) * s.scale


def _warmed_up(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * min(1.0, s.t / 4)


def _limited(s: Any, x: Any) -> Any:
    s.scale = max(0.1, min(0.6, s.scale * 1.01))
    return s.l(x) * s.scale


def _by_math(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) + math.sin(0.1 * s.t) + np.sqrt(s.t) + abs(-s.t) + pow(2, s.t)


def _returned(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * s.t, s.t, {"half": s.t / 2}


def _appended(s: Any, x: Any) -> Any:
    s.t += 1
    h = s.l(x) * (0.1 * s.t)
    s.log.append(s.t)
    return h


def _row_by_number(s: Any, x: Any) -> Any:
    h = s.l(x) * s.m.W[s.i] + x[s.i - 1]
    s.i = (s.i + 1) % 3
    return h


def _slice_by_number(s: Any, x: Any) -> Any:
    h = s.l(x)[:, s.i:s.i + 2] + x[s.i:s.i + 1, 1:3]
    s.i = (s.i + 1) % 3
    return h


def _stored_slice(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.average[:, s.i:s.i + 2] = h.array[:, 2:]
    s.i = (s.i + 1) % 3
    return h + s.average


FOLLOWED = {f.__name__: f for f in (
    _counted, _counted_afterwards, _twice, _ring, _ring_read, _corrected, _in_dictionary, _of_a_global, _decayed,
    _warmed_up, _limited, _by_math, _returned, _appended, _row_by_number, _slice_by_number, _stored_slice)}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str) -> None:
    check(lambda decorate: seen(counting(decorate, FOLLOWED[name])), "replays")


@pytest.mark.parametrize("name", FOLLOWED)
def test_set_back_from_outside(name: str) -> None:
    def program(decorate: Any) -> Any:
        model = counting(decorate, FOLLOWED[name])

        def set_back() -> None:
            global STEP
            STEP, model.t, model.i, model.scale, model.seen["n"] = 7, 0, 1, 0.25, 3
        return seen(model, at(6, set_back))
    check(program, "replays")


@ROWS.replays
def numbers_of_numpy(decorate: Any) -> Any:
    return seen(counting(decorate, _counted, t=np.int64(3), scale=np.float32(0.5)))


@ROWS.replays
def annealed_from_outside(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: s.l(x) * s.scale + s.t)
    return seen(model, lambda i: (setattr(model, "scale", 0.9 ** i), setattr(model, "t", i)))


@ROWS.replays
def set_by_the_dictionary_of_the_link(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    return seen(model, at(6, lambda: vars(model).update(t=20)))


@ROWS.replays
def one_counter_of_two_functions(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    other = decorate(lambda s, x: _counted(s, x + 1))
    return before(lambda x: (model(x), other(model, x), model(x), model.state()), lambda i: None)


@ROWS.replays
def counter_of_another_object(decorate: Any) -> Any:
    class Clock:
        now = 0

    clock = Clock()

    def forward(s: Any, x: Any) -> Any:
        clock.now += 1
        return s.l(x) * clock.now
    return late(counting(decorate, forward), lambda: setattr(clock, "now", -3), clock)


@ROWS.replays
def two_models(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    other = type(model)()
    return lambda i, x: [(m(x), m.state(), m) for m in ((model, other) if i % 2 else (other, model))]


@ROWS.replays
def copied_between_calls(decorate: Any) -> Any:
    models = [counting(decorate, _counted)]
    return lambda i, x: (i != 6 or models.append(copy.deepcopy(models[0])), [(m(x), m.state()) for m in models])


@ROWS.replays
def pickled_between_calls(decorate: Any) -> Any:
    own = Pickled.forward
    Pickled.forward = decorate(own)
    models: list[Any] = [Pickled()]

    def call(i: int, x: Any) -> Any:
        if i == 6:
            models.append(pickle.loads(pickle.dumps(models[0])))
        if i == 7:
            Pickled.forward = own
        return [(m(x), m.state()) for m in models]
    return call


@ROWS.replays
def of_a_number_that_becomes_another_type(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    return seen(model, lambda i: setattr(model, "t", {5: 5.0, 7: np.float32(2)}.get(i, model.t)))


@ROWS.replays
def backward_after_the_next_call(decorate: Any) -> Any:
    model, waiting = counting(decorate, _counted), []

    def call(i: int, x: Any) -> Any:
        waiting.append(F.sum(model(x) ** 2))
        model.cleargrads()
        if i > 1:
            waiting[i - 2].backward()
        return [None if p.grad is None else p.grad.copy() for p in model.params()], model.state()
    return call


@ROWS.replays
def gradient_of_a_gradient(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: F.tanh(_counted(s, x)))

    def call(i: int, x: Any) -> Any:
        v = kusari.Variable(x)
        g, = kusari.grad([model(v)], [v], enable_double_backprop=True)
        model.cleargrads()
        F.sum(g * g).backward()
        return g.array, [None if p.grad is None else p.grad.copy() for p in model.params()], model.state()
    return call


@ROWS.replays
def reported(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h = _counted(s, x)
        kusari.report({"t": s.t, "power": 0.9 ** s.t}, s)
        return h
    model = counting(decorate, forward)
    reporter = kusari.Reporter()
    reporter.add_observer("model", model)

    def call(i: int, x: Any) -> Any:
        with reporter.scope(found := {}):
            return model(x), found, model.state()
    return call


@ROWS.replays
def given_to_code_that_replays_run(decorate: Any) -> Any:
    @static_code
    def halved(t: Any) -> Any:
        return np.full((3, 4), t / 2, "f")
    return seen(counting(decorate, lambda s, x: s.l(x) + halved(s.t) * _counted(s, x)))


# -- numbers that code needs as such ---------------------------------------------------------------------------------


def _every_other(s: Any, x: Any) -> Any:
    s.t += 1
    return F.relu(s.l(x)) if s.t % 2 else s.l(x)


@ROWS.falls_back("changes in every call")
def a_branch(decorate: Any) -> Any:
    return seen(counting(decorate, _every_other))


@ROWS.falls_back("changes in every call")
def a_shape(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        s.t += 1
        return F.sum(F.broadcast_to(s.l(x), (s.t, 3, 4)), 0)
    return seen(counting(decorate, forward))


@ROWS.falls_back("changes in every call")
def an_argument_of_a_function(decorate: Any) -> Any:
    return seen(counting(decorate, lambda s, x: (_decayed(s, x), F.leaky_relu(s.l(x), s.scale))[1]))


@ROWS.falls_back("depend on values")
def rows_that_become_fewer(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        s.t += 1
        return F.sum(s.l(x)[s.t - 2:s.t + 1] if s.scale else x)
    return seen(counting(decorate, forward, t=0))


@ROWS.replays
def a_branch_that_is_taken_once(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        if not s.t:
            s.t = 1
            return s.l(x) * 2
        return s.l(x)
    return seen(counting(decorate, forward))


@ROWS.replays
def two_numbers_in_turn(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: s.l(x) if s.t else F.relu(s.l(x)) * s.scale)
    return seen(model, lambda i: setattr(model, "t", i % 2))


@pytest.mark.parametrize("use", [
    lambda s, h: [h, h * 2, h * 3][s.i], lambda s, h: [h, h * 2, h * 3][s.i:][0], lambda s, h: (h, h * 2)[s.i % 2],
    lambda s, h: sum([h * k for k in range(s.i + 1)]), lambda s, h: h * {0: 1.0, 1: 2.0, 2: 3.0}[s.i],
    lambda s, h: h * (0 < s.i < 2), lambda s, h: h * len("abc"[s.i:]), lambda s, h: h * float(f"{s.i}"),
    lambda s, h: h * float(str(s.i)), lambda s, h: h ** s.i, lambda s, h: h * len([1] * s.i),
    lambda s, h: h * (s.i in (1, 2)), lambda s, h: h * len({s.i, 1}), lambda s, h: h * [*range(s.i, 5)][0],
    lambda s, h: h * [n for n, _ in enumerate("ab", s.i)][0], lambda s, h: h * int(bool(s.i)),
    lambda s, h: h * s.i.bit_length(), lambda s, h: h * np.arange(s.i + 1)[-1], lambda s, h: h * np.zeros(3)[s.i],
    lambda s, h: h[:, [s.i, 0]], lambda s, h: F.reshape(h, (s.i % 2 + 1, -1)), lambda s, h: h * np.array([s.i, 2])[0],
    lambda s, h: h * round(s.i / 2), lambda s, h: h * int(s.i * 1.5), lambda s, h: h * (s.i // 2) * (s.i & 1),
    lambda s, h: h * (not s.i), lambda s, h: h * (3 if s.i > 1 else s.i), lambda s, h: h * max(s.i, 1),
    lambda s, h: h * divmod(s.i, 2)[0], lambda s, h: h * isinstance(s.i, int), lambda s, h: h * hash(s.i),
])
def test_any_use_of_an_integer_is_right(use: Any) -> None:
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = use(s, s.l(x))
            s.i = (s.i + 1) % 3
            return h
        return seen(counting(decorate, forward))
    check(program)


# -- what goes wrong -------------------------------------------------------------------------------------------------


@ROWS.replays
def large_integers(decorate: Any) -> Any:
    return seen(counting(decorate, lambda s, x: (setattr(s, "t", s.t + 1), s.l(x) * (s.t / 2 ** 62))[1],
                         t=2 ** 63 - 10 ** 6))


@ROWS.either
def integers_beyond_64_bits(decorate: Any) -> Any:
    return seen(counting(decorate, lambda s, x: (setattr(s, "t", s.t + 1), s.l(x) * (s.t / 2 ** 62))[1],
                         t=2 ** 63 - 5))


@ROWS.either
def results_beyond_64_bits(decorate: Any) -> Any:
    return seen(counting(decorate, lambda s, x: (setattr(s, "t", s.t * 2 ** 11 + 1), s.l(x) * (s.t % 7))[1]))


@ROWS.either
def an_integer_that_becomes_large_outside(decorate: Any) -> Any:
    model = counting(decorate, _counted_afterwards)
    return seen(model, at(6, lambda: setattr(model, "t", 2 ** 80)))


@ROWS.either
def a_division_by_zero(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: (setattr(s, "t", s.t + 1), s.l(x) * (1 / (s.t - 6)))[1])
    return seen(model)


@ROWS.either
def an_index_out_of_range(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: (s.l(x)[s.i], setattr(s, "i", s.i + 1))[0])

    def call(i: int, x: Any) -> Any:
        model.i = 0 if i == 6 else model.i
        try:
            return model(x), model.state()
        except IndexError as error:
            return type(error), model.state()
    return call


@ROWS.either
def a_store_out_of_range(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h = s.l(x)
        s.i += 1
        s.buffer[s.i] = h.array
        return h
    model = counting(decorate, forward, i=-4)
    return seen(model)


@ROWS.replays
def negative_indices(decorate: Any) -> Any:
    model = counting(decorate, lambda s, x: (s.l(x)[s.i] + s.buffer[s.i][0], setattr(s, "i", -1 - s.i))[0],
                     buffer=np.arange(36, dtype="f").reshape(3, 3, 4))
    return seen(model)


@ROWS.either
def deleted_and_put_back(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    return seen(model, lambda i: delattr(model, "t") if i == 5 else setattr(model, "t", 2) if i == 6 else None)


@ROWS.either
def none_for_a_call(decorate: Any) -> Any:
    model = counting(decorate, _counted)
    return seen(model, lambda i: setattr(model, "t", None if i == 5 else 2) if i in (5, 6) else None)


@ROWS.replays
def raised_on_the_way(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        s.t += 1
        h = s.l(x) * s.t
        if s.log:
            raise ValueError("the log is full")
        s.t += 1
        return h
    model = counting(decorate, forward)

    def call(i: int, x: Any) -> Any:
        model.log.extend([1] * (i == 5))
        try:
            return model(x), model.state()
        except ValueError as error:
            model.log.clear()
            return error, model.state()
    return call


class Picky(kusari.FunctionNode):
    """Raises, or changes the model's number, in some calls."""

    def __init__(self, model: Any, change: Any) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, inputs: Any) -> Any:
        self.change(self.model)
        return inputs[0] * np.float32(self.model.t),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


def _raises(model: Any) -> None:
    if len(model.log) == 5:
        raise ValueError("five")


def _counts(model: Any) -> None:
    model.t += 2


@pytest.mark.parametrize("change", [_raises, _counts, lambda model: None])
@pytest.mark.parametrize("order", ["before", "behind", "around"])
def test_functions_of_the_users_that_look_at_the_number(order: str, change: Any) -> None:
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = s.l(x) * (1 + s.t) if order != "behind" else s.l(x)
            h, = Picky(s, change).apply((h,))
            return h * (1 + s.t) if order != "before" else h
        model = counting(decorate, forward)

        def call(i: int, x: Any) -> Any:
            model.log = list(range(i))
            model.t += 1
            try:
                return model(x), model.state()
            except ValueError as error:
                return error, model.state()
        return call
    check(program)


@pytest.mark.parametrize("order", ["before", "behind", "around"])
def test_code_that_replays_run_and_changes_the_number(order: str) -> None:
    def program(decorate: Any) -> Any:
        @static_code
        def count(s: Any) -> None:
            s.t += 2

        def forward(s: Any, x: Any) -> Any:
            h = s.l(x) * (1 + s.t) if order != "behind" else s.l(x)
            count(s)
            return h * (1 + s.t) if order != "before" else h
        return seen(counting(decorate, forward))
    check(program)


# -- other ways to run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_counted", "_ring", "_ring_read", "_corrected", "_slice_by_number"])
@pytest.mark.parametrize("options", [{"verify": 1}, {"memory": "low"}, {"memory": "balanced"}])
def test_options(name: str, options: dict[str, Any]) -> None:
    def program(decorate: Any) -> Any:
        return seen(counting(decorate, FOLLOWED[name]))

    from static.observed.harness import Run, difference
    plain, static = Run(program, lambda f: f), Run(program, kusari.static_graph(**options))
    for a, b in zip(plain.calls, static.calls, strict=True):
        assert difference(a, b, 2e-5) is None
    assert static.replays and not static.aside


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("joined", [False, True])
def test_whole_steps(name: str, joined: bool) -> None:
    def program(decorate: Any) -> Any:
        def loss(s: Any, x: Any) -> Any:
            h = FOLLOWED[name](s, x)
            return F.sum((h[0] if isinstance(h, tuple) else h) ** 2)
        model = counting(lambda f: f, loss)
        type(model).loss = decorate(loss)
        optimizer = kusari.optimizers.MomentumSGD(0.001).setup(model)

        def loop(x: Any) -> Any:
            model.cleargrads()
            loss = model.loss(x)
            loss.backward()
            optimizer.update()
            return loss.array

        def call(i: int, x: Any) -> Any:
            return loop(x) if joined else optimizer.update(model.loss, x), model.state(), optimizer.t, [
                p.array.copy() for p in model.params()]
        return call
    check(program, "replays", tolerance=2e-4)


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    ROWS.check(name)


def test_a_number_is_compared_until_it_changes() -> None:
    model = build(kusari.static_graph(lambda s, x: s.l(x) * s.scale), scale=0.5)
    x = np.ones((3, 4), "f")
    kusari.config.keep_define_by_run = False
    static = type(model).forward.static
    for scale, retraces in ((0.5, 0), (0.5, 0), (0.25, 1), (0.25, 1), (0.125, 1), (3.0, 1)):
        model.scale = scale
        assert np.allclose(model(x).array, (model.l(x) * scale).array, rtol=1e-6)
        assert sum(map(len, static.caches(model)[0].retraces.values())) == retraces
