"""Hazards of arguments and results: trees, layouts, dtypes, shapes; static equals define-by-run."""
from __future__ import annotations

import collections
import dataclasses
import tempfile
from typing import Any

import numpy as np
import pytest
from static.hazards import gradients, xs
from static.models import Model

import kusari
import kusari.functions as F
from kusari import Variable

# -- arguments and results ---------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Batch:
    x: Any
    scale: float = 1.0


Pair = collections.namedtuple("Pair", "a b")

ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {
    "keyword": (lambda x, *, k=1.0: F.relu(x) * k, [((), {"k": k}) for k in (1.0, 1.0, 2.0, 2.0, 1.0)]),
    "scalar": (lambda x, k: F.relu(x) * k, [((k,), {}) for k in (1, 1, 1.0, 1.0, True, True, -0.0, 0.0)]),
    "nan": (lambda x, k: F.relu(x) * k, [((k,), {}) for k in (float("nan"), float("nan"), 1.0)]),
    "none": (lambda x, m=None: F.relu(x) if m is None else F.relu(x) * m,
             [((), {}), ((None,), {}), ((), {}), ((np.full((3, 4), 2, "f"),), {}), ((np.full((3, 4), 3, "f"),), {})]),
    "str": (lambda x, how: getattr(F, how)(x), [((h,), {}) for h in ("relu", "relu", "tanh", "tanh", "relu")]),
    "dict": (lambda x, d: F.relu(x) * d["k"] + d["y"],
             [(({"k": k, "y": np.full((3, 4), i, "f")},), {}) for i, k in enumerate((1.0, 1.0, 2.0, 2.0, 1.0))]),
    "nested": (lambda x, t: (F.relu(x) + t[0][1]) * t[1]["a"][0],
               [((((3, np.full((3, 4), i, "f")), {"a": [i % 2]}),), {}) for i in range(6)]),
    "numpy-scalar": (lambda x, k: F.relu(x) * k, [((np.float32(k),), {}) for k in (1, 1, 2, 2, 3)]),
    "dataclass": (lambda x, b: F.relu(x) * b.scale + F.tanh(b.x),
                  [((Batch(np.full((3, 4), i, "f"), 1.0 + i // 3),), {}) for i in range(6)]),
    "namedtuple": (lambda x, p: F.relu(x) * p.b + F.tanh(p.a),
                   [((Pair(np.full((3, 4), i, "f"), 1 + i // 3),), {}) for i in range(6)]),
    "function": (lambda x, f: f(x), [((f,), {}) for f in (F.relu, F.relu, F.tanh, F.tanh, F.relu)]),
    "slice": (lambda x, n: F.relu(x)[:n], [((n,), {}) for n in (1, 1, 2, 2, 3, 1)]),
    "index-array": (lambda x, i: F.relu(x)[i], [((np.array(i),), {}) for i in ([0, 1], [1, 2], [2, 0], [1, 1])]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_all_kinds(both: Any, name: str) -> None:
    body, calls = ARGUMENTS[name]

    def make(decorate: Any) -> Any:
        static = decorate(body)

        def call(item: Any) -> Any:
            x, (args, kwargs) = item
            return static(x, *args, **kwargs)
        return call

    both(make, list(zip(xs(len(calls)), calls, strict=True)))


RESULTS: dict[str, Any] = {
    "dict": lambda x: {"a": F.relu(x), "b": {"c": F.tanh(x)}},
    "list": lambda x: [F.relu(x), 1, "s"],
    "none": lambda x: None,
    "namedtuple": lambda x: Pair(F.relu(x), 2.5),
    "identity": lambda x: F.identity(x),
    "itself": lambda x: x,
    "twice": lambda x: (lambda y: (y, y, y + 1))(F.relu(x)),
    "view": lambda x: (lambda y: (y, F.reshape(y, (-1,)), F.transpose(y)))(F.relu(x)),
    "shape": lambda x: (F.relu(x), x.shape, x.dtype),
    "empty": lambda x: (),
    "variable-of-argument": lambda x: (Variable(x) if isinstance(x, np.ndarray) else x, F.relu(x)),
    "scalar": lambda x: F.sum(x),
    "integers": lambda x: F.argmax(x, axis=1),
}


@pytest.mark.parametrize("wrap", [lambda x: x, Variable], ids=["array", "variable"])
@pytest.mark.parametrize("name", RESULTS)
def test_results_of_all_kinds(both: Any, name: str, wrap: Any) -> None:
    def make(decorate: Any) -> Any:
        static = decorate(RESULTS[name])
        return lambda x: static(wrap(x))

    both(make, xs())


def test_results_belong_to_the_caller(both: Any) -> None:
    """Changing a result in place changes neither later results, nor parameters, nor arguments."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: (self.l(x), F.reshape(F.relu(x), (-1,)), F.identity(self.l.b)))

        model = Decorated()
        kept: list[Any] = []

        def call(x: Any) -> Any:
            a, b, _ = model(x)
            kept.append((a, b))
            result = [k[0].array.copy() for k in kept], [k[1].array.copy() for k in kept]
            if len(kept) > 2:
                a.array[...] = 7
                b.array[...] = 8
            return result, x
        return call

    both(make, xs(7))


# -- kinds of arrays ---------------------------------------------------------------------------------------------------

def layouts() -> dict[str, Any]:
    def overlapping(x: np.ndarray) -> np.ndarray:
        flat = np.concatenate([x.ravel(), x.ravel()])
        return np.lib.stride_tricks.as_strided(flat, x.shape, (4, 4))

    def read_only(x: np.ndarray) -> np.ndarray:
        x.flags.writeable = False
        return x

    def memory_mapped(x: np.ndarray) -> np.ndarray:
        with tempfile.TemporaryFile() as file:
            mapped = np.memmap(file, x.dtype, "w+", shape=x.shape)
        mapped[...] = x
        return mapped

    return {
        "memory-mapped": memory_mapped,
        "fortran": np.asfortranarray,
        "transposed": lambda x: np.ascontiguousarray(x.T).T,
        "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
        "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
        "stride-0": lambda x: np.broadcast_to(x[0, 0], x.shape),
        "overlapping": overlapping,
        "read-only": read_only,
        "byte-swapped": lambda x: x.astype(">f4"),
        "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view("f4").reshape(x.shape),
    }


@pytest.mark.parametrize("size", [4, 3000], ids=["small", "large"])
@pytest.mark.parametrize("name", layouts())
def test_layouts(both: Any, name: str, size: int) -> None:
    layout = layouts()[name]

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, w: Any) -> Any:
            return F.sum(F.tanh(x) * w, axis=1)

        def call(item: Any) -> Any:
            i, x = item
            x = layout(x.copy()) if i % 4 != 3 else x  # ordinary ones in between
            w = Variable(np.full(x.shape, 2, "f"))
            y = f(x, w)
            F.sum(y).backward()
            return y, w.grad
        return call

    both(make, list(enumerate(xs(8, (3, size)))), rtol=1e-4, atol=1e-4,
         aside="dtype >f4" if name == "byte-swapped" else None)


@pytest.mark.parametrize("dtype", ["e", "d", "f"])
def test_floating_point_types(both: Any, dtype: str) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.W = kusari.Parameter(np.random.randn(2, 4).astype(dtype))

            forward = decorate(lambda self, x: F.sum(F.tanh(F.linear(x, self.W)) * 0.3 + 1))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            v = Variable(x)
            y = model(v)
            y.backward()
            return y, gradients(model, v)
        return call

    both(make, xs(dtype=dtype), **({"rtol": 5e-3, "atol": 5e-3} if dtype == "e" else {}))


@pytest.mark.parametrize(("dtype", "body"), [
    ("i", lambda x: x * 2 + 1), ("i", lambda x: F.cast(x, "f") / 3), ("b", lambda x: x + 1),
    ("q", lambda x: F.reshape(x, (-1,)) * 3), ("u1", lambda x: F.cast(x, np.float32) / 255),
    ("f", lambda x: x ** 2), ("f", lambda x: 2 ** x), ("f", lambda x: 1 / (x * x + 1)), ("f", lambda x: abs(-x)),
    ("?", lambda x: F.where(x, F.cast(x, "f") * 2, F.cast(x, "f") - 1)), ("f", lambda x: x // 0.5),
])
def test_integers_and_promotion(both: Any, dtype: str, body: Any) -> None:
    def make(decorate: Any) -> Any:
        static = decorate(body)
        return lambda x: static(Variable(x, requires_grad=False))

    both(make, [np.clip(x * 10, 0, 100).astype(dtype) if dtype != "f" else x for x in xs()])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1), (0, 4), (3, 0), (0,)])
def test_small_and_empty_shapes(both: Any, shape: tuple[int, ...]) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, y: Any) -> Any:
            return F.tanh(x) * y + F.sum(x), F.sum(x * x)

        def call(x: Any) -> Any:
            v = Variable(x)
            a, b = f(v, np.full(shape, 3, "f"))
            (F.sum(a) + b).backward()
            return a, b, v.grad
        return call

    both(make, xs(shape=shape))


def test_broadcasting_sizes_are_not_confused(both: Any) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any, y: Any) -> Any:
            return F.relu(x) * y

        return lambda item: f(*item)

    rs = np.random.RandomState(0)
    shapes = [((3, 4), (3, 4)), ((1, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 1), (1, 4)), ((1, 1), (1, 1))]
    data = [tuple(rs.randn(*s).astype("f") for s in pair) for pair in shapes * 3]
    both(lambda d: (lambda f: lambda item: f([np.broadcast_to(a, (3, 4)).copy() for a in item]))(make(d)), data)


def test_the_same_array_twice(both: Any) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(a: Any, b: Any) -> Any:
            return F.tanh(a) * F.relu(b) + b

        def call(item: Any) -> Any:
            same, x = item
            a = Variable(x)
            b = a if same else Variable(x * 2)
            y = f(a, b)
            F.sum(y).backward()
            return y, a.grad, b.grad
        return call

    both(make, list(zip([1, 1, 0, 0, 1, 0], xs(6), strict=True)))


def test_a_parameter_as_argument_is_also_read_inside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def forward(self, x: Any, w: Any) -> Any:
                return F.sum(F.linear(x, w) * self.l(x))

        model = Decorated()

        def call(item: Any) -> Any:
            tied, x = item
            model.cleargrads()
            w = model.l.W if tied else model.m.W
            y = model(x, w)
            y.backward()
            return y, model.l.W.grad, (None if tied else model.m.W.grad)
        return call

    both(make, list(zip([1, 1, 0, 0, 1, 0, 1], xs(7), strict=True)))


def test_tied_parameters(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            def __init__(self) -> None:
                super().__init__()
                self.m.W = self.l.W

            forward = decorate(lambda self, x: F.sum(F.tanh(self.m(self.l(x)))))

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            y = model(x)
            y.backward()
            return y, gradients(model)
        return call

    both(make, xs())


@pytest.mark.parametrize("second", [lambda x, v: Variable(x), lambda x, v: x], ids=["variable", "array"])
def test_one_array_with_and_without_gradient(both: Any, second: Any) -> None:
    def make(decorate: Any) -> Any:
        f = decorate(lambda a, b: F.sum(F.tanh(a) * b))

        def call(x: Any) -> Any:
            v = Variable(x)
            f(v, v).backward()
            once = v.grad.copy()
            v.cleargrad()
            w = second(x, v)
            f(v, w).backward()
            return once, v.grad, w.grad if isinstance(w, Variable) else None
        return call

    both(make, xs(4), aside="one array is given twice")


def test_one_array_given_twice_then_two_arrays() -> None:
    @kusari.static_graph
    def add(x: Any, y: Any) -> Any:
        return F.add(x, y)
    x, y = np.array([1, 2], dtype="f"), np.array([10, 20], dtype="f")
    for _ in range(4):
        np.testing.assert_array_equal(add(x, x).array, [2, 4])
        np.testing.assert_array_equal(add(x, y).array, [11, 22])


def test_numbers_that_change_in_every_call(both: Any) -> None:
    """Each would be a trace; once they stay what they are, or are arrays, calls are compiled."""
    made: list[Any] = []

    def make(decorate: Any) -> Any:
        call = decorate(lambda x, rate, scale: F.sum(F.tanh(x) * rate) + scale)
        made.append(call)
        return lambda item: call(*item)
    x = np.ones((2, 3), np.float32)
    rates = [*(0.1 * i for i in range(12)), *[2.0] * 4]
    both(make, [(x, rate, 1) for rate in rates], aside="a number among its arguments changes")
    assert type(made[1].static.signatures(None)[-1][1]).__name__ == "Schedule"
    both(make, [(x, 1.0, np.float32(rate)) for rate in rates], aside="a number among its arguments changes")
    both(make, [(x, np.array(rate, "f"), 1) for rate in rates])
    assert [type(e).__name__ for _, e in made[5].static.signatures(None)] == ["Schedule"]
    both(make, [(x, 0.1 * (i // 2), 1) for i in range(14)])  # each of them twice


class Box:
    def __init__(self, x: Any) -> None:
        self.x = x


@pytest.mark.parametrize("body,aside", [
    (lambda x, box: F.tanh(F.sin(box.x)) + x, "or an object is another one"),
    (lambda x, box: F.tanh(F.sin(box.x)) * len(x.tobytes()), "reads elements of an argument")])
def test_objects_that_are_others_in_every_call(both: Any, body: Any, aside: str) -> None:
    """Each would be a trace, also where all of them fall back; there is one warning."""
    made: list[Any] = []

    def make(decorate: Any) -> Any:
        made.append(decorate(lambda x, box: body(x, box) * 2))
        return lambda x: made[-1](x, Box(x * 2))
    both(make, xs(12), aside=aside)
    assert len(made[1].static.signatures(None)) <= 7


def test_sparse_matrices_are_arrays_and_a_shape(both: Any) -> None:
    def make(decorate: Any) -> Any:
        f = decorate(lambda x, m: F.tanh(F.sparse_matmul(m, x)) * m.shape[0] + F.sum(m.data) * (m.order == "C"))
        return lambda x: f(Variable(x), kusari.utils.to_coo(np.abs(x.T)))
    both(make, xs())
