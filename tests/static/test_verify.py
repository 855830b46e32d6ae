"""``verify=k``: what is compared, what is put back, and who is blamed."""
from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.ir import Call, Graph, Node, fold
from kusari.optimizers import SGD
from kusari.passes import PIPELINE, name_of
from kusari.runtime import ObjectCache, default_loader
from kusari.static import StaticGraphError
from kusari.static.compile import compile
from kusari.static.replay.schedule import Schedule

X = np.random.RandomState(0).randn(5, 4).astype("f")


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None
        with self.init_scope():
            self.l1 = L.Linear(4, 6)
            self.norm = L.BatchNormalization(6)
            self.l2 = L.Linear(6, 3)

    def compute(self, x: Any, k: float = 1.0) -> Any:
        h = F.dropout(F.relu(self.norm(self.l1(x))), 0.3)
        self.last = F.mean(h)
        return {"y": self.l2(h) * k, "h": [h]}


def train(method: Callable[..., Any]) -> list[np.ndarray]:
    """Train a little; returns everything that came out."""
    model_type = type("Trained", (Model,), {"forward": method})
    np.random.seed(0)
    model = model_type()
    optimizer = SGD(0.001).setup(model)
    seen: list[np.ndarray] = []
    for i in range(6):
        model.cleargrads()
        x = kusari.Variable(X * (1 + 0.1 * i))
        ys = model(x, k=2.0)
        loss = F.sum(ys["y"] ** 2) + F.sum(ys["h"][0])
        loss.backward()
        optimizer.update()
        assert x.grad is not None
        seen += [loss.array.copy(), x.grad, model.last.array.copy(), model.norm.avg_mean.copy(), np.random.rand(1)]
    return seen


@pytest.mark.parametrize("every", [1, 2, 3])
def test_nothing_is_advanced_twice(every: int) -> None:
    verified = static_graph(verify=every)(Model.compute)
    for a, b in zip(train(Model.compute), train(verified), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5)
    assert verified.static.verifier.compared == {1: 5, 2: 3, 3: 2}[every]


def test_whole_steps_are_made_in_parts_when_they_are_verified() -> None:
    class Classifier(Model):
        @static_graph(verify=3)
        def forward(self, x: Any) -> Any:
            return F.sum(self.l2(F.dropout(self.norm(self.l1(x)))))

    model = Classifier()
    optimizer = SGD(0.001).setup(model)
    for _ in range(9):
        optimizer.update(model, X)
    assert Classifier.forward.static.verifier.compared == 3


def test_not_in_the_way_when_off() -> None:
    assert static_graph(lambda x: x).static.verifier is None


def miscompile(monkeypatch: Any, name: str) -> None:
    """From now on let compiled code compute the sigmoid in place of ``name``."""
    from kusari.static.compile import compile
    from kusari.static.replay import schedule
    from kusari.static.verify import blame
    sigmoid = static_graph(lambda x: F.sigmoid(x))
    sigmoid(X)
    other = sigmoid.static.recorded((X,), {}).graph.nodes[0]
    original = compile.compile_graph

    def compile_graph(graph: Any, *args: Any, **kwargs: Any) -> Any:
        nodes = [type(n)(other.op, n.inputs, n.outputs, other.attrs, n.where) if n.op.name == name else n
                 for n in graph.nodes]
        return original(graph.with_nodes(nodes), *args, **kwargs)
    for module in (schedule, blame):
        monkeypatch.setattr(module, "compile_graph", compile_graph)


def test_the_first_node_that_differs_is_named(monkeypatch: Any) -> None:
    @static_graph(verify=1)
    def f(x: Any) -> Any:
        h = F.tanh(x)
        h = F.leaky_relu(h, 0.1)  # this line
        return F.sum(F.exp(h))

    f(X)
    miscompile(monkeypatch, "LeakyReLU")
    with pytest.raises(StaticGraphError, match="in result 0") as info:
        f(X)
    line = test_the_first_node_that_differs_is_named.__code__.co_firstlineno + 4
    assert re.search(rf"first node that differs is LeakyReLU \(test_verify.py:{line}\), as compiled", str(info.value))


def test_the_first_gradient_that_differs_is_named(monkeypatch: Any) -> None:
    @static_graph(verify=1)
    def f(x: Any) -> Any:
        h = 2 - F.tanh(x)  # this line
        return F.sum(F.exp(h))

    f(kusari.Variable(X))
    miscompile(monkeypatch, "_ - _Grad")
    with pytest.raises(StaticGraphError, match="in the gradient of x0") as info:
        f(kusari.Variable(X)).backward()
    line = test_the_first_gradient_that_differs_is_named.__code__.co_firstlineno + 3
    assert re.search(rf"first node that differs is _ - _Grad \(test_verify.py:{line}\), as compiled", str(info.value))


