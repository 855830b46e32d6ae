"""The pipeline: checked after every pass, watched on request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kusari.ir import Builder, Graph, Node, Value, VerifyError, tensor_type
from kusari.passes import PIPELINE, run_pipeline
from kusari.passes.pipeline import name_of
from kusari.passes.tidy import remove_dead


def graph() -> Graph:
    x = Value(tensor_type("float32", (4,)), "x")
    b = Builder("model.py:3")
    b.call("tanh", x)
    y = b.call("exp", b.call("multiply", x, 1.0))
    return Graph("net/forward", (x,), (), (), tuple(b.nodes), (y,))


def break_it(g: Graph) -> Graph:
    """A pass with a fault: an output of another type."""
    n = g.nodes[-1]
    bad = Node(n.op, n.inputs, (Value(tensor_type("float64", (4,))),), n.attrs, n.where)
    return g.with_nodes([*g.nodes[:-1], bad], bad.outputs)


def test_a_fault_names_the_passes_that_ran() -> None:
    with pytest.raises(VerifyError) as info:
        run_pipeline(graph(), (remove_dead, break_it, *PIPELINE))
    text = str(info.value)
    assert "after the passes: remove_dead, break_it" in text
    assert "-->" in text and "model.py:3" in text


def test_a_graph_with_a_fault_is_refused_at_the_start() -> None:
    with pytest.raises(VerifyError) as info:
        run_pipeline(break_it(graph()))
    assert "after the passes" not in str(info.value)


def test_observers_see_every_pass() -> None:
    seen: list[tuple[str, int, int]] = []
    run_pipeline(graph(), (remove_dead, remove_dead),
                 lambda name, before, after: seen.append((name, len(before.nodes), len(after.nodes))))
    assert seen == [("remove_dead", 3, 2), ("remove_dead", 2, 2)]


def test_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KUSARI_LOG", "trace,passes")
    with caplog.at_level(logging.INFO, "kusari.passes"):
        run_pipeline(graph())
    assert "net/forward: remove_dead: 3 nodes -> 2" in caplog.text
    assert "nothing to do" in caplog.text


def test_nothing_is_logged_unasked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kusari.passes"):
        run_pipeline(graph())
    assert caplog.text == ""


def test_dump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUSARI_DUMP", str(tmp_path / "dump"))
    run_pipeline(graph())
    names = sorted(p.name.split("-", 1)[1] for p in (tmp_path / "dump").iterdir())
    assert names[:2] == ["net_forward-00-traced.txt", "net_forward-01-lower.txt"]
    assert len(names) == 1 + len(PIPELINE)
    first = next((tmp_path / "dump").glob("*-00-traced.txt"))
    assert "tanh" in first.read_text()


def test_passes_have_names_and_docstrings() -> None:
    assert all(name_of(p).isidentifier() and p.__doc__ for p in PIPELINE)


def test_order_is_the_same_in_every_run() -> None:
    from kusari.ir import print_graph
    assert len({print_graph(run_pipeline(graph())) for _ in range(3)}) == 1
