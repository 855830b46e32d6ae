"""Rows that are not there: compiled code raises what define-by-run raises, before anything has changed."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(5, 3)
            self.out = L.Linear(3, 2)

    @static_graph
    def forward(self, x: Any) -> Any:
        return F.sum(self.out(self.embed(x)) ** 2)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("step", [False, True])
def test_numbers_out_of_range(step: bool) -> None:
    model = Model()
    optimizer = kusari.optimizers.SGD(0.1).setup(model)

    def call(x: np.ndarray) -> None:
        if step:
            optimizer.update(model.forward, x)
        else:
            model.cleargrads()
            model(x).backward()
    for x in (numbers(0, 1, 2, 3), numbers(4, 3, -1, -5), numbers(1, 1, 0, 2)):
        call(x)
    before = [p.array.copy() for p in model.params()]
    for wrong in (7, -6):
        x = numbers(0, 1, wrong, 2)
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 5") as info:
            call(x)
        notes = getattr(info.value, "__notes__", None) or [str(info.value.__cause__)]
        assert any("test_lookups.py:" in note for note in notes)
        with kusari.using_config("use_static_graph", False), pytest.raises(IndexError, match=f"index {wrong} is out"):
            model(x)
    for p, old in zip(model.params(), before, strict=True):
        np.testing.assert_array_equal(p.array, old)
    call(numbers(0, 1, 2, 3))  # and it goes on
    assert all(np.isfinite(p.array).all() for p in model.params())


@pytest.mark.parametrize("ignored", [-1, 1])
@pytest.mark.parametrize(("loss", "wrong"), [
    ("select_item", 3), ("select_item", -4), *(("softmax_cross_entropy", k) for k in (3, -4, -2))])
def test_labels_out_of_range(loss: str, wrong: int, ignored: int) -> None:
    link = L.Linear(2, 3)
    optimizer = kusari.optimizers.SGD(0.1).setup(link)

    @static_graph
    def mean(x: Any, t: Any) -> Any:
        if loss == "select_item":
            return F.mean(F.select_item(link(x), t))
        return F.softmax_cross_entropy(link(x), t, ignore_label=ignored)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    from_end = (-1, -2, -3) if loss == "select_item" else (ignored, 2, ignored)  # classes do not count from the end
    for t in (numbers(0, 1, 2, 1), numbers(0, *from_end), numbers(2, 1, from_end[0], 0)):
        link.cleargrads()
        y = mean(x, t)
        y.backward()
        with kusari.using_config("use_static_graph", False):
            expected, gradient = mean(x, t), link.W.grad.copy()
            link.cleargrads()
            expected.backward()
        np.testing.assert_allclose(y.array, expected.array, 1e-6)
        np.testing.assert_allclose(gradient, link.W.grad, 1e-5, 1e-6)
        optimizer.update(mean, x, t)
    before = link.W.array.copy()
    given = "a negative index" if loss != "select_item" and wrong < 0 else f"index {wrong}"
    for call in (mean, lambda *args: optimizer.update(mean, *args)):
        with pytest.raises(IndexError, match=f"{given} is out of bounds"):
            call(x, numbers(0, 1, wrong, 2))
    np.testing.assert_array_equal(link.W.array, before)


def test_a_schedule_with_a_part_of_python_tells_too() -> None:
    class Opaque(kusari.FunctionNode):
        def forward(self, inputs: Any) -> Any:
            return inputs[0] + 1,

    @static_graph
    def f(table: Any, x: Any) -> Any:
        return F.embed_id(x, Opaque().apply((table,))[0]) * 2

    table = np.arange(12, dtype="f").reshape(4, 3)
    for i in range(3):
        np.testing.assert_array_equal(f(table, numbers(i, -1)).array, (table[[i, -1]] + 1) * 2)
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        f(table, numbers(0, 4))
