"""Products of compiled calls by cuBLASLt: the stand-in's, which refuses what the library refuses."""
from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import cupy_kernels
import cupy_memory
import numpy as np
import pytest
from card import examples
from cards.machines import Machine
from cublaslt_double import CublasLt, cublaslt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.ir import Builder, Graph, Value, interpret, tensor_type
from kusari.static.card.place import CardPlace
from kusari.static.compile.memory import SPEED

rng = np.random.default_rng(4)


def normal(*shape: int, dtype: str = "f") -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


def both(card: Machine, function: Callable[..., Any], arrays: Any, rounds: int = 3) -> tuple[Any, list[Any], list[Any]]:
    """A static function after some calls, its last results, and define-by-run's."""
    static = kusari.static_graph(lambda *given: function(*given))
    sent = [card.xp.asarray(a) for a in arrays]
    with kusari.no_backprop_mode():
        for _ in range(rounds):
            found = static(*sent)
        with kusari.using_config("use_static_graph", False):
            expected = function(*sent)
    flat: list[list[Any]] = []
    for results in (found, expected):
        flat.append([card.host(y.array) for y in (results if isinstance(results, tuple) else (results,))])
    return static, *flat


def check(card: Machine, function: Callable[..., Any], arrays: Any) -> Any:
    static, found, expected = both(card, function, arrays)
    for y, e in zip(found, expected, strict=True):
        limit = {2: 2e-2, 4: 2e-5, 8: 1e-12}[e.dtype.itemsize]
        np.testing.assert_allclose(y, e, rtol=limit, atol=limit)
    return static


def gelu(h: Any) -> Any:
    return 0.5 * h * (1 + F.tanh(0.7978845608028654 * (h + 0.044715 * h ** 3)))


x, W, b, column, full = normal(5, 7), normal(6, 7), normal(6), normal(5, 1), normal(5, 6)
EPILOGUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "bias": (lambda x, W, b: F.linear(x, W, b), (x, W, b), {"epilogue": "bias"}),
    "bias and relu": (lambda x, W, b: F.relu(F.linear(x, W, b)), (x, W, b), {"epilogue": "relu bias"}),
    "relu": (lambda x, W: F.relu(F.linear(x, W)), (x, W), {"epilogue": "relu"}),
    "factor": (lambda x, W: F.matmul(x, W, transb=True) * 0.125, (x, W), {"alpha": 0.125, "epilogue": ""}),
    "factor and relu": (lambda x, W: F.relu(F.matmul(x, W, transb=True) * 2), (x, W), {"alpha": 2, "epilogue": "relu"}),
    "addition": (lambda x, W, y: F.matmul(x, W, transb=True) + y, (x, W, full), {"beta": 1, "epilogue": ""}),
    "addition and relu": (lambda x, W, y: F.relu(y + F.linear(x, W)), (x, W, full), {"beta": 1, "epilogue": "relu"}),
    "one column": (lambda x, W, b: F.linear(x, W, b), (x, normal(1, 7), normal(1)), {"epilogue": "bias"}),
    "bias of rows": (lambda x, W, y: F.matmul(x, W, transb=True) + F.broadcast_to(y, (5, 6)), (x, W, column), {}),
    "zero times": (lambda x, W: F.matmul(x, W, transb=True) * 0, (x, W), {"alpha": 1}),
    "tanh": (lambda x, W, b: F.tanh(F.linear(x, W, b)), (x, W, b), {"epilogue": ""}),
    "gelu": (lambda x, W, b: gelu(F.linear(x, W, b)), (x, W, b), {"epilogue": "gelu bias"}),
    "two results": (lambda x, W, b: (h := F.linear(x, W), F.relu(h + 1)), (x, W, b), {"epilogue": ""}),
    "relu and doubles": (lambda x, W, b: F.relu(F.linear(x, W, b)), tuple(a.astype("d") for a in (x, W, b)),
                         {"epilogue": "", "dtype": "float64", "compute": 70}),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(card: Machine, blas: CublasLt, name: str) -> None:
    function, arrays, facts = EPILOGUES[name]
    check(card, function, arrays)
    assert blas.made and {k: blas.made[-1][k] for k in facts} == facts
    assert blas.made[-1]["beta"] == facts.get("beta", 0)


SHAPES = [(1, 1, 1), (13, 17, 19), (1, 40, 300), (33, 5, 64)]


