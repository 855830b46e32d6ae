"""Numbers and rows that change from call to call where something goes wrong, changes hands, or runs in another way."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.observed.harness import Rows, check, training
from static.observed.test_counters import FOLLOWED, at, counting, seen

import kusari
import kusari.functions as F
from kusari import static_code

ROWS = Rows()
_counted, _counted_afterwards = FOLLOWED["_counted"], FOLLOWED["_counted_afterwards"]
_ring, _ring_read = FOLLOWED["_ring"], FOLLOWED["_ring_read"]


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


def _ring_around(s: Any, x: Any) -> Any:
    """Stores to rows by number before and after what may end the replay."""
    h = s.l(x)
    s.buffer[s.i] = h.array
    s.i = (s.i + 1) % 3
    if float(np.abs(x).max()) > 100:
        h = h * 2
    s.buffer[s.i - 2] = h.array * 2
    s.average[s.i] = s.buffer[s.i - 1].mean(axis=0)
    s.t += 1
    return h + s.buffer.sum(axis=0) * s.t


@ROWS.replays
def rows_of_a_call_that_goes_on_define_by_run(decorate: Any) -> Any:
    model = counting(decorate, _ring_around)
    return lambda i, x: (model(x * 1000 if i in (5, 6) else x), model.state())


@pytest.mark.parametrize("change", [_raises, lambda model: None])
@pytest.mark.parametrize("first", [False, True])
def test_rows_around_functions_of_the_users(first: bool, change: Any) -> None:
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = _ring_around(s, x) if not first else s.l(x)
            h, = Picky(s, change).apply((h,))
            return _ring_around(s, h) if first else h
        model = counting(decorate, forward, t=1)

        def call(i: int, x: Any) -> Any:
            model.log = list(range(i))
            try:
                return model(x), model.state()
            except ValueError as error:
                return error, model.state()
        return call
    check(program)


@ROWS.replays
def rows_and_a_gradient_after_the_next_call(decorate: Any) -> Any:
    model, waiting = counting(decorate, lambda s, x: F.tanh(_ring_read(s, x)) * x), []

    def call(i: int, x: Any) -> Any:
        v = kusari.Variable(x)
        g, = kusari.grad([model(v)], [v], enable_double_backprop=True)
        waiting.append(F.sum(g * g))
        model.cleargrads()
        if i > 1:
            waiting[i - 2].backward()
        return g.array, [None if p.grad is None else p.grad.copy() for p in model.params()], model.state()
    return call


@ROWS.replays
def rows_of_arrays_that_the_call_makes(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, t = s.l(x), np.abs(x).argmax(axis=1)
        row = np.eye(4, dtype="f")[t[0]]
        return F.tanh(h) * (row * 2) + np.arange(16, dtype="f").reshape(4, 4)[t[1]].sum() * h + h * np.eye(4)[t[2]]
    return seen(counting(decorate, forward))


@ROWS.either
def rows_that_a_function_keeps_for_its_gradient(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h = s.l(x)
        y = F.matmul(h, s.buffer[s.i], transb=True)
        s.buffer[s.i] = h.array
        s.i = (s.i + 1) % 3
        return y + F.matmul(h, s.buffer[s.i], transb=True) + F.matmul(h, s.buffer[0], transb=True)
    return seen(counting(decorate, forward))


@ROWS.either
def a_row_that_is_kept_before_it_changes(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, row = s.l(x), s.buffer[s.i]
        before = row.sum()
        s.buffer[s.i] = h.array
        s.i = (s.i + 1) % 3
        return h * before + row
    return seen(counting(decorate, forward))


@ROWS.either
def a_buffer_that_is_returned(decorate: Any) -> Any:
    return seen(counting(decorate, lambda s, x: (_ring(s, x), s.buffer, s.buffer[s.i], s.buffer[0])))


@ROWS.replays
def a_buffer_that_is_replaced(decorate: Any) -> Any:
    model = counting(decorate, _ring_read)
    return seen(model, at(6, lambda: setattr(model, "buffer", np.ones((3, 3, 4), "f"))))


@ROWS.either
def a_buffer_that_is_an_argument_or_a_view(decorate: Any) -> Any:
    model = counting(decorate, _ring_read)
    base = np.zeros((4, 3, 4), "f")
    return lambda i, x: (setattr(model, "buffer", base[:3] if i > 5 else model.buffer), model(
        model.buffer[1] if i == 4 else x), model.state())[1:]


# -- other ways to run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_counted", "_ring", "_ring_read", "_corrected", "_slice_by_number"])
@pytest.mark.parametrize("options", [{"verify": 1}, {"memory": "low"}, {"memory": "balanced"}])
def test_options(name: str, options: dict[str, Any]) -> None:
    def program(decorate: Any) -> Any:
        return seen(counting(decorate, FOLLOWED[name]))
    check(program, "replays", **options)


@pytest.mark.parametrize("name", sorted(FOLLOWED))
@pytest.mark.parametrize("joined", [False, True])
def test_whole_steps(name: str, joined: bool) -> None:
    def program(decorate: Any) -> Any:
        def loss(s: Any, x: Any) -> Any:
            h = FOLLOWED[name](s, x)
            return F.sum((h[0] if isinstance(h, tuple) else h) ** 2)
        model = counting(lambda f: f, loss)
        return training(model, decorate(loss), kusari.optimizers.MomentumSGD(0.001), joined)
    check(program, "replays", tolerance=2e-4)


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    ROWS.check(name)
