"""Objects around a static function: copies, threads, hooks, errors, memory, shapes, updates."""
from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from static.hazards import Normed, eager, warm, xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, optimizers, serializers, static_graph
from kusari.static import StaticGraphError
from kusari.static.replay import fast_path, schedule_cache
from kusari.static.replay.schedule import Schedule
from kusari.static.replay.schedule_cache import OFTEN_CALLS, SOON_SIGNATURES

# -- copies ------------------------------------------------------------------------------------------------------------

def saved_and_loaded(model: Any) -> Any:
    file = io.BytesIO()
    serializers.save_npz(file, model)
    file.seek(0)
    other = warm(Normed())
    serializers.load_npz(file, other)
    return other


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "npz": saved_and_loaded,
    "copy-copy": lambda m: m.copy("copy"),
    "copy-share": lambda m: m.copy("share"),
    "copy.copy": copy.copy,
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("train", [True, False])
def test_copies_after_a_trace(name: str, train: bool) -> None:
    model = warm(Normed())
    other = COPIES[name](model)
    for p in model.params():
        p.array = p.array * 2
    reference_model, reference_other = copy.deepcopy(model), copy.deepcopy(other)
    if name in ("copy-share", "copy.copy"):
        return_to = [model, other]
    else:
        return_to = [model, other]
    with kusari.using_config("train", train):
        for x in xs(4):
            for m, reference in zip(return_to, (reference_model, reference_other), strict=True):
                np.testing.assert_allclose(m(x).array, eager(reference, x).array, rtol=1e-5, atol=1e-5)
                if name == "copy.copy":  # both share one normalization
                    break


def test_instances_do_not_share_schedules() -> None:
    models = [Normed() for _ in range(3)]
    for x in xs(4):
        for m in models:
            np.testing.assert_allclose(m(x).array, eager(copy.deepcopy(m), x).array, rtol=1e-4, atol=1e-5)


def test_classes_and_functions_as_first_arguments() -> None:
    class A:
        scale = 1.0

    class B:
        scale = 2.0

    @static_graph
    def f(kind: Any, x: Any) -> Any:
        return F.relu(x) * kind.scale

    @static_graph
    def g(k: Any, x: Any) -> Any:
        return F.relu(x) * k

    parameters = [kusari.Parameter(np.float32(value).reshape(1)) for value in (2, 3)]
    for x in xs(6):
        for kind in (A, B, A(), B()):
            np.testing.assert_array_equal(f(kind, x).array, np.maximum(x, 0) * kind.scale)
        for k in (np.float32(2), np.float32(3), 4, 5.0):
            np.testing.assert_array_equal(g(k, x).array, np.maximum(x, 0) * np.float32(k))
        for p in parameters:
            np.testing.assert_array_equal(g(p, x).array, np.maximum(x, 0) * p.array)


# -- memory ------------------------------------------------------------------------------------------------------------

class Reporting(Normed):
    @static_graph
    def forward(self, x: Any) -> Any:
        y = F.sum(self.norm(self.l(x)))
        self.count()
        self.loss = y
        kusari.report({"loss": y}, self)
        return y

    @kusari.static_code
    def count(self) -> None:
        self.calls = getattr(self, "calls", 0) + 1


@pytest.mark.parametrize(("step", "make"), [(True, Reporting), *(
    pytest.param(*case, marks=pytest.mark.slow) for case in ((False, Normed), (False, Reporting), (True, Normed)))])
def test_a_deleted_model_is_freed(make: Any, step: bool) -> None:
    model = make()
    if step:
        class Loss(make):  # type: ignore[misc]
            @static_graph
            def loss(self, x: Any) -> Any:
                return F.sum(F.tanh(self.l(x))) + F.sum(self.norm.gamma) + F.sum(self.norm.beta)

        model = Loss()
        optimizer = optimizers.Adam().setup(model)
        for x in xs(4):
            optimizer.update(model.loss, x)
        del optimizer
    reporter = kusari.Reporter()
    reporter.add_observer("main", model)
    with reporter.scope({}):
        warm(model, 4)
    refs = [weakref.ref(model), weakref.ref(model.l), weakref.ref(model.l.W), weakref.ref(model.l.W.array)]
    del model, reporter
    gc.collect()
    assert [r() for r in refs] == [None] * 4


