"""The pipeline: checked after every pass, watched on request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kusari.ir import Builder, Graph, Node, Value, VerifyError, tensor_type
from kusari.passes import PIPELINE, lower, name_of, run_pipeline, switched_off
from kusari.passes.fuse import fuse
from kusari.passes.tidy import merge_common, remove_dead


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
    monkeypatch.setenv("KUSARI_LOG", "static, passes")
    with caplog.at_level(logging.INFO, "kusari.passes"):
        run_pipeline(graph())
    assert "net/forward: remove_dead: 3 nodes -> 2" in caplog.text
    assert "nothing to do" in caplog.text


def test_nothing_is_logged_unasked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kusari.passes"):
        run_pipeline(graph())
    assert caplog.text == ""


def test_dumps_number_what_changes_the_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUSARI_DUMP", str(tmp_path / "dump"))
    run_pipeline(graph(), (merge_common, remove_dead, remove_dead, lower, fuse))
    files = sorted((tmp_path / "dump").iterdir())
    assert [p.name.split("-", 1)[1] for p in files] == [
        "net_forward-00-traced.txt", "net_forward-01-remove_dead.txt", "net_forward-02-fuse.txt"]
    assert "tanh" in files[0].read_text() and "tanh" not in files[1].read_text() and "fused" in files[2].read_text()


@pytest.mark.parametrize(("text", "names"), [
    ("", set()), ("-fuse", {"fuse"}), (" -fuse, -merge_common,-recompute", {"fuse", "merge_common", "recompute"}),
])
def test_passes_are_switched_off_by_name(monkeypatch: pytest.MonkeyPatch, text: str, names: set[str]) -> None:
    def recompute(graph: Graph) -> Graph:
        return graph

    monkeypatch.setenv("KUSARI_PASSES", text)
    assert switched_off((recompute,)) == names


@pytest.mark.parametrize(("text", "wrong"), [("-fuse,-fues", "'-fues'"), ("fuse,", "'fuse', ''")])
def test_unknown_passes_are_refused(monkeypatch: pytest.MonkeyPatch, text: str, wrong: str) -> None:
    monkeypatch.setenv("KUSARI_PASSES", text)
    with pytest.raises(ValueError, match=f"{wrong} switches no pass off. Write -name,-other .* lower, .*fuse_nests"):
        switched_off(PIPELINE)


def test_passes_have_names_and_docstrings() -> None:
    assert all(name_of(p).isidentifier() and p.__doc__ for p in PIPELINE)


def test_order_is_the_same_in_every_run() -> None:
    from kusari.ir import print_graph
    assert len({print_graph(run_pipeline(graph())) for _ in range(3)}) == 1
