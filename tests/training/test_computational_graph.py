"""The text for Graphviz."""

import re

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.computational_graph import build_computational_graph

GREY = 'shape="octagon",fillcolor="#E0E0E0",style="filled"'
BLUE = 'shape="record",fillcolor="#6495ED",style="filled"'


def parse(text):
    """Header, {label: style} and the arrows between labels."""
    header, body = re.fullmatch(r"(digraph graphname\{rankdir=..;)(.*)\}", text, re.DOTALL).groups()
    nodes = {i: (label, style) for i, label, style in re.findall(r'(\d+) \[label="([^"]*)",([^\]]*)\];', body)}
    arrows = [(nodes[a][0], nodes[b][0]) for a, b in re.findall(r"(\d+) -> (\d+);", body)]
    return header, sorted(nodes.values()), sorted(arrows)


@pytest.fixture
def output():
    x = kusari.Variable(np.ones((2, 3), np.float32), name="x")
    w = F.sum(F.relu(x + kusari.Variable(np.ones((2, 3), np.float32))))
    w.name = "w"
    return w


def test_graph(output):
    header, nodes, arrows = parse(build_computational_graph([output]).dump())
    array, x, w = "(2, 3), float32", "x: (2, 3), float32", "w: float32"
    assert header == "digraph graphname{rankdir=TB;"
    assert nodes == sorted([*((label, GREY) for label in (array, array, array, x, w)), *((f, BLUE) for f in FUNCTIONS)])
    add, relu, total = FUNCTIONS
    path = [(x, add), (array, add), (add, array), (array, relu), (relu, array), (array, total), (total, w)]
    assert arrows == sorted(path)


FUNCTIONS = ("_ + _", "ReLU", "Sum")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (dict(rankdir="LR"), lambda h, n, a: "rankdir=LR" in h),
        (dict(show_name=False), lambda h, n, a: ("float32", GREY) in n and not any(": " in label for label, _ in n)),
        (
            dict(remove_variable=True),
            lambda h, n, a: n == sorted((f, BLUE) for f in FUNCTIONS) and a == [("ReLU", "Sum"), ("_ + _", "ReLU")],
        ),
        (
            dict(variable_style={"shape": "circle", "label": "v"}, function_style={"color": "red"}),
            lambda h, n, a: {("v", 'shape="circle"'), ("Sum", 'shape="box",color="red"')} <= set(n),
        ),
    ],
)
def test_options(output, options, expected):
    assert expected(*parse(build_computational_graph([output], **options).dump()))


def test_graph_of_several_outputs_and_of_inputs():
    x = kusari.Variable(np.ones(3, np.float32), name="x")
    graph = build_computational_graph([x * x, F.sum(x)])
    assert len([n for n in graph.nodes if n is x.node]) == 1
    # x enters the product twice: one arrow.
    assert len(graph.edges) == 4
    assert parse(build_computational_graph(x).dump())[1] == [("x: (3), float32", GREY)]


def test_quotes_in_names(output):
    output.name = 'a "b" \\'
    assert r'label="a \"b\" \\: float32"' in build_computational_graph(output).dump()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda y: build_computational_graph([y], rankdir="XX"), ValueError),
        (lambda y: build_computational_graph([y], remove_split=False), ValueError),
        (lambda y: build_computational_graph([y]).dump("png"), NotImplementedError),
    ],
)
def test_errors(output, call, error):
    with pytest.raises(error):
        call(output)


@pytest.mark.parametrize("installed", [False, True])
def test_a_dumped_graph_is_drawn_where_graphviz_is(monkeypatch, tmp_path, installed):
    from kusari.training.extensions import DumpGraph, computational_graph

    calls = []

    def run(command, check):
        calls.append(command[:3])
        open(command[-1], "w").close()

    monkeypatch.setattr(computational_graph.shutil, "which", lambda name: "/bin/dot" if installed else None)
    monkeypatch.setattr(computational_graph.subprocess, "run", run)
    trainer = kusari.testing.get_trainer_with_mock_updater((1, "iteration"))
    trainer.out = str(tmp_path)
    trainer.observation = {"loss": F.sum(kusari.Variable(np.ones(3, "f")))}
    DumpGraph("loss")(trainer)
    drawn = ["cg.png"] if installed else []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cg.dot", *drawn]
    assert calls == [["dot", "-Tpng", str(tmp_path / "cg.dot")]] * installed
