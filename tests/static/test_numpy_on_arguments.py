"""NumPy's functions on array arguments are recorded as functions; what they give is an array, in replays too."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F

W = kusari.Parameter(np.linspace(-1, 1, 12, dtype="f").reshape(3, 4))


def gelu(x: Any) -> Any:
    return .5 * x * (1 + F.tanh(.797 * (x + .0447 * (x * x * x))))


BODIES: dict[str, Any] = {
    "gelu": lambda x: gelu(x) * W,
    "scalars": lambda x: F.relu(2 - x / 3 + 1.5 * -x),
    "integral-scalar": lambda x: F.relu(x * 2 + 1),
    "functions": lambda x: np.exp(x) + np.tanh(x) * F.relu(np.sqrt(np.absolute(x)) * W),
    "power": lambda x: F.sum(x ** 2 + x ** 3),
    "extrema": lambda x: F.relu(np.maximum(x, -x)) - np.minimum(x, x * 2),
    "array-result": lambda x: x * 2,
    "array-and-variable": lambda x: (x + x, F.relu(x + x)),
    "broadcast": lambda x: F.relu(x[0] * x + x[:, :1]),
    "slice": lambda x: F.relu(x[:, 1:]),
    "negative-step": lambda x: F.relu(x[::-1, ::-2]),
    "new-axis": lambda x: F.relu(x[None, ..., 0]),
    "loop": lambda x: sum((F.relu(r) for r in x), F.relu(x[0])),
    "columns": lambda x: sum((F.tanh(c) for c in x.T), F.relu(x[0, 0:3])),
    "unpacked": lambda x: F.relu(x[0]) * (lambda a, b, c: a + b - c)(*x),
    "reshape": lambda x: F.relu(x.reshape(4, 3) @ x.reshape((3, -1))),
    "transpose": lambda x: F.relu(x.transpose() + x.transpose(1, 0) + np.transpose(x) + x.swapaxes(0, 1)),
    "in place": lambda x: F.relu(np.add(x, x, out=x.astype("f"))),
    "in place, with another": lambda x: F.relu(np.multiply(x, x[:1], np.empty_like(x))),
    "cast": lambda x: F.relu(x.astype("d") * 3),
    "double-scalar": lambda x: F.relu(x + 1e-8),
    "matmul": lambda x: F.relu(x @ x.T),
    "a constant of its own": lambda x: F.relu(x + np.arange(4, dtype="f")),
    "two dtypes": lambda x: F.where(np.arange(4) > x, F.relu(x * np.arange(4)), -(x * np.ones(4))),
    "shape": lambda x: F.relu(x * x.shape[1] + np.ndim(x)),
}


def xs() -> list[np.ndarray]:
    rs = np.random.RandomState(3)
    return [rs.randn(3, 4).astype("f") for _ in range(4)]


@pytest.mark.parametrize("name", BODIES)
def test_stays_static(both: Any, name: str) -> None:
    def make(decorate: Any) -> Any:
        return decorate(lambda x: BODIES[name](x))
    both(make, xs())


def test_integers_and_labels(both: Any) -> None:
    rs = np.random.RandomState(0)
    table = kusari.Parameter(rs.randn(5, 3).astype("f"))

    def make(decorate: Any) -> Any:
        return decorate(lambda words: sum(F.embed_id(words[:, t], table) * (t + 1) for t in range(words.shape[1])))
    both(make, [rs.randint(0, 5, (4, 6)).astype("i") for _ in range(4)])


def test_results_are_of_the_kind_define_by_run_gives() -> None:
    f = kusari.static_graph(lambda x: (x * 2, x[0], F.relu(x * 2)))
    for x in xs():
        a, b, c = f(x)
        assert type(a) is np.ndarray and type(b) is np.ndarray and isinstance(c, kusari.Variable)
        assert (a == x * 2).all() and (b == x[0]).all() and type(c.array) is np.ndarray


def test_what_is_stored_is_an_array_and_is_stored_by_replays() -> None:
    class Model(kusari.Chain):
        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            self.seen = x * 3
            return F.relu(self.seen)

    model = Model()
    for x in xs():
        model(x)
        assert type(model.seen) is np.ndarray
        assert (model.seen == x * 3).all()


ASIDE: dict[str, Any] = {
    "a reduction": lambda x: F.relu(x) * hash((x * 2).sum()),
    "items": lambda x: F.relu(x) * sorted((x * 2)[0])[0],
}


@pytest.mark.parametrize("name", ASIDE)
def test_what_has_no_function_steps_aside(both: Any, name: str) -> None:
    def make(decorate: Any) -> Any:
        return decorate(lambda x: ASIDE[name](x))
    both(make, xs(), aside="reads elements of|takes data out")


def test_gradients_are_those_of_define_by_run(both: Any) -> None:
    w = kusari.Parameter(np.full((3, 4), .5, "f"))

    def make(decorate: Any) -> Any:
        f = decorate(lambda x: F.sum(F.tanh(gelu(x * 2)[:, ::2]) * w[:, :2]))

        def call(x: Any) -> Any:
            w.cleargrad()
            y = f(x)
            y.backward()
            return y, w.grad.copy()
        return call
    both(make, xs())
