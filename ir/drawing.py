"""Graphs as pictures, by Graphviz' program ``dot`` where it is installed, and as graphs of the package networkx."""
from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from .graph import Graph, Node, Value
from .printer import Names, print_graph

MOST_DRAWN_NODES = 300  # beyond, a picture takes long, and shows no more than lines
DOT_SECONDS = 20        # after which the text is shown in place of a picture


def quoted(text: str) -> str:
    """Return a quoted string of the DOT language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def escaped(text: str) -> str:
    """Return ``text`` as it stands in HTML, also between quotes."""
    from html import escape  # not with every ``import kusari``

    return escape(text)


def preformatted(text: str) -> str:
    """Return HTML that shows ``text`` as it is."""
    return f"<pre>{escaped(text)}</pre>"


def svg(dot: str) -> str:
    """Return the picture of a graph in the DOT language; empty where the program ``dot`` is missing or fails."""
    import subprocess
    from shutil import which

    program = which("dot")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, "-Tsvg"], input=dot, capture_output=True, text=True, encoding="utf-8",
                              timeout=DOT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[max(0, done.stdout.find("<svg")):]  # without the XML declaration


def figure(dot: str, text: str) -> str:
    """Return HTML of a picture where there can be one, else of ``text``."""
    picture = svg(dot) if dot else ""
    return f"<div>{picture}</div>" if picture else preformatted(text)


def networkx() -> Any:
    """Return the package networkx, imported now; raises ``ImportError`` where it is missing."""
    try:
        return importlib.import_module("networkx")
    except ImportError as error:
        raise ImportError(f"to_networkx() needs the package networkx, which cannot be imported ({error}): "
                          "pip install networkx") from error


def dot_of(graph: Graph) -> str:
    """Return a graph in the DOT language: a box for each node, its lines the op and the place; empty if too large."""
    if len(graph.nodes) > MOST_DRAWN_NODES:
        return ""
    names, made = Names(), graph.producers()
    lines = ["digraph graphname{rankdir=TB;"]
    drawn: dict[Value | Node, int] = {}

    def box(of: Value | Node, label: str, style: Mapping[str, str]) -> None:
        drawn[of] = len(drawn)
        attributes = ",".join(f"{key}={quoted(value)}" for key, value in {"label": label, **style}.items())
        lines.append(f"{drawn[of]} [{attributes}];")

    def arrows(values: Iterable[Value], end: int) -> None:
        lines.extend(f"{drawn[made.get(v, v)]} -> {end} [label={quoted(repr(v.type))}];" for v in values)
    for v in graph.sources():
        box(v, f"{names[v]}: {v.type!r}", {"shape": "octagon"})
    for node in graph.nodes:
        box(node, f"{node.op.name}\n{node.where}".rstrip(), {"shape": "box"})
        arrows(node.inputs, drawn[node])
    lines.append(f'{len(drawn)} [label="return",shape="plaintext"];')
    arrows(graph.outputs, len(drawn))
    return "\n".join(lines) + "\n}"


def graph_to_networkx(graph: Graph) -> Any:
    """Return a ``networkx.MultiDiGraph``; see `Graph.to_networkx`."""
    names = Names()
    result = networkx().MultiDiGraph(name=graph.name, inputs=graph.inputs, params=graph.params, outputs=graph.outputs)
    kinds = {**dict.fromkeys(graph.inputs, "input"), **dict.fromkeys(graph.params, "param"),
             **{v: "const" for v, _ in graph.consts}}

    def add(v: Value) -> None:
        result.add_node(v, kind=kinds.get(v, "value"), label=names[v], type=repr(v.type))
    for v in graph.sources():
        add(v)
    for node in graph.nodes:
        result.add_node(node, kind="node", label=node.op.name, where=node.where)
        for i, v in enumerate(node.inputs):
            result.add_edge(v, node, key=i)
        for i, v in enumerate(node.outputs):
            add(v)
            result.add_edge(node, v, key=i)
    return result


def html_of(graph: Graph) -> str:
    """Return HTML of a graph: its picture, or its text."""
    return figure(dot_of(graph), print_graph(graph))