@pytest.mark.parametrize("transb", [False, True])
@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(card: Machine, blas: CublasLt, shape: tuple[int, int, int], transa: bool, transb: bool) -> None:
    m, n, k = shape
    dtype = "fd"[(m + transa) % 2]
    a, c = normal(*((k, m) if transa else (m, k)), dtype=dtype), normal(*((n, k) if transb else (k, n)), dtype=dtype)
    check(card, lambda a, c: F.matmul(a, c, transa, transb), (a, c))
    assert (blas.made[-1]["m"], blas.made[-1]["n"], blas.made[-1]["k"]) in ((m, n, k), (n, m, k))
    assert blas.made[-1]["compute"] == (70 if dtype == "d" else 68)


@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("shapes", [((3, 4, 5), (3, 5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((3, 4, 5), (5, 6)),
                                    ((4, 5), (3, 5, 6))], ids=str)
def test_batches(card: Machine, blas: CublasLt, shapes: Any, transa: bool) -> None:
    first = (*shapes[0][:-2], shapes[0][-1], shapes[0][-2]) if transa else shapes[0]

    def function(a: Any, c: Any) -> Any:
        a = F.broadcast_to(a, (3, *first[-2:])) if a.ndim < c.ndim else a
        c = F.broadcast_to(c, (3, 5, 6)) if c.ndim < a.ndim else c
        return F.relu(F.matmul(a, c, transa)) * 0.5
    check(card, function, (normal(*first), normal(*shapes[1])))
    assert blas.made


def executable(card: Machine, nodes: Callable[..., Any], inputs: Any, params: Any = (),
               place: CardPlace = CardPlace(0)) -> Any:
    """A graph that ``nodes`` builds of inputs and params, loaded, and its results on them."""
    b = Builder()
    values = [Value(tensor_type(a.dtype, a.shape)) for a in (*inputs, *params)]
    outputs = nodes(b, *values)
    graph = Graph("graph", tuple(values[:len(inputs)]), tuple(values[len(inputs):]), (), tuple(b.nodes), outputs)
    made = place.compile(graph, (), 0, 0, SPEED, (), None).executable
    sent = [card.xp.asarray(a) for a in params]
    return made, [card.host(y) for y in made.run([card.xp.asarray(a) for a in inputs], sent)], sent


def reasons(made: Any) -> dict[str, int]:
    """How many nodes are not computed by a library for which reason."""
    return {reason: count for (_, reason), count in made.report.refused.items()}


@pytest.mark.parametrize("refused", ["", "at first", "in a run"])
@pytest.mark.parametrize("alone", [False, True])
def test_products_of_halves(card: Machine, blas: CublasLt, alone: bool, refused: str) -> None:
    """They are added up in float32 and rounded once, by the library or by kernels; what follows is a part or behind."""
    if refused == "at first":
        blas.refuses = lambda *_: True
    if refused == "in a run":
        blas.fails = lambda: True

    def nodes(b: Builder, x: Value, y: Value) -> tuple[Value, ...]:
        product = b.one("matmul", b.call("tanh", x), b.call("tanh", y), transa=False, transb=True)
        return product if alone else b.call("tanh", product),
    x, y = normal(4, 40, dtype="e"), normal(6, 40, dtype="e")
    made, (found,), _ = executable(card, nodes, (x, y))
    expected = np.tanh(x).astype("f") @ np.tanh(y).astype("f").T
    expected = expected if alone else np.tanh(expected)
    assert refused or blas.made[-1]["dtype"] == ("float16" if alone else "float32")
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
    report = made.report
    assert (report.calls.total(), report.python_instructions) == (0 if refused else 1, 0)
    assert [isinstance(rows, list) for rows in made.rows] == [True]
    found, = made.run([card.xp.asarray(x), card.xp.asarray(y)])
    np.testing.assert_allclose(card.host(found), expected, rtol=1e-2, atol=1e-2)


def test_products_that_change_state_are_guarded_kernels(card: Machine, blas: CublasLt) -> None:
    def nodes(b: Builder, x: Value, state: Value) -> tuple[Value, ...]:
        b.assign(state, b.matmul(x, x))
        return b.matmul(x, x, transb=True),
    x = normal(5, 5)
    made, (found,), (state,) = executable(card, nodes, [x], [normal(5, 5)])
    np.testing.assert_allclose(card.host(state), x @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, x @ x.T, rtol=1e-4, atol=1e-5)
    assert reasons(made) == {"it changes state, if all indices are in bounds": 1}
    assert made.report.calls.total() == 1


STEPS_BEHIND = ("bias", "addend", "column", "relu", "factor", "tanh", "square", "shown")


@pytest.mark.slow
@settings(max_examples=examples(), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 20)), st.sampled_from(((), (1,), (3,))),
       st.booleans(), st.booleans(), st.lists(st.sampled_from(STEPS_BEHIND), max_size=4), st.integers(0, 7))
