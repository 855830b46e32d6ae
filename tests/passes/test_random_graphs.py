"""Every pass keeps the meaning of random graphs; every plan of one is free of conflicts."""

from __future__ import annotations

import pytest
from graphs import assert_same, graphs
from hypothesis import given
from hypothesis import strategies as st

from kusari.ir import Graph, verify
from kusari.passes import PIPELINE, check_plan, plan, run_pipeline
from kusari.passes.pipeline import name_of


@pytest.mark.parametrize("step", dict.fromkeys(PIPELINE), ids=name_of)
@given(graph=graphs())
def test_a_pass_keeps_the_meaning(step, graph: Graph) -> None:
    after = step(graph)
    verify(after)
    assert_same(graph, after)


@given(graph=graphs(max_nodes=20))
def test_the_pipeline_keeps_the_meaning(graph: Graph) -> None:
    after = run_pipeline(graph)
    assert_same(graph, after)
    assert (after.inputs, after.params) == (graph.inputs, graph.params)


@given(graph=graphs(max_nodes=20), limit=st.sampled_from((0, 100, 10**6)))
def test_plans_have_no_conflicts(graph: Graph, limit: int) -> None:
    check_plan(plan(graph, copy_in_below=limit, copy_out_below=limit))
    after = run_pipeline(graph)
    check_plan(plan(after, copy_in_below=limit, copy_out_below=limit, kept=after.outputs[:1]))


@given(graph=graphs())
def test_passes_come_to_an_end(graph: Graph) -> None:
    once = run_pipeline(graph)
    twice = run_pipeline(once)
    assert len(twice.nodes) <= len(once.nodes)