def test_what_the_guards_missed_is_named() -> None:
    slope = 0.5

    @static_graph(verify=1)
    def f(x: Any) -> Any:
        return F.leaky_relu(F.tanh(x), slope)

    f(X)
    f(X)
    f.static.entry((X,), {}).check = None  # no guards
    slope = 0.1
    with pytest.raises(StaticGraphError, match=r"(?s)in result 0.*attributes of LeakyReLU \(test_verify.py:\d+\)"):
        f(X)


def test_wrong_gradients_are_found_at_backward(monkeypatch: Any) -> None:
    from kusari.static.replay import schedule

    @static_graph(verify=1)
    def f(x: Any) -> Any:
        return F.sum(F.leaky_relu(F.tanh(x)))

    f(kusari.Variable(X))
    original = schedule.Call.gradients
    monkeypatch.setattr(schedule.Call, "gradients", lambda *args: [2 * g for g in original(*args)])
    y = f(kusari.Variable(X))
    with pytest.raises(StaticGraphError, match="in the gradient of x0"):
        y.backward()


def test_wrong_state_is_found(monkeypatch: Any) -> None:
    model = type("Wrong", (Model,), {"forward": static_graph(verify=1)(Model.compute)})()
    model(X)
    original = Schedule.__call__

    def call(self: Any, leaves: Any) -> Any:
        result = original(self, leaves)
        model.norm.avg_mean += 1
        return result
    monkeypatch.setattr(Schedule, "__call__", call)
    with pytest.raises(StaticGraphError, match=r"in Wrong\.norm\.avg_mean"):
        model(X)


def test_check_verifies_every_call(tmp_path: Path) -> None:
    program = """
import numpy as np, kusari, kusari.functions as F
f = kusari.static_graph(lambda x: F.relu(x))
for _ in range(4):
    f(np.ones(3, "f"))
print(f.static.verifier.every, f.static.verifier.compared)
"""
    import os
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True,
                          env={**os.environ, "KUSARI_CHECK": "1"})
    assert done.stdout.split() == ["1", "3"]


def test_options() -> None:
    with pytest.raises(ValueError, match="verify must be 0 or"):
        static_graph(verify=-1)(lambda x: x)


# -- passes to blame ---------------------------------------------------------------------------------------------------

def confused(graph: Graph) -> Graph:
    """The graph with cosines in place of sines."""
    def other(e: Any) -> Any:
        return fold(e, lambda e: e, lambda fn, args: Call("cos" if fn == "sin" else fn, tuple(args)))

    def of(node: Node) -> Node:
        new = {k: other(v) if k == "expr" else confused(v) if k == "body" else v for k, v in node.attrs.items()}
        return replace(node, attrs=new)

    return graph.with_nodes([of(n) for n in graph.nodes])


def confuse(graph: Graph) -> Graph:
    """A pass with a fault."""
    return confused(graph)


def confuse_large(graph: Graph) -> Graph:
    """A pass with a fault that shows where there are several outputs."""
    return confused(graph) if len(graph.outputs) > 1 else graph


def confuse_gradients(graph: Graph) -> Graph:
    """A pass with a fault that shows in backwards."""
    return confused(graph) if graph.name.endswith("_backward") else graph


def waves(x: Any) -> Any:
    return F.exp(F.sin(x)), F.cos(x)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "message"), [
    (confuse, r"first node that differs is Sin \(test_verify.py:\d+\), as compiled: .* off by .*\. The first pass that "
              r"changes a result is confuse: .* became .*\. KUSARI_PASSES=-confuse leaves it out"),
    (confuse_large, "No node differs by itself; .* The first pass that changes a result is confuse_large: "),
    (confuse_gradients, "in the gradient of x0: .* The first pass that changes a result is confuse_gradients: "),
], ids=lambda x: getattr(x, "__name__", ""))
def test_the_first_pass_that_changes_a_result_is_named(monkeypatch: Any, step: Any, message: str) -> None:
    def run() -> None:
        f = static_graph(verify=1)(waves)
        for _ in range(2):
            y, z = f(kusari.Variable(X))
            (F.sum(y) + F.sum(z)).backward()

    before = [name_of(p) for p in PIPELINE].index("stack_pads")
    monkeypatch.setattr(compile, "PIPELINE", (*PIPELINE[:before], step, *PIPELINE[before:]))
    with pytest.raises(StaticGraphError, match=f"(?s){message}"):
        run()
    monkeypatch.setenv("KUSARI_PASSES", f"-{step.__name__}")
    run()