def test_a_deleted_optimizer_is_freed() -> None:
    model = Normed()
    optimizer = optimizers.Adam().setup(model)
    loss = static_graph(lambda x: F.sum(model.l(x)) + F.sum(model.norm.gamma) + F.sum(model.norm.beta))
    for x in xs(4):
        optimizer.update(loss, x)
    refs = [weakref.ref(optimizer), weakref.ref(model.l.W.update_rule)]
    for p in model.params():
        p.update_rule = None
    del optimizer, p
    gc.collect()
    assert [r() for r in refs] == [None] * 2


def test_batches_and_results_are_freed() -> None:
    model = warm(Normed())
    x = np.zeros((3, 4), "f")
    v = Variable(np.zeros((300, 400), "f"))

    @static_graph
    def f(v: Any) -> Any:
        return F.tanh(v)

    for _ in range(3):
        y = f(v)
        F.sum(y).backward()
    model(x)
    refs = [weakref.ref(a) for a in (x, v.array, y.array, v)]
    del x, v, y
    gc.collect()
    assert [r() for r in refs] == [None] * 4


@pytest.mark.slow
def test_many_shapes_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the first are traced when they have come often, and only so many are kept."""
    monkeypatch.setattr(schedule_cache, "MAX_SCHEDULES", SOON_SIGNATURES + 3)
    model = Normed()

    def compare(n: int) -> None:
        x = np.random.randn(n, 4).astype("f")
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            np.testing.assert_allclose(model(x).array, eager(model, x).array, rtol=1e-4, atol=1e-5)
    for n in [*range(1, SOON_SIGNATURES + 8), 1, 2, 3, 3]:
        compare(n)
    static = Normed.forward.static
    assert len(static.signatures(model)) == SOON_SIGNATURES
    waiting = "  7 more signatures run define-by-run: beyond 32, those are traced that come 6 times"
    assert waiting in str(static.explain())
    for _ in range(OFTEN_CALLS + 1):
        for n in range(SOON_SIGNATURES + 1, SOON_SIGNATURES + 8):
            compare(n)
    assert len(static.signatures(model)) == SOON_SIGNATURES + 3
    assert all(type(e) is Schedule for _, e in static.signatures(model)[-3:])


def test_shapes_in_turn_replay_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is generated, looked for or bound anew when shapes change from call to call."""
    model = Normed()
    xs = [np.random.randn(n, 4).astype("f") for n in (1, 2, 3)]
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        for x in xs * 3:
            model(x)
        monkeypatch.setattr(fast_path, "compiled", None)
        monkeypatch.setattr(Schedule, "__call__", None)
        for x in xs * 2:
            np.testing.assert_allclose(model(x).array, eager(model, x).array, rtol=1e-4, atol=1e-5)


def test_arrays_of_another_layout_do_not_renew_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Normed(), np.random.randn(3, 4).astype("f")
    for _ in range(3):
        model(x)
    monkeypatch.setattr(fast_path, "compiled", None)
    for y in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x):
        np.testing.assert_allclose(model(y).array, eager(model, x).array, rtol=1e-4, atol=1e-5)


def test_last_partial_batch_every_epoch(assert_same: Any) -> None:
    rs = np.random.RandomState(0)
    data = [rs.randn(n, 4).astype("f") for n in (6, 6, 2) * 3]
    assert_same(Normed, lambda m, x: F.sum(m(x)), data, optimizer=optimizers.MomentumSGD, rtol=1e-4, atol=1e-5)


