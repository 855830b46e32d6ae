"""Errors in the middle of compiled code: the user's own, with a note of where, and no trace but define-by-run's."""
from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.errors import InvalidType
from kusari.optimizers import SGD, Adam


class TooLarge(Exception):
    """What the function below raises."""


class Picky(kusari.FunctionNode):
    """Raises forward for values beyond 10, backward for gradients beyond 10."""

    kind: type[BaseException] = TooLarge

    def forward(self, inputs: Any) -> Any:
        if inputs[0].max() > 10:
            raise self.kind("forward")
        return inputs[0] * 1,

    def backward(self, indexes: Any, gys: Any) -> Any:
        if abs(gys[0].array).max() > 10:
            raise self.kind("backward")
        return gys


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.norm = L.BatchNormalization(3)
            self.l = L.Linear(3, 2)

    @static_graph
    def forward(self, x: Any, scale: Any) -> Any:
        h = F.dropout(self.norm(x), 0.3)
        y, = Picky().apply((F.identity(x),))
        return F.sum(self.l(F.dropout(h) + y * 0)) + F.sum(Picky().apply((self.l(h),))[0] * scale)


def state(model: Any, optimizer: Any) -> list[Any]:
    """Everything that a failed step may have changed."""
    found: list[Any] = [optimizer.t, np.random.get_state()[1].sum(), np.random.get_state()[2]]
    for p in model.params():
        found += [p.array.copy(), None if p.grad is None else p.grad.copy(), p.update_rule.t]
        found += [x.copy() for x in (p.update_rule.state or {}).values() if isinstance(x, np.ndarray)]
    return [*found, model.norm.avg_mean.copy(), model.norm.avg_var.copy(), np.array(model.norm.N)]


# Forward fails in the first user function, backward in the second.
@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("bad", [(100.0, 1.0), (1.0, 100.0)], ids=["forward", "backward"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", [TooLarge, KeyboardInterrupt])
def test_failed_steps(bad: tuple[float, float], whole: bool, optimizer: Any, kind: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Picky, "kind", kind)
    seen: dict[bool, list[Any]] = {}
    rs = np.random.RandomState(0)
    data = [rs.randn(5, 3).astype("f") for _ in range(6)]
    for static in (False, True):
        np.random.seed(0)
        model = Model()
        opt = optimizer().setup(model)
        found = seen[static] = []
        with kusari.using_config("use_static_graph", static):
            for i, x in enumerate(data):
                factor, scale = bad if i == 3 else (1.0, 1.0)
                args = x * np.float32(factor), np.array(scale, "f")
                try:
                    if whole:
                        opt.update(model, *args)
                    else:
                        loss = model(*args)
                        model.cleargrads()
                        loss.backward()
                        opt.update()
                except kind as error:
                    found.append(str(error))
                found.append(state(model, opt) if i != 3 or factor > 1 else None)
    assert [x for x in seen[True] if isinstance(x, str)] == ["forward" if bad[0] > 1 else "backward"]
    for a, b in zip(seen[False], seen[True], strict=True):
        if isinstance(a, list):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_equal(x is None, y is None)
                if x is not None:
                    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
        else:
            assert a == b


def test_the_error_of_a_traced_call_shows_the_lines_of_users() -> None:
    def inner(x: Any) -> Any:
        return [F.linear(y, np.ones((2, 5), "f")) for y in (x,)]

    @static_graph
    def f(x: Any) -> Any:
        return inner(x)[0]

    with pytest.raises(InvalidType) as info:
        f(np.ones((2, 3), "f"))
    modules = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(info.tb)]
    after = modules[len(modules) - modules[::-1].index("kusari.static.function"):]
    assert after.count(__name__) >= 2 and not any(name.startswith("kusari.static") for name in after)


def test_the_error_says_where() -> None:
    @static_graph
    def f(x: Any) -> Any:
        return F.exp(Picky().apply((F.tanh(x) * 20,))[0])

    for k in (0.0, 0.01, -0.01):
        f(np.full((2, 3), k, "f"))
    with pytest.raises(TooLarge, match="forward") as info:
        f(np.ones((2, 3), "f"))
    text = "".join(traceback.format_exception(info.value))
    assert "in compiled code: Picky(f32[2,3]) of test_errors_in_replays.py:" in text
    np.testing.assert_allclose(f(np.zeros((2, 3), "f")).array, 1)


class Reporting(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 4)
            self.l2 = L.Linear(4, 2)

    @static_graph
    def loss(self, x: Any) -> Any:
        loss = F.sum(self.l2(F.tanh(self.l1(x))) ** 2)
        kusari.report({"loss": loss}, self)
        return loss


def arrays(model: Any) -> list[Any]:
    return [a.copy() for p in model.params() for a in (p.array, p.grad)]


def data(i: int) -> Any:
    return np.random.RandomState(i).randn(5, 3).astype("f")


@pytest.mark.parametrize("held", [False, True])
def test_gradients_stay_where_a_report_fails(held: bool) -> None:
    """The forward fails before gradients are cleared: those of the step before are there, whoever holds them."""
    model = Reporting()
    optimizer = SGD(0.1).setup(model)
    reporter = kusari.Reporter()
    reporter.add_observer("main", model)
    with reporter:
        for i in range(5):
            optimizer.update(model.loss, data(i))
        objects = [p.grad for p in model.params()] if held else []
        before, places = arrays(model), [p.grad.ctypes.data for p in model.params()]
    with kusari.Reporter(), pytest.raises(KeyError, match="not registered"):
        optimizer.update(model.loss, data(7))
    for x, y in zip(arrays(model), before, strict=True):
        np.testing.assert_array_equal(x, y)
    assert [p.grad.ctypes.data for p in model.params()] == places and optimizer.t == 5
    with reporter:
        optimizer.update(model.loss, data(8))
    assert all((p.grad != g).any() for p, g in zip(model.params(), before[1::2], strict=False) if p.grad.size > 3)
    for array, was in zip(objects, before[1::2], strict=False):
        np.testing.assert_array_equal(array, was)
