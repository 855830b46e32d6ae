"""Views of arguments, parameters and other arrays that a call returns, stores or changes: their memory is shared."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import Rows, check

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()


class Turned(kusari.FunctionNode):
    """Returns a view of what it is given, or that itself."""

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole

    def forward(self, inputs: Any) -> Any:
        return inputs if self.whole else (inputs[0][::-1],)

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys if self.whole else (F.flip(gys[0], 0),)


# What is shown of an argument, an array or a Variable, and of the model.
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "a row": lambda m, x: x[1],
    "a column": lambda m, x: x[:, 2],
    "backwards": lambda m, x: x[::-1, ::2],
    "transposed": lambda m, x: x.T,
    "in another shape": lambda m, x: x.reshape(2, 6),
    "a row of columns": lambda m, x: x.T[1:3],
    "a part by split": lambda m, x: np.split(np.asarray(m.raw(x)), 2, axis=1)[1],
    "a diagonal": lambda m, x: np.diagonal(m.raw(x)),
    "windows": lambda m, x: np.lib.stride_tricks.as_strided(m.raw(x), (2, 3), (4, 4)),
    "by function": lambda m, x: F.reshape(x, (-1,)),
    "by functions": lambda m, x: F.transpose(x)[1:3],
    "a part by function": lambda m, x: F.split_axis(x, 2, 1)[1],
    "two": lambda m, x: [x[0], x[:, 1]],
    "by one's own function": lambda m, x: Turned().apply((x,))[0],
    "the same by one's own function": lambda m, x: Turned(True).apply((x,))[0],
    "of a weight by one's own function": lambda m, x: Turned().apply((m.l.W,))[0],
    "of another result": lambda m, x: [h := F.tanh(x), F.transpose(Turned().apply((h,))[0])],
    "of outside": lambda m, x: m.a[1],
    "of outside by function": lambda m, x: F.reshape(Variable(m.a), (12,)),
    "of a weight": lambda m, x: F.transpose(m.l.W),
    "a copy": lambda m, x: F.copy(x, -1) if isinstance(x, Variable) else x.copy(),
    "a row of a copy": lambda m, x: m.raw(x).copy()[0],
    "flat": lambda m, x: m.raw(x).flatten(),
}


def changed(tree: Any, i: int) -> None:
    """Change all arrays of a tree that may be."""
    for x in tree if isinstance(tree, list) else [tree]:
        array = x.array if isinstance(x, Variable) else x
        if array.flags.writeable:
            array[...] = i + 0.5


def shows(view: Any, stored: bool, variable: bool, layout: str, step: bool) -> Any:
    """A program that gives a view away, through which its caller changes what it is a view of."""
    def program(decorate: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = F.sum(F.tanh(self.l(x)) * F.sigmoid(x))
            if stored:
                self.kept = view(self, x)
                return y
            return y, view(self, x)
        model = build(decorate(forward), a=np.ones((3, 4), "f"), kept=None,
                      raw=lambda x: x.array if isinstance(x, Variable) else x)
        optimizer = kusari.optimizers.SGD(0.1).setup(model)

        def call(i: int, x: Any) -> Any:
            if layout == "now and then columns" and i % 3 == 2:
                x = np.asfortranarray(x)
            given = Variable(x) if variable else x
            y = kept = None
            if step:
                optimizer.update(model.forward, given)
            elif stored:
                y = model(given)
            else:
                y, kept = model(given)
            kept = model.kept if stored else kept
            changed(kept, i)
            if y is not None:
                model.cleargrads()
                y.backward()
            return kept, x, model.a, [p.grad for p in model.params() if p.grad is not None]
        return call
    program.__module__ = __name__
    return program


@pytest.mark.parametrize("way", [(False, False, "", False), (False, True, "now and then columns", False),
                                 (True, True, "", True), (True, False, "", False)],
                         ids=["returned", "of a Variable", "stored in a step", "stored"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_views(view: Any, way: Any) -> None:
    check(shows(view, *way))


@pytest.mark.parametrize("name", ["a row", "a column", "transposed", "a part by split"])
def test_views_that_replay(name: str) -> None:
    check(shows(VIEWS[name], False, False, "", False), "replays")


# -- a view of another array stands in an attribute, and the call changes it -------------------------------------------

CHANGES: dict[str, Callable[[Any], Any]] = {
    "added to": lambda m: add(m.a, 1), "filled": lambda m: m.a.fill(2), "assigned": lambda m: np.copyto(m.a, 2),
    "largest": lambda m: np.maximum(m.a, 0, out=m.a), "sorted": lambda m: m.a.sort(),
}
OF: dict[str, Callable[[Any], Any]] = {
    "a view": lambda b: b.view(), "a row": lambda b: b[0], "a column": lambda b: b[:, 1], "a buffer": lambda b:
    np.frombuffer(memoryview(b), np.float32), "strides": lambda b: np.lib.stride_tricks.as_strided(b, (2, 2), (4, 4)),
}


def changing(change: Any, of: Any, when: str) -> Any:
    def program(decorate: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x)) * F.sigmoid(x)
            change(self)
            return h * F.tanh(x)
        model = build(decorate(forward), a=np.zeros((3, 4), "f"))
        model.register_persistent("a")
        earlier: list[Any] = []

        def call(i: int, x: Any) -> Any:
            model.a = of(x if when == "of this" else earlier[-1][0] if earlier else np.zeros((3, 4), "f"))
            y = model(x)
            earlier.append((x, y))
            model.cleargrads()
            F.sum(earlier[-2 if i else -1][1] ** 2).backward()
            return [p.grad for p in model.params()], model.a, [a for a, _ in earlier]
        return call
    program.__module__ = __name__
    return program


def add(a: Any, b: Any) -> None:
    a += b


@pytest.mark.parametrize("when", ["of this", "of the last"])
@pytest.mark.parametrize("of", OF.values(), ids=list(OF))
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_arguments_that_change_through_a_view(change: Any, of: Any, when: str) -> None:
    check(changing(change, of, when))


@ROWS.falls_back("is a view of another one")
def a_view_whose_elements_stay(decorate: Any) -> Any:
    """The traced call changes nothing that can be seen."""
    def forward(self: Any, x: Any) -> Any:
        self.a += 1
        return F.tanh(self.l(x))
    model = build(decorate(forward), a=None)
    whole = np.full((3, 4), np.inf, "f")

    def call(i: int, x: Any) -> Any:
        if i == 2:
            whole[...] = 0
        model.a = whole.view()
        return model(x), whole
    return call


@ROWS.falls_back("is a view of another one")
def a_gradient_that_is_seen(decorate: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        self.a *= 2
        return F.tanh(self.l(x))
    model = build(decorate(forward), a=np.zeros((4, 4), "f"))

    def call(i: int, x: Any) -> Any:
        if model.l.W.grad is None:
            model.l.W.grad = np.zeros((4, 4), "f")
        model.a = model.l.W.grad.view()
        return model(x), model.a
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)


def of_own_function(name: str, body: Any, expected: str, pattern: str | None) -> None:
    def program(decorate: Any) -> Any:
        model = build(decorate(lambda self, x: body(self.l(x))))

        def call(i: int, x: Any) -> Any:
            y, z = model(x)
            changed(y, i)
            return z
        return call
    program.__name__ = name
    ROWS.add(program, expected, pattern)


of_own_function("two results with one memory", lambda h: (h, Turned().apply((h,))[0]), "falls back",
                "returns a view of")
of_own_function("a view of what is not returned", lambda h: (F.tanh(h), Turned().apply((h,))[0]), "replays", None)
