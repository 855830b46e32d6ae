"""NumPy inside a static function where no function of ours does the same: Python runs it, the rest is compiled."""
from __future__ import annotations

import array
import collections
import decimal
import fractions
import itertools
import math
import pickle
import statistics
import struct
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph

f32 = np.float32


class Model(kusari.Chain):
    """Two layers with dropout and a running mean, so that a call which is taken back has something to restore."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(4, 3, initialW=np.arange(12, dtype=f32).reshape(3, 4) / 9)
            self.norm = L.BatchNormalization(3)
            self.last = L.Linear(3, 3, initialW=np.eye(3, dtype=f32) + f32(.1))

    def hidden(self, x: Any) -> Any:
        return F.dropout(F.relu(self.norm(self.first(x))), .3)


def data(i: int) -> tuple[Any, Any]:
    r = np.random.RandomState(i)
    return r.rand(5, 4).astype("f"), r.permutation(5)


def run(body: Callable[..., Any], static: bool, calls: int,
        feed: Callable[[int], Any]) -> tuple[list[Any], list[str], str]:
    """Return what is seen of some training steps, the warnings, and the report on the function."""
    np.random.seed(1)
    model, seen = Model(), []
    decorated = static_graph(body) if static else body
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(calls):
            model.cleargrads()
            y = decorated(model, *feed(i))
            F.sum(y * y).backward()
            for p in model.params():
                if p.grad is not None:
                    p.array -= f32(.01) * p.grad
            seen += [y.array, model.norm.avg_mean.copy(), *(p.array.copy() for p in model.params()),
                     np.asarray(np.random.get_state()[2])]
    return seen, [str(w.message) for w in caught], str(decorated.static.explain()) if static else ""


def same(body: Callable[..., Any], calls: int = 6, feed: Callable[[int], Any] = data) -> tuple[list[str], str]:
    """Assert that a static function does what define-by-run does; returns its warnings and the report on it."""
    found, texts, report = run(body, True, calls, feed)
    expected, _, _ = run(body, False, calls, feed)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    return texts, report


ARRAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "of an argument": lambda m, x, t: m.last(m.hidden(np.roll(x, 1, axis=0))),
    "of a computed array": lambda m, x, t: (h := m.hidden(x)) * (h.array > np.sort(h.array, axis=1)[:, :1]),
    "of a parameter": lambda m, x, t: F.linear(m.hidden(x), m.last.W.array / np.sqrt((m.last.W.array ** 2).sum(1))),
    "of both": lambda m, x, t: m.hidden(x) + np.einsum("ij,kj->ik", x, m.first.W.array),
    "of indices": lambda m, x, t: m.hidden(x)[np.argsort(t)],
    "several results": lambda m, x, t: m.hidden(sum(np.split(x[:4], 2))),
    "a named tuple": lambda m, x, t: m.hidden(x) * np.linalg.eigh(np.cov(x.T)).eigenvalues[:1].astype("f"),
    "filled afterwards": lambda m, x, t: m.hidden(_doubled(np.roll(x, 1, axis=0))),
    "filled with rows": lambda m, x, t: m.hidden(_filled(np.zeros((5, 4, 2), "f"), x, t)),
    "out of an argument": lambda m, x, t: m.hidden(_scaled(x * 2, np.zeros((5, 4), "f"))),
    "written by a function": lambda m, x, t: m.hidden(x) * _added(np.ones((5, 3), "f"), t),
    "a view": lambda m, x, t: m.hidden(x) + np.diagonal(x)[:3],
    "draws": lambda m, x, t: m.hidden(x + np.random.randn(*x.shape).astype("f")) + np.random.uniform(
        -1, high=2, size=(5, 3)).astype("f"),
    "draws of indices": lambda m, x, t: m.hidden(x)[np.random.randint(0, 5, 4)],
    "draws of a layer of noise": lambda m, x, t: m.hidden(x) * np.random.binomial(1, .5, (5, 3)).astype("f"),
}


def _filled(a: Any, x: Any, t: Any) -> Any:
    a[:, :, 1] = x
    a[t, 0] = np.sort(x)[:, :2]
    a.sort(axis=0)
    return a.sum(2)


def _scaled(a: Any, b: Any) -> Any:
    np.minimum(a, 1.5, out=a)
    np.float_power(a, 2, out=b)
    np.hypot(a, b, b)
    np.add(a, b, out=a)
    return a


def _added(a: Any, t: Any) -> Any:
    np.add.at(a, t[:2], 2)
    return a


def _doubled(x: Any) -> Any:
    x *= 2
    return x


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_values(name: str) -> None:
    texts, report = same(ARRAYS[name])
    assert texts == [] and "1 schedule" in report
    assert ("run by Python: numpy.roll at test_numpy_by_python.py" in report) is (name in (
        "of an argument", "filled afterwards"))


FLOATS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "of an argument": lambda m, x, t: m.last(m.hidden(x / np.abs(x).max())),
    "with a Variable": lambda m, x, t: m.last(m.hidden(x)) / np.abs(x).max() * float(x.mean()) + 2.5 * x.sum(),
    "of Python's": lambda m, x, t: m.hidden(x) * (1 - float(x.mean()) / 3) * -(2 ** float(x.max())),
    "mixed with an array of another dtype": lambda m, x, t: m.hidden(
        (x * float(x.mean()) - x.sum() * t[:, None]).astype("f")),
    "as an array": lambda m, x, t: m.hidden(np.full(x.shape, x.max())) + np.array([x.max(), x.min()]).sum(),
    "a branch that stays": lambda m, x, t: m.hidden(x) if x.sum() > -5 else m.last(x),
    "of a Variable": lambda m, x, t: m.hidden(x) * (1 - F.mean(m.hidden(x)).item()) + float(F.max(x[:1, :1])),
    "of a part of a parameter": lambda m, x, t: m.last(m.hidden(x)) * m.first.W[1:2, 1:2].item(),
    "integers": lambda m, x, t: m.hidden(x) * float((t > x[:, 0] * 5).sum() * 2) / ((t > x[:, 0] * 5).sum() + 1),
    "an integer as an extent": lambda m, x, t: m.hidden(x)[:(t < 3).sum()],
    "an integer in a loop": lambda m, x, t: sum(m.hidden(x) for _ in range(int((t > 2).sum()))),
    "items of an array": lambda m, x, t: m.hidden(x) * sum(v * 2 for v in x[0]) + [*x[1]][-1],
    "an array from its end": lambda m, x, t: m.hidden(x) * list(reversed(x[0]))[1],
    "items as numbers of rows": lambda m, x, t: F.stack([m.hidden(x)[i] for i in t]) + m.last(m.hidden(x))[t[0], 1:2],
    "stored in an array": lambda m, x, t: m.hidden(_with_corner(np.zeros((5, 4), "f"), x.max()) + x),
    "stored in a dictionary": lambda m, x, t: m.hidden(x) * _with({"a": 1.0}, "a", x.max())["a"],
    "stored in a list": lambda m, x, t: m.hidden(x) / _with([2.0, 3.0], 1, float(x.max()))[-1],
    "in the places of others": lambda m, x, t: _many(m, x, t) * x.max(),
    "by a function of math": lambda m, x, t: m.hidden(x) * math.log1p(float(x.max())) + math.pow(x.max(), 2),
    "by math from an array": lambda m, x, t: m.hidden(x) * math.exp(F.mean(m.last(m.hidden(x))).array),
    "by a function of NumPy's": lambda m, x, t: m.hidden(x) * np.exp(float(x.min())) * float(
        np.arctan2(float(x.max()), 2)),
    "with an array by NumPy": lambda m, x, t: m.hidden(np.maximum(x, float(x.mean()))),
    "filling an array": lambda m, x, t: m.hidden(np.full_like(x, x.max()) - np.full_like(x, float(x.min()))),
    "like a Variable": lambda m, x, t: m.hidden(x) * x.max() + np.ones_like(m.hidden(x), dtype="f"),
}


def _many(m: Any, x: Any, t: Any) -> Any:
    total = m.hidden(x)
    for _ in range(9):  # arrays that are read and gone, and others in their places
        F.exp(F.relu(x))
        hot = np.zeros(x.shape, "f")
        hot[x > 0.5] = 1
        total = total + F.sum(F.mean(F.sin(x) * hot))
    return total


def _with(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _with_corner(x: Any, value: Any) -> Any:
    x[0, 0] = value
    return x


@pytest.mark.parametrize("name", FLOATS)
def test_numbers_are_followed(name: str) -> None:
    texts, report = same(FLOATS[name])
    assert texts == [] and "1 schedule" in report


READ: dict[str, Callable[[Any], Any]] = {
    "format": lambda v: len(f"{v:.3f}"), "text": lambda v: len(str(v)),
    "struct": lambda v: struct.unpack("d", struct.pack("d", float(v)))[0], "hash": hash,
    "decimal": lambda v: float(decimal.Decimal(float(v))), "fraction": lambda v: float(fractions.Fraction(float(v))),
    "key": lambda v: {1.0: 2}.get(v, 3), "greatest": lambda v: max(v, 0.5), "rounded": round,
    "item": lambda v: np.float64(v).item(),

    "list of floats": lambda v: np.mean([float(v), 2.0]).astype("f"), "sorted": lambda v: sorted([v, v / 2])[0],
    "complex": lambda v: complex(v).real, "divmod": lambda v: divmod(float(v), .3)[1], "attribute": lambda v: v.real,
    "sum": lambda v: sum(_with([1.0], 0, v)), "in a format": lambda v: len("{a:.3f}".format_map(_with({}, "a", v))),
    "product": lambda v: math.prod(_with([1.0, 2.0], 0, v)), "array": lambda v: np.array(_with([1.0], 0, v))[0],
    "slice": lambda v: _with([1.0], slice(0, 1), [v])[0], "joined": lambda v: len(str(_with([1.0], 0, v))),
    "vector": lambda v: array.array("d", _with([1.0], 0, v))[0], "values": lambda v: max(_with({}, 1, v).values()),
    "distance": lambda v: math.dist(_with([1.0], 0, v), [0.5]),
    "stored": lambda v: vars(HOLDER).update(x=v) or HOLDER.x, "appended": lambda v: [].append(v) or np.float32(v),
    "chain": lambda v: 0 < v < 9, "hexadecimal": lambda v: len(float(v).hex()),
    "bytes": lambda v: pickle.loads(pickle.dumps(v)),
    "closure": lambda v: (lambda: v.is_integer())(), "attribute of a function": lambda v: F.leaky_relu(-ONES, v),
    "power of a Variable": lambda v: kusari.Variable(ONES * 2) ** v, "statistics": lambda v: statistics.mean([v, 1]),
}
HOLDER, ONES = types.SimpleNamespace(), np.ones(3, "f")


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize("name", READ)
def test_other_uses_of_floats_read_them(name: str, kind: Any) -> None:
    """Replays have no constants in their place: the function falls back."""
    use = READ[name]

    def body(x: Any) -> Any:
        value = use(kind(x.max()))
        return F.exp(x) * (F.sum(value) if isinstance(value, kusari.Variable) else float(value))
    static = static_graph(body)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for i in range(4):
            x = data(i)[0] + f32(i)
            found, expected = static(x), body(x)
            np.testing.assert_allclose(found.array, expected.array, rtol=1e-5)


def test_reports_of_numbers_keep_their_types() -> None:
    def observations(decorate: Any) -> list[Any]:
        class Loss(Model):
            @decorate
            def loss(self, x: Any) -> Any:
                y = F.sum(self.hidden(x) ** 2)
                kusari.report({"perplexity": np.exp(y.array / 5), "loss": float(y.array), "y": y, "rows": len(x)}, self)
                return y
        np.random.seed(0)
        model, seen = Loss(), []
        reporter = kusari.Reporter()
        reporter.add_observer("main", model)
        for i in range(5):
            with reporter.scope({}):
                model.loss(data(i)[0])
                seen.append({key: (type(v), float(getattr(v, "array", v))) for key, v in reporter.observation.items()})
        return seen
    for found, expected in zip(observations(static_graph(strict=True)), observations(lambda f: f), strict=True):
        assert found.keys() == expected.keys()
        for key, (kind, value) in expected.items():
            assert found[key] == (kind, pytest.approx(value, rel=1e-5))


def test_numbers_in_results_are_those_of_the_call() -> None:
    def body(x: Any) -> Any:
        return {"y": F.exp(x), "max": x.max(), "two": (float(x.mean()), [x.min() * 2])}
    static = static_graph(body, strict=True)
    for i in range(5):
        found, expected = static(data(i)[0]), body(data(i)[0])
        assert type(found["max"]) is f32 and found["max"] == expected["max"]
        assert type(found["two"][0]) is float and found["two"][1] == expected["two"][1]


def positive(m: Any, x: Any, t: Any) -> Any:
    h = m.hidden(x)
    if (t < 0).any():
        h = h * 2
    return m.last(h)


def first(m: Any, x: Any, t: Any) -> Any:
    return m.last(m.hidden(x)[:int(t[0])])


NUMBERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a branch": positive, "an item": first,
    "truth": lambda m, x, t: m.last(m.hidden(x)) if (t >= 0)[0] else m.hidden(x),
    "of a computed array": lambda m, x, t: m.last(m.hidden(x)) if not np.isnan(m.first(x).array).any() else None,
    "of a loss": lambda m, x, t: None if np.isnan(float(F.sum(m.first(x)).array)) else m.last(m.hidden(x)),
    "of a loss, by math": lambda m, x, t: m.last(m.hidden(x)) if math.isfinite(F.sum(m.first(x)).array) else None,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_stay_are_compared(name: str) -> None:
    texts, report = same(NUMBERS[name], feed=lambda i: (data(i)[0], np.full(5, 3)))
    assert texts == [] and "1 schedule" in report


@pytest.mark.parametrize("body", [positive, first])
def test_another_number_is_define_by_runs(body: Any) -> None:
    """In rare calls: what ran before it is taken back, the schedule stays."""
    texts, report = same(body, 9, lambda i: (data(i)[0], np.full(5, -2 if i in (4, 7) else 3)))
    assert texts == [] and "1 schedule" in report


def test_numbers_that_change_again_and_again_fall_back() -> None:
    texts, _ = same(first, 9, lambda i: (data(i)[0], np.full(5, 3 if i < 3 else i % 4 + 1)))
    assert len(texts) == 1 and "takes a number out of the traced computation" in texts[0]


def test_numbers_that_change_at_once_are_not_compiled() -> None:
    texts, report = same(first, 4, lambda i: (data(i)[0], np.full(5, i + 1)))
    assert len(texts) == 1 and "takes a number out" in texts[0] and "0 schedules" in report


def changing_state(m: Any, x: Any, t: Any) -> Any:
    """A model whose random numbers and statistics come before NumPy raises."""
    h = m.hidden(x)
    inverse = np.linalg.inv(np.diag(np.where(t > 3, 0, t)).astype("f"))
    return F.dropout(h, .2) * inverse[:1, :1]


def handling(m: Any, x: Any, t: Any) -> Any:
    try:
        inverse = np.linalg.inv(np.diag(np.where(t > 3, 0, t)).astype("f"))
    except np.linalg.LinAlgError:
        inverse = np.eye(5, dtype="f")
    return m.hidden(x) * inverse[:1, :1]


def dividing(m: Any, x: Any, t: Any) -> Any:
    try:
        1 / float(t.max() - t[0] - x.min() * 0)
    except ZeroDivisionError:
        return m.hidden(x) * 2
    return m.hidden(x)


@pytest.mark.parametrize("body", [changing_state, handling, dividing])
@pytest.mark.parametrize("raising", [0, 5])
def test_what_raises_is_define_by_runs(body: Any, raising: int) -> None:
    """Handlers of the user's code, random numbers and statistics are as if nothing had run before."""
    def guarded(m: Any, x: Any, t: Any) -> Any:
        try:
            return decorated(m, x, t)
        except np.linalg.LinAlgError:
            return m.hidden(x) * 3

    def seen(decorate: Any) -> list[Any]:
        nonlocal decorated
        decorated = decorate(body)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(guarded, False, 8, lambda i: (data(i)[0], np.array(
                [5, 5, 5, 5, 5] if i == raising else [1, 2, 3, 2, 3])))[0]
    decorated: Any = None
    for a, b in zip(seen(static_graph), seen(lambda f: f), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


COUNTED: dict[str, Callable[[Any], Any]] = {
    "a part of a list": lambda n: len([10, 20, 30, 40][:n]), "bytes": lambda n: len(bytes(n)),
    "some of an iterator": lambda n: len(list(itertools.islice([1, 2, 3, 4], n))),
    "numbered": lambda n: [*enumerate([0], n)][0][0],
    "power": lambda n: pow(2, int(n), 5), "a deque": lambda n: len(collections.deque([1, 2, 3, 4], maxlen=int(n))),
    "repeated": lambda n: len([0] * n), "draws": lambda n: np.random.normal(size=n).size,
    "a type": lambda n: type(n) is int,
    "small integers": lambda n: int((np.ones(3, "b") < n * 100).sum()), "slice": lambda n: slice(n).indices(9)[1],
}


@pytest.mark.parametrize("kind", [int, np.int64])
@pytest.mark.parametrize("name", COUNTED)
def test_integers_that_code_in_c_reads_are_compared(name: str, kind: Any) -> None:
    def body(x: Any, t: Any) -> Any:
        return F.exp(x) * float(COUNTED[name](kind(t[0])))
    static = static_graph(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(7):
            t = np.full(5, 3 if i == 4 else 2)
            np.testing.assert_allclose(static(data(i)[0], t).array, body(data(i)[0], t).array, rtol=1e-5)


def test_numbers_are_plain_once_a_call_has_fallen_back() -> None:
    """Python's floats take the dtype of arrays, also behind the line that is not static."""
    def body(x: Any) -> Any:
        half, v = x.astype("e"), float(x.mean())
        holder = types.SimpleNamespace(shown=f"{v}")
        object.__setattr__(holder, "v", v)
        return [half * v, v * half, np.where(half > .5, half, v), half.max() * v, -v, holder.v]
    static = static_graph(body)
    with pytest.warns(kusari.static.StaticGraphWarning, match="takes data out"):
        for i in range(3):
            for a, b in zip(static(data(i)[0]), body(data(i)[0]), strict=True):
                assert type(a) is type(b) and getattr(a, "dtype", None) == getattr(b, "dtype", None)
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("stored", ["before", "by a built-in"])
def test_containers_of_a_call_that_falls_back_hold_plain_numbers(stored: str) -> None:
    holder = types.SimpleNamespace(kept=None)

    @static_graph
    def f(x: Any) -> Any:
        numbers: list[Any] = [None]
        if stored == "before":
            holder.kept = numbers
        numbers[0] = x.max()
        hash(x.tobytes())  # is not static
        if stored != "before":
            setattr(holder, "kept", numbers)  # noqa: B010
        return F.tanh(x)

    with pytest.warns(kusari.static.StaticGraphWarning, match="tobytes"):
        f(data(0)[0])
    assert type(holder.kept[0]) is f32


def test_types_are_those_of_numbers() -> None:
    def body(x: Any) -> Any:
        v, w = float(x.max()), x.max()
        return F.exp(x) * (type(v) is float and v.__class__ is float and type(w) is f32 and not hasattr(w, "value"))
    static = static_graph(body, strict=True)
    assert all(static(data(i)[0]).array.all() for i in range(4))


def test_views_of_parameters_are_not_copied() -> None:
    model, x = Model(), data(0)[0]
    static = static_graph(lambda m, x: (m.hidden(x), m.last.W.array[1:]))
    with pytest.warns(kusari.static.StaticGraphWarning, match="the array of a parameter"):
        for _ in range(3):
            view = static(model, x)[1]
    model.last.W.array[...] = 7
    assert (view == 7).all()


def test_lists_without_and_in_themselves() -> None:
    def body(x: Any) -> Any:
        items: list[Any] = [1]
        items.append(items)
        kept = [items]
        return F.exp(x) * len(kept) + len(x[:0].tolist())
    static = static_graph(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(4):
            np.testing.assert_allclose(static(data(i)[0]).array, body(data(i)[0]).array, rtol=1e-5)


def test_another_shape_goes_on_define_by_run() -> None:
    texts, _ = same(lambda m, x, t: m.hidden(x)[np.unique(t)], 6, lambda i: (data(i)[0], np.arange(5) // (1 + i // 4)))
    assert len(texts) == 1 and "numpy.unique gives results whose shapes" in texts[0]


@pytest.mark.parametrize("changes", [False, True])
def test_whole_steps(changes: bool) -> None:
    def losses(decorate: Any) -> tuple[list[Any], Any]:
        class Loss(Model):
            @decorate
            def loss(self, x: Any, t: Any) -> Any:
                y = positive(self, np.roll(x, 1), t)
                return F.sum(y * y)

        np.random.seed(1)
        model = Loss()
        optimizer = kusari.optimizers.MomentumSGD(.01).setup(model)
        seen: list[Any] = []
        for i in range(8):
            optimizer.update(model.loss, data(i)[0], np.full(5, -1 if changes and i == 5 else 1))
            seen += [p.array.copy() for p in model.params()] + [np.asarray(np.random.get_state()[2])]
        return seen, model
    found, model = losses(static_graph(strict=True))
    for a, b in zip(found, losses(lambda f: f)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    assert "1 whole step" in str(type(model).loss.static.explain())


def test_gradients_of_gradients_repeat_draws() -> None:
    def second(decorate: Any) -> Any:
        np.random.seed(0)
        f = decorate(lambda x: F.sum(F.exp(x * np.random.rand(5, 4).astype("f")) * np.roll(x.array, 1)))
        for i in range(4):
            x = kusari.Variable(data(i)[0])
            g, = kusari.grad([f(x)], [x], enable_double_backprop=True)
            F.sum(g * g).backward()
        return x.grad
    np.testing.assert_allclose(second(static_graph(strict=True)), second(lambda f: f), rtol=2e-5)


RETURNED: dict[str, Callable[[Any, Any], Any]] = {
    "returned": lambda m, x: m.last.W.array,
    "as a Variable": lambda m, x: kusari.Variable(m.last.W.array),
    "read by a function of the user's": lambda m, x: Own().apply((x, m.last.W.array))[0],
}


class Own(kusari.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,


@pytest.mark.parametrize("name", RETURNED)
def test_arrays_of_parameters_are_not_copied(name: str) -> None:
    model, x = Model(), data(0)[0]
    static = static_graph(RETURNED[name])
    with pytest.warns(kusari.static.StaticGraphWarning, match="the array of a parameter"):
        for _ in range(3):
            y = static(model, x)
    if name == "returned":
        assert y is model.last.W.array
