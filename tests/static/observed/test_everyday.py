"""Programs as people write them for Chainer: what each does is compared, and whether it replays."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()


class PairwiseMax(kusari.Function):
    """A function of the old style, whose forward fills an array that it has made."""

    def forward(self, inputs: Any) -> Any:
        x, = inputs
        y = np.zeros((len(x), x.shape[1] // 2), x.dtype)
        self.places = np.empty(y.shape, np.int32)
        for j in range(y.shape[1]):
            pair = x[:, 2 * j:2 * j + 2]
            self.places[:, j] = pair.argmax(axis=1)
            y[:, j] = pair.max(axis=1)
        return y,

    def backward(self, inputs: Any, grads: Any) -> Any:
        x, = inputs
        gx = np.zeros_like(x)
        for j in range(self.places.shape[1]):
            gx[np.arange(len(x)), 2 * j + self.places[:, j]] = grads[0][:, j]
        return gx,


@ROWS.replays
def a_function_fills_an_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        return PairwiseMax()(F.tanh(self.l(x)))
    model = build(decorate(body))
    return lambda i, x: model(x)


class Gather(kusari.FunctionNode):
    """A function of the new style that keeps an array of its own for its gradient."""

    def __init__(self, n: int) -> None:
        self.n = n

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs(())
        x, = inputs
        self.shape = x.shape
        self.order = np.empty(self.n, np.int64)
        self.order[:] = np.arange(self.n)[::-1]
        return x[:, self.order].copy(),

    def backward(self, indexes: Any, gys: Any) -> Any:
        made = np.zeros(self.shape, np.float32)
        made[:, self.order] = gys[0].array
        return Variable(made),


@ROWS.replays
def a_function_keeps_an_order(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        return Gather(3).apply((F.tanh(self.l(x)),))[0] * 2
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_function_of_an_array_made_in_the_call(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        mask = np.zeros((len(x), 4), np.float32)
        mask[:, 1:3] = 1
        return PairwiseMax()(F.tanh(self.l(x)) * mask) + PairwiseMax()(mask)
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_function_of_a_filled_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        block = np.zeros((len(x), 4), np.float32)
        block[:, :2] = x[:, 2:]
        return F.tanh(self.l(x))[:, :2] + PairwiseMax()(block)
    model = build(decorate(body))
    return lambda i, x: model(x)


class ThinStack(kusari.Function):
    """A stack of states in one array, which its forward changes in place."""

    def forward(self, inputs: Any) -> Any:
        stack, state, at = inputs
        stack[np.arange(len(stack)), at] = state
        return stack,

    def backward(self, inputs: Any, grads: Any) -> Any:
        gs, = grads
        _, _, at = inputs
        rows = np.arange(len(gs))
        g = gs[rows, at].copy()
        gs[rows, at] = 0
        return gs, g, None


@ROWS.either
def a_thin_stack(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        stack = Variable(np.zeros((len(x), 3, 4), np.float32))
        at = np.zeros(len(x), np.int32)
        h = F.tanh(self.l(x))
        for _ in range(3):
            stack = ThinStack()(stack, h, at)
            at = at + 1
            h = F.tanh(h)
        return F.sum(stack, axis=1)
    model = build(decorate(body))
    return lambda i, x: model(x)


# -- counts -----------------------------------------------------------------------------------------------------------


def counting(change: Any, **attributes: Any) -> Any:
    def program(decorate: Any) -> Any:
        def body(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x))
            change(self, x, h)
            return h
        model = build(decorate(body), **{k: v.copy() for k, v in attributes.items()})

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                for name in attributes:
                    if isinstance(getattr(model, name), np.ndarray):
                        getattr(model, name)[...] = 5
            return model(x), {k: getattr(model, k) for k in attributes}
        return call
    return program


def at_a_constant(self: Any, x: Any, h: Any) -> None:
    self.counts[1] += 1


def at_a_computed_place(self: Any, x: Any, h: Any) -> None:
    for i in np.argmax(x, axis=1):
        self.counts[i] += 1


def at_computed_places(self: Any, x: Any, h: Any) -> None:
    np.add.at(self.counts, np.argmax(h.array, axis=1), 1)


def with_a_bincount(self: Any, x: Any, h: Any) -> None:
    self.counts += np.bincount(np.argmax(h.array, axis=1), minlength=4)


def a_confusion_matrix(self: Any, x: Any, h: Any) -> None:
    for t, p in zip(np.argmax(x, axis=1), np.argmax(h.array, axis=1), strict=True):
        self.matrix[t, p] += 1


def a_part_and_a_number(self: Any, x: Any, h: Any) -> None:
    self.rows[0] *= 0.5
    self.rows[0] += 0.5 * h.array.mean(axis=0)
    self.rows[1, 2] += float(h.array.sum())


def a_twice_changed_count(self: Any, x: Any, h: Any) -> None:
    self.counts[1] += 1
    self.counts[1] += len(x)
    self.counts[2] -= 1


def sets(self: Any, x: Any, h: Any) -> None:
    self.seen |= {len(x)}


def more_sets(self: Any, x: Any, h: Any) -> None:
    self.seen |= set(range(len(self.rows)))
    self.seen &= {0, 1, 2, 9}
    self.seen -= {1}
    self.seen ^= {2, 7}


for name, change, attributes in (
        ("at_a_constant", at_a_constant, {"counts": np.zeros(4, np.int64)}),
        ("at_a_computed_place", at_a_computed_place, {"counts": np.zeros(4, np.int64)}),
        ("at_computed_places", at_computed_places, {"counts": np.zeros(4, np.int64)}),
        ("with_a_bincount", with_a_bincount, {"counts": np.zeros(4, np.int64)}),
        ("a_twice_changed_count", a_twice_changed_count, {"counts": np.zeros(4, np.int64)}),
        ("a_confusion_matrix", a_confusion_matrix, {"matrix": np.zeros((4, 4), np.int32)}),
        ("a_part_and_a_number", a_part_and_a_number, {"rows": np.zeros((3, 4), np.float32)}),
        ("sets", sets, {"seen": set()}), ("more_sets", more_sets, {"seen": {1}, "rows": np.zeros(2)})):
    program = counting(change, **attributes)
    program.__name__ = name
    ROWS.replays(program)


@ROWS.either  # a trace for each place
def a_row_at_the_step(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.rows[self.at] = h.array[0]
        self.at = (self.at + 1) % 3
        return h
    model = build(decorate(body), rows=np.zeros((3, 4), np.float32), at=0)
    return lambda i, x: (model(x), model.rows, model.at)


COUNTS = np.zeros(4, np.int64)
SEEN: Any = set()


@ROWS.replays
def a_global_count(decorate: Any) -> Any:
    global COUNTS, SEEN
    COUNTS = np.zeros(4, np.int64)
    SEEN = set()

    def body(self: Any, x: Any) -> Any:
        global SEEN
        h = F.tanh(self.l(x))
        COUNTS[2] += 1
        SEEN |= {3}
        return h
    model = build(decorate(body))
    return lambda i, x: (model(x), COUNTS, SEEN)


# -- functions and outside arrays that change -------------------------------------------------------------------------


@ROWS.replays
def a_function_reads_a_changed_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return PairwiseMax()(h - self.mean)
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@ROWS.replays
def a_function_after_a_change(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return PairwiseMax()(h)
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@ROWS.replays
def functions_after_a_count(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.n += 1
        return PairwiseMax()(F.tanh(self.l(x)))
    model = build(decorate(body), n=0)
    return lambda i, x: (model(x), model.n)


@ROWS.replays
def a_functional_reads_a_changed_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return h - self.mean
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
