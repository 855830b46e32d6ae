"""Numbers in attributes, globals and dictionaries that change from call to call: values of the schedule, or guards."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import Rows, before, check, late
from static.observed.test_counters import FOLLOWED, Pickled, at, counting, seen

import kusari
import kusari.functions as F
from kusari import static_code

ROWS = Rows()
_counted, _decayed = FOLLOWED["_counted"], FOLLOWED["_decayed"]


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


class Slotted:
    __slots__ = ("gone", "scale")


@ROWS.replays
def stored_in_slots(decorate: Any) -> Any:
    kept = Slotted()

    def forward(s: Any, x: Any) -> Any:
        kept.scale, kept.gone = float(s.t), s.t * 2
        del kept.gone
        return s.l(x) * s.t
    model = counting(decorate, forward)
    return late(model, lambda: setattr(model, "t", model.t + 3), kept)


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