def test_passes_are_not_blamed_for_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(default_loader(), "cache", ObjectCache(tmp_path))
    original = compile.generate
    monkeypatch.setattr(compile, "generate", lambda plan, *options: original(
        replace(plan, graph=confused(plan.graph)), *options))
    f = static_graph(verify=1)(lambda x: F.sin(x) * 3)
    with pytest.raises(StaticGraphError, match="node that differs is Sin .* No pass changes a result: the memory"):
        for _ in range(2):
            f(X)


# -- rounding at thresholds --------------------------------------------------------------------------------------------

def cancelling(n: int = 600) -> np.ndarray:
    """Rows whose sums are zero but for rounding: on which side of it depends on the order of the terms."""
    rs = np.random.RandomState(1)
    half = rs.randn(64, n // 2).astype("f")
    return np.concatenate([half, -half[:, rs.permutation(n // 2)]], axis=1)


class Thresholds(kusari.Chain):
    """A network whose first values lie within rounding of where ReLU changes."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(600, 8, initialW=1.0, nobias=True)
            self.norm = L.BatchNormalization(8)
            self.second = L.Linear(8, 8)

    def compute(self, x: Any) -> Any:
        h = self.norm(F.relu(self.first(x)) + x[:, :8])
        h = F.leaky_relu(F.tanh(self.second(h)), 0.1)
        return F.sum(F.max(h, axis=1) * h[:, 0])


def steps(model: Any, n: int = 3) -> list[str]:
    """Train with verification; returns what was excused."""
    for i in range(n):
        model.cleargrads()
        model.loss(cancelling() * np.float32(1 + i)).backward()
    return type(model).loss.static.verifier.excused


def test_values_within_rounding_of_a_threshold_are_no_differences() -> None:
    np.random.seed(0)
    model = type("Verified", (Thresholds,), {"loss": static_graph(verify=1)(Thresholds.compute)})()
    excused = steps(model)
    assert any("gradient" in what for what in excused), "rounding made no difference: the test shows nothing"
    assert "arrays differ since values lie within rounding" in str(type(model).loss.explain("all"))


@pytest.mark.parametrize("name", ["Tanh", "LeakyReLU", "Max"])
def test_wrong_code_is_found_beside_them(monkeypatch: Any, name: str) -> None:
    np.random.seed(0)
    model = type("Verified", (Thresholds,), {"loss": static_graph(verify=1)(Thresholds.compute)})()
    model.loss(cancelling())
    miscompile(monkeypatch, name) if name != "Max" else miscompile_reductions(monkeypatch)
    with pytest.raises(StaticGraphError, match=f"in result 0.*first node that differs is {name}"):
        model.loss(cancelling())


def miscompile_reductions(monkeypatch: Any) -> None:
    """From now on let compiled code take the smallest in place of the largest."""
    from kusari.static.compile import compile
    from kusari.static.replay import schedule
    from kusari.static.verify import blame
    smallest = static_graph(lambda x: F.min(x, axis=1))
    smallest(X)
    other = smallest.static.recorded((X,), {}).graph.nodes[0]
    original = compile.compile_graph

    def compile_graph(graph: Any, *args: Any, **kwargs: Any) -> Any:
        nodes = [type(n)(other.op, n.inputs, n.outputs, other.attrs, n.where) if n.op.name == "Max" else n
                 for n in graph.nodes]
        return original(graph.with_nodes(nodes), *args, **kwargs)
    for module in (schedule, blame):
        monkeypatch.setattr(module, "compile_graph", compile_graph)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [2.0, 1.02])
def test_wrong_gradients_are_found_beside_them(monkeypatch: Any, factor: float) -> None:
    from kusari.static.replay import schedule
    np.random.seed(0)
    model = type("Verified", (Thresholds,), {"loss": static_graph(verify=1)(Thresholds.compute)})()
    model.loss(cancelling())
    original = schedule.Call.gradients
    monkeypatch.setattr(schedule.Call, "gradients", lambda *args: [np.float32(factor) * g for g in original(*args)])
    with pytest.raises(StaticGraphError, match="in the gradient of"):
        model.loss(cancelling()).backward()
