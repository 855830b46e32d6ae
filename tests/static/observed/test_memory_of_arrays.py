"""Memory of arrays: shapes, strides and types that are assigned, arrays that are resized, read-only ones, views."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Normalized, build
from static.observed.harness import Rows, before, check

import kusari
import kusari.functions as F
from kusari import Parameter

ROWS = Rows()


def reshaped(a: Any, i: int) -> None:
    a.shape = (2, 6) if i // 3 == 1 else (4, 3)


def retyped(a: Any, i: int) -> None:
    a.dtype = np.dtype("i4" if i // 3 == 1 else "f4")


def restrided(a: Any, i: int) -> None:
    a.strides = (4, 16) if i // 3 == 1 else (16, 4)


@ROWS.replays
def shapes_of_closed_arrays(decorate: Any) -> Any:
    a = np.arange(12, dtype="f").reshape(4, 3)
    static = decorate(lambda x: F.tanh(x) * a.shape[0] + F.sum(F.relu(a[0])))
    return before(static, lambda i: reshaped(a, i))


@ROWS.replays
def shapes_of_arguments(decorate: Any) -> Any:
    a = np.arange(12, dtype="f").reshape(4, 3)
    static = decorate(lambda a: F.sum(F.tanh(a), axis=0))

    def call(i: int, x: Any) -> Any:
        reshaped(a, i)
        return static(a)
    return call


@ROWS.replays
def types_of_arguments(decorate: Any) -> Any:
    a = np.arange(12, dtype="f").reshape(4, 3)
    static = decorate(lambda a: F.tanh(F.cast(a, "f")) * (2 if a.dtype.kind == "i" else 1))

    def call(i: int, x: Any) -> Any:
        retyped(a, i)
        return static(a)
    return call


@ROWS.replays
def strides_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.l(x))))

    def change(i: int) -> None:
        model.l.W.array = np.ascontiguousarray(model.l.W.array) if i == 0 else model.l.W.array
        restrided(model.l.W.array, i)
    return before(model, change)


@ROWS.replays
def strides_of_statistics(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.l(x)) + s.state))
    model.add_persistent("state", np.arange(16, dtype="f").reshape(4, 4)[:3])

    def call(i: int, x: Any) -> Any:
        if i == 4:
            model.state = np.arange(24, dtype="f").reshape(3, 8)[:, ::2]
        return model(x)
    return call


@ROWS.replays
def shapes_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.l(x)) + F.sum(s.extra, axis=0)[0] * s.extra.shape[0]),
                  extra=Parameter(np.arange(12, dtype="f").reshape(4, 3)))

    def change(i: int) -> None:
        a = model.extra.array
        reshaped(a, i)
        model.extra.array = a  # the same array, of which the Variable knows the shape now
    return before(model, change)


def moved(a: Any) -> None:
    """Let an array have other memory: the same object of the same shape."""
    values = a.copy()
    a.resize((100000, *a.shape), refcheck=False)
    a.resize(values.shape, refcheck=False)
    a[...] = values


@ROWS.replays
def parameters_with_other_memory(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.m(s.l(x)))))

    def change(i: int) -> None:
        if i == 0:
            model.l.W.array = model.l.W.array.copy()  # owns its memory
        if i in (3, 5):
            moved(model.l.W.array)
    return before(model, change)


@ROWS.replays
def parameters_with_other_memory_in_steps(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(F.tanh(s.m(s.l(x))))))
    optimizer = kusari.optimizers.MomentumSGD(0.01).setup(model)

    def call(i: int, x: Any) -> Any:
        if i == 0:
            model.l.W.array = model.l.W.array.copy()
        if i in (3, 5):
            moved(model.l.W.array)
        optimizer.update(model, x)
        return model
    return call


@ROWS.replays
def statistics_with_other_memory(decorate: Any) -> Any:
    class Decorated(Normalized):
        forward = decorate(lambda self, x: F.tanh(self.norm(self.l(x))))

    model = Decorated()

    def change(i: int) -> None:
        if i in (3, 5):
            moved(model.norm.avg_mean)
            moved(model.norm.avg_var)
    return before(model, change)


@ROWS.replays
def statistics_in_views(decorate: Any) -> Any:
    class Decorated(Normalized):
        forward = decorate(lambda self, x: F.tanh(self.norm(self.l(x))))

    model, both = Decorated(), np.ones((4, 2), "f")

    def change(i: int) -> None:
        if i == 3:
            model.norm.avg_mean, model.norm.avg_var = both[:, 0], both[:, 1]
    return lambda i, x: (change(i), model(x), both.copy())[1:]


@ROWS.replays
def read_only_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(F.tanh(s.l(x)))))
    optimizer = kusari.optimizers.SGD(0.01).setup(model)

    def call(i: int, x: Any) -> Any:
        model.l.W.array.flags.writeable = i // 3 != 1
        try:
            optimizer.update(model, x)
        except ValueError as error:
            return type(error), model
        return model
    return call


@ROWS.replays
def read_only_statistics(decorate: Any) -> Any:
    class Decorated(Normalized):
        @decorate
        def forward(self, x: Any) -> Any:
            return F.tanh(self.norm(self.l(x)))

    model = Decorated()

    def call(i: int, x: Any) -> Any:
        model.norm.avg_mean.flags.writeable = i // 3 != 1
        try:
            return model(x), model
        except ValueError as error:
            return type(error), model.norm.avg_mean.copy()
    return call


@ROWS.replays
def arguments_that_are_read_only(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * 2)

    def call(i: int, x: Any) -> Any:
        x.flags.writeable = i // 2 % 2 == 0
        return static(x)
    return call


@ROWS.replays
def parameters_of_another_layout(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.l(x))))

    def change(i: int) -> None:
        layouts: list[Callable[[Any], Any]] = [np.ascontiguousarray, np.asfortranarray,
                                               lambda a: np.repeat(a, 2, axis=1)[:, ::2]]
        model.l.W.array = layouts[i // 2 % 3](model.l.W.array)
    return before(model, change)


@ROWS.replays
def parameters_that_are_views_of_one_array(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.tanh(s.m(s.l(x)))))
    both = np.random.RandomState(0).randn(2, 4, 4).astype("f")

    def change(i: int) -> None:
        if i == 3:
            model.l.W.array, model.m.W.array = both[0], both[1]
        if i == 5:
            model.m.W.array = both[0]
    return before(model, change)


def in_one_buffer(body: Any) -> Any:
    """Return a program with a model whose parameters are parts of one array, which is an attribute."""
    def program(decorate: Any) -> Any:
        flat = np.random.RandomState(0).randn(32).astype("f")
        model = build(decorate(body), flat=flat)
        model.l.W.array, model.m.W.array = flat[:16].reshape(4, 4), flat[16:].reshape(4, 4)
        return lambda i, x: (model(x), model.flat)
    program.__name__ = body.__name__
    program.__module__ = __name__
    return program


@ROWS.falls_back("reads elements of a computed array")
@in_one_buffer
def a_part_changes_and_the_buffer_is_read(self: Any, x: Any) -> Any:
    self.l.W.array[0] *= 0.5
    return self.l(x) * self.flat[:4]


@ROWS.falls_back("reads elements of a computed array")
@in_one_buffer
def a_part_changes_and_another_is_read(self: Any, x: Any) -> Any:
    self.l.W.array[0] *= 0.5
    return self.l(x) * self.flat[12:20].reshape(2, 4)[1]


def the_buffer_changes(self: Any, x: Any) -> Any:
    self.flat *= 0.5
    return F.matmul(x, self.l.W.array)


def the_buffer_changes_behind(self: Any, x: Any) -> Any:
    with kusari.no_backprop_mode():
        self.flat *= 0.5
        return self.m(self.l(x))


def a_buffer_of_statistics_changes(self: Any, x: Any) -> Any:
    self.flat *= 0.5
    return F.tanh(x) * self.state


for body in (the_buffer_changes, the_buffer_changes_behind):
    ROWS.add(in_one_buffer(body), "falls back", "shares memory with another one")


@ROWS.falls_back("shares memory with another one")
def a_buffer_of_statistics(decorate: Any) -> Any:
    flat = np.ones(8, "f")
    model = build(decorate(a_buffer_of_statistics_changes), flat=flat)
    model.add_persistent("state", flat[:4])
    return lambda i, x: (model(x), model.flat)


@ROWS.replays
def copies_of_results(decorate: Any) -> Any:
    static = decorate(lambda x: (y := F.tanh(x), y.array.copy(), np.array(y.array), y.array.astype("f")))

    def call(i: int, x: Any) -> Any:
        y, *others = static(x)
        for a in others:
            a[0] = i
        return y, others
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check_apart(name)


# -- arrays that NumPy makes in the call, and that are filled afterwards ----------------------------------------------


def filled(fill: Callable[..., Any], shape: tuple[int, ...] = (3, 4), dtype: Any = "f") -> Callable[..., Any]:
    """Return a function of an array ``x``, with an array of ones ``a`` that ``fill(a, x)`` fills."""
    def body(x: Any) -> Any:
        a = np.ones(shape, dtype)
        found = fill(a, x)
        return a, F.tanh(F.cast(a, "f")) if found is None else found
    return body


def rows_and_columns(a: Any, x: Any) -> None:
    a[1] = x[0]
    a[::2, 1:3] = x[0, :2]
    a[..., None, 3] = 2
    a[-1] = x[None, 1]


def hot(a: Any, x: Any) -> None:
    a[:] = 0
    a[np.arange(3), :, x.astype("i")[:, 0]] = 0.5
    a[np.arange(3), 0, (x > 0).astype("i")[:, 1] - 2] = 3
    a[(x > 0)[:, :2]] = 7


def in_place(a: Any, x: Any) -> None:
    a *= x
    a += 1
    a[~(x > 0.5)] = 0
    a -= (x > 0).astype("f")


def of_arguments(a: Any, x: Any) -> Any:
    y = x * 2
    y[x > 1] = 1
    y /= a
    return y, F.tanh(y)


def copies(a: Any, x: Any) -> Any:
    a *= x
    made = (x.copy(), x.astype("f"), x.flatten(), np.array(x), np.tile(x, (1, 1)), a.copy(), F.tanh(x).array.copy())
    for y in made:
        y[0] = 1
    return made


def no_copies(a: Any, x: Any) -> Any:
    y = x.astype("f", copy=False)
    y[0] = 1
    return F.tanh(x)


def masks(a: Any, x: Any) -> Any:
    a *= x > 0
    a[0] = (x[1] > 0) * (x[2] < 1)
    return F.where(a, x, -x)


def called_else(a: Any, x: Any) -> None:
    b = a
    b[0] = x[0]


def a_view_from_before(a: Any, x: Any) -> Any:
    view = a[1:]
    a[1] = x[0]
    return F.tanh(x[1:] * (view + 1))


def a_view_between(a: Any, x: Any) -> Any:
    a[1] = x[0]
    view = a[1]
    a[1] = x[2]
    return F.tanh(x[1] * view)


def a_view_of_what_was_computed(a: Any, x: Any) -> Any:
    y = x * 2
    view = y.T
    y[0] = 1
    return F.tanh(view)


def read_between(a: Any, x: Any) -> Any:
    a[0] = x[0]
    y = F.tanh(x) * a
    a[0] = x[1]
    return y


def read_before(a: Any, x: Any) -> Any:
    y = F.tanh(x) * a
    a[0] = x[1]
    return y


def elements_of_it(a: Any, x: Any) -> Any:
    a[0] = x[0]
    return F.tanh(x) * float(a[0, 1])


def several_at_one_place(a: Any, x: Any) -> None:
    a[(x > 0).astype("i")[:, 0]] = x


def an_argument(a: Any, x: Any) -> None:
    x[0] = 1


def an_array_of_a_variable(a: Any, x: Any) -> Any:
    y = F.tanh(x)
    y.array[0] = 1
    return y


FILLED: dict[str, tuple[str, Callable[..., Any]]] = {
    **{f.__name__: ("replays", filled(f)) for f in (
        rows_and_columns, in_place, of_arguments, copies, called_else, a_view_from_before, a_view_between,
        a_view_of_what_was_computed, read_between, read_before)},
    "integers": ("replays", filled(rows_and_columns, dtype="i")),
    "hot": ("replays", filled(hot, (3, 2, 4))),
    "masks": ("replays", filled(masks, dtype="?")),
    **{f.__name__: ("replays", filled(f)) for f in (elements_of_it, several_at_one_place)},
    **{f.__name__: ("falls back", filled(f)) for f in (
        an_argument, no_copies, an_array_of_a_variable)},
}


@pytest.mark.parametrize("name", FILLED)
def test_filled_arrays(name: str) -> None:
    verdict, body = FILLED[name]

    def program(decorate: Any) -> Any:
        static = decorate(body)
        return lambda i, x: static(x)
    program.__module__ = __name__
    check(program, verdict)