# -- threads -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("backprop", [0b0000, 0b1111, 0b0101], ids=["evaluate", "train", "both"])
def test_four_threads(backprop: int) -> None:
    class Plain(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(4, 64)
                self.m = L.Linear(64, 4)

        @static_graph
        def forward(self, x: Any) -> Any:
            return self.m(F.tanh(self.l(x)))

    model = Plain()
    wrong: list[Any] = []
    start = threading.Barrier(4)

    def work(k: int) -> None:
        rs = np.random.RandomState(k)
        start.wait()
        try:
            for _ in range(60):
                x = rs.randn(1 + k % 2, 4).astype("f")
                v = Variable(x)
                train = bool(backprop >> k & 1)
                with kusari.using_config("enable_backprop", train), kusari.using_config("train", train):
                    y = model(v)
                h = np.tanh(x @ model.l.W.array.T + model.l.b.array)
                good = np.allclose(y.array, h @ model.m.W.array.T + model.m.b.array, atol=1e-4)
                if train:
                    gx, = kusari.grad([y], [v])
                    expected = (model.m.W.array.sum(axis=0) * (1 - h * h)) @ model.l.W.array
                    good = good and np.allclose(gx.array, expected, atol=1e-4)
                if not good:
                    wrong.append((k, y.array))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


# -- errors ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("when", [0, 1, 2])
def test_exceptions_leave_nothing_behind(both: Any, when: int) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            fails = False

            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l = L.Linear(4, 4)

            @decorate
            def forward(self, x: Any) -> Any:
                h = self.l(x)
                if self.fails:
                    raise ValueError("on purpose")
                return F.relu(h)

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            model.fails = i == when
            try:
                return model(x)
            except ValueError as error:
                return str(error)
        return call

    both(make, list(enumerate(xs(6))))


def test_bad_shapes_raise_as_define_by_run_does() -> None:
    model = warm(Normed())
    for bad in (np.zeros((3, 5), "f"), np.zeros((3, 4), "i")):
        with pytest.raises(kusari.utils.type_check.InvalidType):
            model(bad)
    np.testing.assert_allclose(model(xs()[0]).array, eager(copy.deepcopy(model), xs()[0]).array, atol=1e-5)


def test_strict_also_raises_for_guards_that_always_fail() -> None:
    class Changing(Normed):
        scale = 0

        @static_graph(strict=True)
        def forward(self, x: Any) -> Any:
            return F.leaky_relu(self.l(x), self.scale)

    model = Changing()
    with pytest.raises(StaticGraphError, match=r"scale .*changes in every call"):
        for x in xs(12):
            model.scale += 1
            model(x)


def test_debug_mode_names_the_function() -> None:
    @static_graph
    def f(x: Any) -> Any:
        return F.exp(F.log(x))

    x = np.ones((2, 2), "f")
    for _ in range(3):
        f(x)
    with kusari.using_config("debug", True), np.errstate(invalid="ignore"), \
            pytest.raises(RuntimeError, match="NaN is detected on forward computation of log"):
        f(-x)
    np.testing.assert_allclose(f(x).array, x)


def test_debug_mode_and_hooks_see_the_backward_of_compiled_calls() -> None:
    """The forward has run compiled before anybody looked."""
    @static_graph
    def f(v: Any) -> Any:
        return F.sum(F.sqrt(F.dropout(v) + v) * 0)  # this line

    class Names(kusari.FunctionHook):
        name = "Names"

        def __init__(self) -> None:
            self.seen: list[str] = []

        def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
            self.seen.append(function.label)

    seen: list[Any] = []
    for static in (False, True):
        np.random.seed(0)
        v = Variable(np.ones((2, 2), "f"))
        with kusari.using_config("use_static_graph", static):
            for _ in range(3):
                y = f(v)
        hook = Names()
        random = np.random.get_state()[2]
        with hook:
            y.backward()
        assert np.random.get_state()[2] == random
        seen.append((hook.seen, v.grad))
    assert seen[0][0] == seen[1][0] != []
    np.testing.assert_allclose(seen[0][1], seen[1][1])
    line = test_debug_mode_and_hooks_see_the_backward_of_compiled_calls.__code__.co_firstlineno + 4
    for _ in range(3):
        y = f(Variable(np.zeros((2, 2), "f")))
    with kusari.using_config("debug", True), np.errstate(all="ignore"), pytest.raises(RuntimeError) as info:
        y.backward()
    assert "SqrtGrad" in str(info.value) and f"line {line}" in str(info.value)
