"""One array under two names while a call is traced: replays read what each name has then."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, static_graph
from kusari.optimizer_hooks import GradientClipping, WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD
from kusari.static import StaticGraphWarning

TABLE = np.full((2, 2), 3, "f")


class Model(kusari.Chain):
    def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.compute = compute
        with self.init_scope():
            self.a = kusari.Parameter(np.ones((2, 2), "f"))
            self.b = kusari.Parameter(np.ones((2, 2), "f"))
        self.add_persistent("p", np.full((2, 2), 2, "f"))
        self.add_persistent("q", self.p)
        self.r, self.b.array, self.k = self.p, self.a.array, self.a.array
        self.v = Variable(np.full((2, 2), 5, "f"), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)


class Static(Model):
    forward = static_graph(Model.forward)


# What reads the argument as well, and the argument.
GIVEN: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "parameter's array": (lambda m, x: F.matmul(x, m.a.array) + x * 3, lambda m: m.a.array),
    "parameter's array by NumPy": (lambda m, x: F.matmul(x, m.a.array * 2) + x * 3, lambda m: m.a.array),
    "its Variable": (lambda m, x: F.matmul(x, m.k) + x * 3, lambda m: Variable(m.k)),
    "attribute": (lambda m, x: F.matmul(x, m.k) + x * 3, lambda m: m.k),
    "global": (lambda m, x: F.matmul(x, TABLE) + x * 3, lambda m: TABLE),
    "Variable": (lambda m, x: F.matmul(x, m.v) + x * 3, lambda m: m.v),
}


@pytest.mark.parametrize(("compute", "argument"), GIVEN.values(), ids=list(GIVEN))
def test_argument_that_is_read_by_name_too(compute: Any, argument: Any) -> None:
    models = Model(compute), Static(compute)
    given: list[Any] = []
    for i in range(7):
        given = [type(x)(np.full((2, 2), i, "f")) if isinstance(x, Variable) else np.full((2, 2), i, "f")
                 for x in map(argument, models)] if i > 2 else list(map(argument, models))
        expected, y = [m(x).array for m, x in zip(models, given, strict=True)]
        np.testing.assert_array_equal(y, expected, err_msg=str(i))
    assert Static.forward.static.entry((models[1], given[1]), {}).schedule is not None


def test_argument_that_is_a_default_too() -> None:
    model = Static(lambda m, x, y=TABLE: F.matmul(x, y) + x)
    np.testing.assert_array_equal([model(TABLE).array for _ in range(3)], [np.full((2, 2), 21, "f")] * 3)
    with pytest.warns(StaticGraphWarning, match="neither an argument nor made"):
        np.testing.assert_array_equal(model(TABLE / 3).array, np.full((2, 2), 7, "f"))


def test_argument_that_is_always_read_by_name_too() -> None:
    model = Static(lambda m, x: F.matmul(x, m.k) + x)
    with pytest.warns(StaticGraphWarning, match=r"an argument is the array that is read as \w+\.k, too"):
        for _ in range(8):
            np.testing.assert_array_equal(model(model.k).array, np.full((2, 2), 3, "f"))


TIED: dict[str, Callable[[Any, Any], Any]] = {
    "parameters by NumPy": lambda m, x: F.matmul(x, m.a.array * 2) + F.matmul(x, m.b.array * 3),
    "arrays of parameters": lambda m, x: F.matmul(x, m.a.array) * F.matmul(x, m.b.array),
    "parameters": lambda m, x: F.matmul(x, m.a) + F.matmul(x, m.b) * 2,
    "parameter and attribute": lambda m, x: F.matmul(x, m.a) + F.matmul(x, m.k) * 3,
    "attribute and parameter": lambda m, x: F.matmul(x, m.k) * 3 + F.matmul(x, m.a),
    "both by NumPy": lambda m, x: F.matmul(x, m.a.array * 2) + F.matmul(x, m.k * 3),
    "persistent arrays": lambda m, x: F.matmul(x, m.p) + F.matmul(x, m.q) * 2,
    "persistent array and attribute": lambda m, x: F.matmul(x, m.p) + F.matmul(x, m.r) * 2,
}
EDITS: dict[str, Callable[[Any], None]] = {
    "a": lambda m: setattr(m.a, "array", np.full((2, 2), 7, "f")),
    "b": lambda m: setattr(m.b, "array", np.full((2, 2), 7, "f")),
    **{n: lambda m, n=n: setattr(m, n, np.full((2, 2), 7, "f")) for n in "kpqr"},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
@pytest.mark.parametrize("compute", TIED.values(), ids=list(TIED))
def test_names_that_part(compute: Any, edit: Any) -> None:
    models = Model(compute), Static(compute)
    for i in range(6):
        ys: list[Any] = []
        for m in models:
            if i == 4:
                edit(m)
            ys.append(m(np.full((1, 2), i, "f")))
            m.cleargrads()
            F.sum(ys[-1]).backward()
        np.testing.assert_array_equal(ys[1].array, ys[0].array, err_msg=str(i))
        for p, q in zip(models[0].params(), models[1].params(), strict=True):
            assert (p.grad is None) is (q.grad is None)
            if p.grad is not None:
                np.testing.assert_array_equal(q.grad, p.grad, err_msg=str(i))
    assert Static.forward.static.entry((models[1], np.zeros((1, 2), "f")), {}).recording is not None


VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda w: w[0],
    "column": lambda w: w[:, 0],
    "reversed": lambda w: w.ravel()[3::-1],
    "a column of one of a copy": lambda w: w.copy()[:, 0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize("whole", [True, False])
def test_parameter_that_becomes_a_view_of_another(view: Any, whole: bool) -> None:
    arrays: list[Any] = []
    for decorate in (lambda f: f, static_graph):
        model = L.Linear(4, 4, initialW=np.arange(16, dtype="f").reshape(4, 4) / 16)
        loss = decorate(lambda x, link=model: F.sum(F.tanh(link(x))))
        optimizer = SGD(0.1).setup(model)
        for i in range(8):
            if i == 5:
                model.b.array = view(model.W.array)
            x = np.random.RandomState(i).randn(6, 4).astype("f")
            if whole:
                optimizer.update(loss, x)
                continue
            y = loss(x)
            model.cleargrads()
            y.backward()
            optimizer.update()
        arrays.append((model.W.array, model.b.array))
    for expected, array in zip(*arrays, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)


def _other(model: Any) -> None:
    model.l.W.grad, model.m.W.grad = model.m.W.array, model.l.W.array


def _shifted(model: Any) -> None:
    memory = np.arange(5, dtype="f")
    memory[1:] = model.l.b.array
    model.l.b.array, model.l.b.grad = memory[1:], memory[:4]


def _state(model: Any) -> None:
    for array in (model.l.W.update_rule.state or {}).values():
        model.l.W.grad = array


def _buffer(model: Any) -> None:
    """Neither of the two is a view of an array."""
    memory = bytearray(model.l.W.array.tobytes() + bytes(4))
    model.l.W.array = np.frombuffer(memory, "f", 16).reshape(4, 4)
    model.m.W.grad = np.frombuffer(memory, "f", 16, 4).reshape(4, 4)


def _wide(model: Any) -> None:
    state = model.l.b.update_rule.state or {}
    state.update({name: array.astype("d") for name, array in state.items()})


GRADIENTS: dict[str, Callable[[Any], None]] = {
    "the parameter": lambda m: setattr(m.l.W, "grad", m.l.W.array),
    "the parameter transposed": lambda m: setattr(m.l.W, "grad", m.l.W.array.T),
    "the parameter reversed": lambda m: setattr(m.l.b, "grad", m.l.b.array[::-1]),
    "another parameter": _other,
    "the parameter shifted": _shifted,
    "a buffer that is also a parameter's": _buffer,
    "another gradient": lambda m: setattr(m.l.b, "grad", m.m.b.grad),
    "a row of another gradient": lambda m: setattr(m.l.b, "grad", m.m.W.grad[1]),
    "a state": _state,
    "not the state, which is of another dtype": _wide,
}


@pytest.mark.parametrize("hooks", [(), (lambda: WeightDecay(0.1),), (lambda: GradientClipping(0.1),)])
@pytest.mark.parametrize("optimizer", [SGD, MomentumSGD, Adam])
@pytest.mark.parametrize("change", GRADIENTS.values(), ids=list(GRADIENTS))
def test_gradient_that_is_another_array(change: Any, optimizer: Any, hooks: Any) -> None:
    arrays: list[Any] = []
    for static in (False, True):
        np.random.seed(0)
        model = kusari.Chain(l=L.Linear(4, 4), m=L.Linear(4, 4))
        loss = static_graph(lambda x, model=model: F.mean(F.square(model.m(F.tanh(model.l(x))))))
        updating = optimizer(0.1).setup(model)
        for hook in hooks:
            updating.add_hook(hook())
        with kusari.using_config("use_static_graph", static), np.errstate(invalid="ignore"):
            for i in range(7):
                y = loss(np.random.RandomState(i).randn(6, 4).astype("f"))
                model.cleargrads()
                y.backward()
                if i > 3:
                    change(model)
                updating.update()
        arrays.append([a for _, p in sorted(model.namedparams()) for a in (
            p.array, p.grad, *(p.update_rule.state or {}).values())])
    for expected, array in zip(*arrays, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-6)