def test_any_epilogue(card: Machine, blas: CublasLt, sizes: tuple[int, int, int], batch: tuple[int, ...], transa: bool,
                      transb: bool, behind: list[str], trouble: int) -> None:
    """What the library does not compute is a kernel behind it; so is what it refuses, or fails to do."""
    m, n, k = sizes
    blas.refuses = lambda m, n, k, epilogue: trouble == 0 or trouble == 1 and bool(epilogue)
    blas.fails = lambda: trouble == 2
    operands = [normal(*batch, *((k, m) if transa else (m, k))), normal(*batch, *((n, k) if transb else (k, n))),
                normal(n), normal(*batch, m, n), normal(m, 1)]

    def nodes(b: Builder, a: Value, c: Value, bias: Value, full: Value, column: Value) -> tuple[Value, ...]:
        y = b.matmul(a, c, transa, transb)
        shape, shown = y.shape, []
        for step in behind:
            if step in ("bias", "column"):
                other = b.broadcast_to(bias if step == "bias" else column, shape)
                y = b.call("add" if step == "bias" else "multiply", y, other)
            elif step == "shown":
                shown.append(y)
            else:
                y = {"addend": lambda y: b.call("add", full, y), "relu": lambda y: b.call("maximum", y, 0),
                     "factor": lambda y: b.call("multiply", y, 0.5), "tanh": lambda y: b.call("tanh", y),
                     "square": lambda y: b.call("multiply", y, y)}[step](y)
        return *shown, y
    made, found, _ = executable(card, nodes, operands)
    wanted = [np.asarray(y) for y in interpret(made.plan.graph, operands, [])]
    again = [card.host(y) for y in made.run([card.xp.asarray(a) for a in operands])]
    for results in (found, again):
        for y, e in zip(results, wanted, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-4)


def test_integers_are_cupys(card: Machine, blas: CublasLt) -> None:
    x = np.arange(12).reshape(3, 4)
    made, (found,), _ = executable(card, lambda b, x: (b.matmul(x, x, transb=True),), [x])
    np.testing.assert_array_equal(found, x @ x.T)
    assert reasons(made) == {"products of int64 and int64": 1} and not blas.made


def test_empty_products_are_ours(card: Machine, blas: CublasLt) -> None:
    made, (found,), _ = executable(card, lambda b, x, y: (b.matmul(x, y),), [normal(3, 0), normal(0, 4)])
    assert not found.any() and reasons(made) == {"it is empty": 1}


class Net(kusari.Chain):
    """Two layers with a ReLU between them."""

    def __init__(self, n: int = 6) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, n, initialW=0.3), L.Linear(n, 3, initialW=0.2)

    @kusari.static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.relu(self.l1(x))), t)


T = np.array([0, 1, 2, 1, 0], "i")


class Training:
    """The same steps, compiled and define-by-run."""

    def __init__(self, card: Machine, n: int = 6) -> None:
        self.card = card
        self.model, self.expected = Net(n), Net(n)
        self.updaters = []
        for model in (self.model, self.expected):
            model.to_device("@cupy:0")
            self.updaters.append(kusari.optimizers.MomentumSGD(0.1).setup(model))
        self.given = card.xp.asarray(x), card.xp.asarray(T)

    def step(self, count: int = 1) -> None:
        """Train, and compare."""
        for _ in range(count):
            self.updaters[0].update(self.model.loss, *self.given)
            with kusari.using_config("use_static_graph", False):
                self.updaters[1].update(self.expected.loss, *self.given)
        for (_, p), (_, q) in zip(sorted(self.model.namedparams()), sorted(self.expected.namedparams()), strict=True):
            np.testing.assert_allclose(self.card.host(p.array), self.card.host(q.array), rtol=1e-4, atol=1e-6)

    @property
    def report(self) -> str:
        """Its plan in words."""
        return str(self.model.static.explain()) + str(self.model.static.explain("plan"))


def test_explain_names_the_library(card: Machine, blas: CublasLt) -> None:
    training = Training(card)
    training.step(3)
    assert ", 5 calls of cuBLASLt 12.9.3 on card 0" in training.report
    assert "cublasLtMatmul_bias_relu" in training.report and "of Kusari's own" not in training.report
    blas.fails = lambda: True
    assert "cublasLtMatmul" not in training.report, "what is not computed has no time"


