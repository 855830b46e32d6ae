"""``kusari.profile``: functions and rows with their lines, by thread, properly nested; nothing stays behind."""
from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph, tape
from kusari.explanation import Table
from kusari.function_hooks import TimerHook
from kusari.profiling.events import Event, own_times
from kusari.profiling.profile import _time
from kusari.runtime import Frame

X, T = np.ones((64, 200), "f"), np.zeros(64, "i")


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.a = L.Linear(200, 300)
            self.b = L.Linear(300, 10)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.b(F.relu(self.a(x))), t)


class Twice(kusari.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return 2 * inputs[0],

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> Any:
        return 2 * grad_outputs[0],


@static_graph
def with_python(x: Any) -> Any:
    return F.exp(Twice().apply((F.tanh(x),))[0])


def here(line: int) -> str:
    return f"test_profile.py:{line}"


LOSS = here(Model.loss.__wrapped__.__code__.co_firstlineno + 2)


def test_functions_have_their_lines() -> None:
    x = kusari.Variable(X)
    with kusari.profile() as p:
        F.sum(F.relu(x)).backward()
    line = here(test_functions_have_their_lines.__code__.co_firstlineno + 3)
    assert {(e.name, e.kind, e.line) for e in p.events} >= {
        (name, kind, line) for name in ("ReLU", "Sum") for kind in ("forward", "backward")}


def test_rows_of_compiled_code_lie_inside_its_calls() -> None:
    model = Model()
    for _ in range(3):
        model.loss(X, T).backward()
    with kusari.profile() as p:
        model.loss(X, T).backward()
    calls = [e for e in p.events if e.kind == "compiled"]
    rows = [e for e in p.events if e.kind == "kernel"]
    assert [e.name for e in calls] == ["loss", "loss_backward"]
    assert calls[0].line == here(test_rows_of_compiled_code_lie_inside_its_calls.__code__.co_firstlineno + 5)
    assert {e.line for e in rows} == {LOSS} and any(e.name.startswith("gemm") for e in rows)
    assert all(any(c.begin <= e.begin <= e.end <= c.end for c in calls) for e in rows)
    assert {e.thread for e in rows} <= set(p._threads) and threading.get_ident() in {e.thread for e in rows}
    kernels = [k for s in Model.loss.static.caches(model)[0].entries.values() for c in s.schedule.compiled
               for k in c.program.instructions if k.kernel]
    assert len([e for e in rows if not e.shared]) == len(kernels)


def test_the_rest_of_a_compiled_call_has_a_row() -> None:
    """It is the call's time without that of its kernels on the thread that calls: waiting for threads, and Python."""
    model = Model()
    for _ in range(3):
        model.loss(X, T)
    with kusari.profile() as p:
        model.loss(X, T)
    (call,) = (e for e in p.events if e.kind == "compiled")
    kernels = [e for e in p.events if e.kind == "kernel" and e.thread == call.thread]
    rest = call.end - call.begin - sum(e.end - e.begin for e in kernels)
    (table,) = (part for part in p.explanation.sections[2].content if isinstance(part, Table))
    assert 0 < rest < call.end - call.begin
    assert [(time, *row) for time, _, *row in table.rows if row[2] == "loss"] == [
        (_time(rest), "1", "waiting, Python", "loss")]


def test_python_rows_and_errors_are_noted() -> None:
    for _ in range(3):
        before = with_python(X)
    with kusari.profile() as p:
        y = with_python(X)
        with pytest.raises(kusari.utils.type_check.InvalidType):
            F.matmul(X, X)
        F.relu(X)
    assert np.array_equal(y.array, before.array)
    names = [(e.name, e.kind) for e in p.events]
    assert ("Twice", "python") in names and names[-1] == ("ReLU", "forward") and ("MatMul", "forward") not in names


def test_first_calls_are_traced_and_compiled_inside() -> None:
    with kusari.profile() as p:
        model = Model()
        results = [model.loss(X, T).array for _ in range(3)]
    assert results[0] == pytest.approx(results[2], rel=1e-5)
    assert [e.name for e in p.events if e.kind == "tracing"] == ["Model.loss"]
    assert "loss" in [e.name for e in p.events if e.kind == "compiling"]


def test_nothing_stays_behind_and_compiled_code_goes_on() -> None:
    others = set(Frame.every)  # of other tests, which may go at any time
    model = Model()
    for _ in range(3):
        model.loss(X, T)
    runs = {f: f.__dict__.get("run") for f in set(Frame.every) - others}
    assert runs
    with kusari.profile() as p:
        with TimerHook() as timer:  # which wants to see each function
            model.loss(X, T)
        model.loss(X, T)
        with pytest.raises(RuntimeError, match="a profile is open already"), kusari.profile():
            pass
    assert {"ReLU", "LinearFunction"} <= set(timer.summary())
    assert [e.name for e in p.events if e.kind == "compiled"] == ["loss"]
    assert {f: f.__dict__.get("run") for f in runs} == runs
    assert not any("timed" in f.__dict__ or f.closed and "run" in f.__dict__ for f in set(Frame.every))
    assert not tape.current.function_hooks and Frame.timer is None
    count = len(p.events)
    model.loss(X, T)
    assert len(p.events) == count


def test_all_threads_are_seen() -> None:
    with kusari.profile() as p:
        thread = threading.Thread(target=lambda: F.relu(X), name="another")
        thread.start()
        thread.join()
    (event,) = p.events
    assert event.thread != threading.get_ident() and p._threads[event.thread] == "another"


def test_the_trace_is_what_viewers_read(tmp_path: Path) -> None:
    with kusari.profile(tmp_path / "trace.json"):
        F.sum(F.relu(kusari.Variable(X))).backward()
    rows = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    whole = [r for r in rows if r["ph"] == "X"]
    assert [r["name"] for r in whole if r["cat"] == "backward"] == ["Sum (backward)", "ReLU (backward)"]
    assert all(r["ts"] >= 0 and r["dur"] >= 0 and r["args"]["line"].startswith("test_profile.py:") for r in whole)
    assert [r["args"]["name"] for r in rows if r["name"] == "thread_name"][0] == "MainThread"


def test_own_times_leave_out_what_is_inside() -> None:
    events = [Event("a", "forward", 1, 0, 10), Event("b", "forward", 1, 2, 5), Event("c", "forward", 1, 3, 4),
              Event("d", "forward", 1, 10, 11), Event("e", "forward", 2, 1, 9)]
    assert {e.name: own for e, own in own_times(events)} == {"a": 7, "b": 2, "c": 1, "d": 1, "e": 8}


def test_tables_show_lines_with_their_source() -> None:
    with kusari.profile() as p:
        F.relu(X)  # a comment
    assert "F.relu(X)  # a comment" in str(p) and repr(p) == str(p)
    assert "<table>" in p._repr_html_() and "ReLU" in p._repr_html_()


@pytest.mark.parametrize("left", [True, False])
def test_a_profile_inside_that_of_a_script(left: bool) -> None:
    """The outer one has all events, also where the inner one is never left; a third one is refused."""
    x = kusari.Variable(X)
    inner = kusari.profile()
    with kusari.profile.of_a_script() as outer:
        F.relu(x)
        inner.__enter__()
        F.exp(x)
        with pytest.raises(RuntimeError, match="a profile is open already"):
            kusari.profile().__enter__()
        if left:
            inner.__exit__()
            F.tanh(x)
    F.sin(x)
    assert [e.name for e in inner.events] == ["exp"]
    assert [e.name for e in outer.events] == ["ReLU", "exp", "Tanh"][:3 if left else 2]
    with kusari.profile():
        pass