def test_without_the_library(card: Machine) -> None:
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    training = Training(card)
    training.step(3)
    assert "5 products by kernels of Kusari's own: cuBLASLt was not found (pip install nvidia-cublas-cu12)" in (
        training.report)


def test_a_library_of_another_make(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    from kusari.runtime.card import libraries
    monkeypatch.setattr(libraries, "loaded", lambda stem, major: object())
    training = Training(card)
    training.step(3)
    assert "cuBLASLt cannot be loaded: 'object' object has no attribute 'cublasLtCreate'" in training.report


def test_libraries_can_be_switched_off(card: Machine, blas: CublasLt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_LIBRARIES", "0")
    training = Training(card)
    training.step(3)
    assert not blas.made and "cuBLASLt" not in training.report


def test_what_has_no_algorithm_is_ours(card: Machine, blas: CublasLt) -> None:
    blas.refuses = lambda m, n, k, epilogue: n == 3
    training = Training(card)
    training.step(4)
    made = blas.made
    assert made and all(call["n"] != 3 for call in made) and cupy_kernels.launches["graphs"]
    assert "by kernels of Kusari's own: cublasLtMatmulAlgoGetHeuristic: the stand-in says no (15)" in training.report


def test_epilogues_without_an_algorithm_are_kernels_behind(card: Machine, blas: CublasLt) -> None:
    blas.refuses = lambda m, n, k, epilogue: bool(epilogue)
    training = Training(card)
    training.step(4)
    assert {call["epilogue"] for call in blas.made} == {""} and "1 gradients of ReLU by" in training.report
    assert "products by kernels of Kusari's own" not in training.report


def test_a_relu_that_makes_numbers_of_nan_is_a_kernel(card: Machine, blas: CublasLt) -> None:
    blas.swallows_nan = True
    nan = x.copy()
    nan[2, 3] = np.nan
    _, (found,), _ = both(card, lambda x, W, b: F.relu(F.linear(x, W, b)), (nan, W, b))
    assert np.isnan(found[2]).all() and not np.isnan(found[[0, 1, 3, 4]]).any()


@pytest.mark.parametrize("graphs", ["1", "0"])
@pytest.mark.parametrize("late", range(4))
def test_a_call_that_fails_is_made_good_at_once(card: Machine, blas: CublasLt, late: int, graphs: str,
                                                monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """In the first run, in the capture or later: the step has its results, and those after it the library's others."""
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", graphs)
    Training(card).step(2)  # by which all epilogues are tried
    training = Training(card)
    count = [0]

    def fails() -> bool:
        count[0] += 1
        return count[0] == 3
    training.step(late)
    blas.fails = fails
    with caplog.at_level(logging.WARNING, "kusari.static"):
        training.step(5)
    if count[0] < 3:  # graphs are launched: nothing is called any more
        assert graphs == "1" and late >= 3
        return
    assert "cublasLtMatmul: the stand-in says no (14)" in caplog.text and "(14)" in training.report
    assert "4 calls of cuBLASLt" in training.report and (graphs == "0" or "as CUDA graphs" in training.report)
    blas.fails = lambda: False
    cupy_kernels.launches.clear()
    training.step()
    if graphs == "1":
        assert cupy_kernels.launches["calls"] == 4


def test_graphs_without_the_library_where_it_cannot_be_captured(card: Machine, blas: CublasLt,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    stream = cupy_kernels.cupy_streams.Stream
    begin, end = stream.begin_capture, stream.end_capture
    before: list[int] = []

    def beginning(self: Any) -> None:
        before.append(len(blas.made))
        begin(self)

    def ending(self: Any) -> Any:
        graph = end(self)
        if len(blas.made) > before[-1]:
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")
        return graph
    monkeypatch.setattr(stream, "begin_capture", beginning)
    monkeypatch.setattr(stream, "end_capture", ending)
    training = Training(card)
    training.step(6)
    cupy_kernels.launches.clear()
    training.step(1)
    assert "its calls cannot be part of a graph: cudaErrorStreamCaptureInvalidated" in training.report
    assert cupy_kernels.launches["graphs"] == 1 and not cupy_kernels.launches["calls"]


@pytest.mark.parametrize("value, compute", [("1", 77), ("0", 68)])
def test_tf32_is_cupys_switch(card: Machine, blas: CublasLt, value: str, compute: int,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_TF32", value)
    arrays = normal(5, 40), normal(40, 6)
    _, (found,), _ = both(card, lambda a, c: F.matmul(a, c), arrays)
    assert {call["compute"] for call in blas.made} == {compute}
    exact = arrays[0].astype("d") @ arrays[1]
    assert (np.abs(found - exact).max() > 1e-4) == (value == "1")
    both(card, lambda a, c: F.matmul(a, c), [a.astype("d") for a in arrays])
    assert blas.made[-1]["compute"] == 70


def test_products_on_streams_of_the_caller(card: Machine, blas: CublasLt) -> None:
    training = Training(card)
    for _ in range(5):
        with card.xp.cuda.Stream(non_blocking=True) as stream:
            training.step()
        stream.synchronize()
    assert blas.made


@pytest.mark.parametrize("offset, needs", [(1, 4), (4, 16)])
def test_arrays_that_begin_anywhere(card: Machine, blas: CublasLt, offset: int, needs: int) -> None:
    """Parameters are read where they lie: at addresses that other algorithms need, or none."""
    def nodes(b: Builder, x: Value, W: Value, bias: Value) -> tuple[Value, ...]:
        return b.call("add", b.matmul(x, W, transb=True), b.broadcast_to(bias, (5, 6))),
    made, (found,), _ = executable(card, nodes, [x], [W, b])
    np.testing.assert_allclose(found, x @ W.T + b, rtol=1e-4, atol=1e-5)
    moved = []
    for a in (W, b):
        memory = card.xp.zeros(a.size + 80, "f")
        start = -(memory.data.ptr // 4) % 64 + offset
        memory[start:start + a.size] = card.xp.asarray(a.ravel())
        moved.append(memory[start:start + a.size].reshape(a.shape))
    found, = made.run([card.xp.asarray(x)], moved)
    np.testing.assert_allclose(card.host(found), x @ W.T + b, rtol=1e-4, atol=1e-5)
    refused = {"the bias is aligned to 4 bytes only": 1} if needs == 4 else {}
    assert reasons(made) == refused and made.report.calls.total() == (not refused)


def test_pickled_models_train_on(card: Machine, blas: CublasLt) -> None:
    training = Training(card)
    training.step(3)
    training.model, training.expected = (pickle.loads(pickle.dumps(m)) for m in (training.model, training.expected))
    training.updaters = [kusari.optimizers.SGD(0.1).setup(m) for m in (training.model, training.expected)]
    before = len(blas.made)
    training.step(4)
    assert len(blas.made) > before


def test_frames_in_flight_have_workspaces_of_their_own(card: Machine, blas: CublasLt) -> None:
    function = kusari.static_graph(lambda a, c: F.tanh(F.matmul(a, c)))
    kept = []
    for _ in range(5):
        a, c = kusari.Variable(card.xp.asarray(normal(4, 40))), kusari.Variable(card.xp.asarray(normal(40, 6)))
        kept.append((a, c, function(a, c)))
    for a, c, y in kept:
        np.testing.assert_allclose(card.host(y.array), np.tanh(card.host(a.array) @ card.host(c.array)), rtol=1e-4,
                                   atol=1e-5)
        y.grad = card.xp.ones_like(y.array)
        y.backward()
        expected = (1 - np.tanh(card.host(a.array) @ card.host(c.array)) ** 2) @ card.host(c.array).T
        np.testing.assert_allclose(card.host(a.grad), expected, rtol=1e-3, atol=1e-4)


def test_each_card_has_its_handle(two_cards: Machine) -> None:
    if not two_cards.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    with cublaslt() as blas:
        function = kusari.static_graph(lambda a, c: F.matmul(a, c))
        for device in (0, 1, 0, 1):
            for _ in range(3):
                a, c = normal(4, 20), normal(20, 6)
                with two_cards.xp.cuda.Device(device):
                    sent = two_cards.xp.asarray(a), two_cards.xp.asarray(c)
                with kusari.no_backprop_mode():
                    y = function(*sent)
                np.testing.assert_allclose(two_cards.host(y.array), a @ c, rtol=1e-4, atol=1e-5)
        assert blas.made


def test_memory_that_runs_out_while_a_relu_is_tried(card: Machine, blas: CublasLt) -> None:
    cupy_memory.pool.set_limit(cupy_memory.pool.used_bytes() + (1 << 20))
    try:
        check(card, lambda x, W, b: F.relu(F.linear(x, W, b)), (x, W, b))
    finally:
        cupy_memory.pool.set_limit(0)
    assert {call["epilogue"] for call in blas.made} == {""}
