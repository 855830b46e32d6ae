"""Reports as objects: the parts of ``explain()``, the first screen, HTML with the facts of the text."""
from __future__ import annotations

import html.parser
import re
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.explanation import WORDS, Section, Table
from kusari.ir import drawing
from kusari.link.tree import tree
from kusari.static import StaticGraphWarning, explain
from kusari.static.verify import summary

X, T = np.ones((4, 3), "f"), np.zeros(4, "i")
VOID = {"br", "hr", "img", "path", "polygon"}


class Html(html.parser.HTMLParser):
    """The words of a text in HTML, whose tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open
        self.words = " ".join(self.texts).split()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class Net(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 5)
            self.rest = kusari.Sequential(F.relu, L.Linear(None, 2))

    def forward(self, x: Any) -> Any:
        return self.rest(self.l1(x))

    @kusari.static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self(x), t)

    @kusari.static_graph
    def reading(self, x: Any) -> Any:
        return self.l1(x) * round(float(F.sum(x).array))


@pytest.fixture(scope="module")
def net() -> Net:
    Net.reading.static._warned.clear()  # processes that share tests out may make it again
    net = Net()
    optimizer = kusari.optimizers.Adam().setup(net)
    for _ in range(3):
        optimizer.update(net.loss, X, T)
    for _ in range(3):
        net.cleargrads()
        net.loss(X[:2], T[:2]).backward()
    with pytest.warns(StaticGraphWarning):
        net.reading(X)
    return net


# A pattern for what each part has, alone of those that are not "summary" or "all".
PARTS = {"summary": r"of the roof", "model": r"Net: \d+ parameters", "ir": r"-- after the passes\ngraph ",
         "plan": r"-- schedule\n\d+ instructions", "kernels": r"-- kernel \w+ \(llvm\)"}


@pytest.mark.parametrize("what", WORDS)
@pytest.mark.parametrize("of", ["model", "function"])
def test_parts(net: Net, what: str, of: str) -> None:
    made = net.static.explain(what) if of == "model" else Net.loss.explain(what)
    shown = {part for part, pattern in PARTS.items() if re.search(pattern, str(made))}
    assert shown == (set(PARTS) if what == "all" else {what})
    assert repr(made) == str(made)


def test_an_unknown_part(net: Net) -> None:
    for ask in (net.static.explain, Net.loss.explain, kusari.Link().static.explain, lambda what: explain([], what)):
        with pytest.raises(ValueError, match="'summary', 'model', 'ir', 'plan', 'kernels', 'all', got 'speed'"):
            ask("speed")
    assert str(kusari.Link().static.explain()) == "no static function of this object has been called"


def test_the_first_screen(net: Net) -> None:
    before = [p.array.copy() for p in net.params()]
    text = str(net.static.explain())
    for part in (r"whole step of Adam: compiled: loss_step, \d+ native rows", r"compiled: loss, \d+ native rows",
                 r"compiled: loss_backward, .*peak of one call [\d,]+ bytes",
                 r"fell back to define-by-run: .*test_explanations\.py:\d+, in reading"):
        assert re.search(part, text), part
    (table,) = (p for s in net.static.explain().sections for p in s.content if isinstance(p, Table))
    kernels = str(net.static.explain("kernels"))
    assert len(table.rows) == 5 and len(text.split("\n")) < 30
    for time, all_, roof, bound, launches, program, kernel, _ in table.rows:
        assert re.fullmatch(r"<?[\d,.]+ [mµ]s", time)
        assert re.fullmatch(r"\d+% (\d+%|-) \d+", f"{all_} {roof} {launches}")
        assert bound in ("memory", "arithmetic") and program.startswith("loss")
        assert kernel.removesuffix("...") in kernels
    for p, array in zip(net.params(), before, strict=True):  # kernels that update are timed on arrays of their own
        np.testing.assert_array_equal(p.array, array)


def test_functions_that_kernels_share_are_shown_once() -> None:
    model = kusari.Sequential(L.Linear(32, 48), F.relu, L.Linear(48, 32))
    call = kusari.static_graph(lambda x: model(x))
    for _ in range(2):
        call(np.ones((64, 32), "f"))
    texts = str(call.static.explain("kernels"))
    names = set(re.findall(r"call void @(squares\d+_\w+)\(", texts))
    assert names and all(texts.count(f"define void @{name}(") == 1 for name in names)


def test_a_roof_far_below_a_kernel_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was measured beside other programs: there is a dash, and the next report measures it again."""
    model = kusari.Sequential(L.Linear(200, 300))
    compiled, x = kusari.static_graph(model), np.ones((500, 200), "f")
    for _ in range(3):
        compiled(x)
    forgotten: list[bool] = []
    monkeypatch.setattr(summary, "forget", lambda: forgotten.append(True))
    for rate, dash in ((1e16, False), (1e3, True)):
        monkeypatch.setattr(summary, "peak", lambda *_, rate=rate: rate)
        monkeypatch.setattr(summary, "bandwidth", lambda *_, rate=rate: rate)
        text = str(compiled.explain())
        (table,) = (p for s in compiled.explain().sections for p in s.content if isinstance(p, Table))
        assert {row[2] == "-" for row in table.rows} == {dash}
        assert (summary.ABOVE in text) == dash == bool(forgotten)


def test_measuring_changes_nothing() -> None:
    """No random numbers are drawn, no state is written, and frames are as they were."""
    norm = L.BatchNormalization(3)

    @kusari.static_graph
    def f(x: Any) -> Any:
        return F.dropout(norm(x))
    for _ in range(3):
        f(X)

    def state() -> list[Any]:
        return [str(np.random.get_state()), *(a.tolist() for a in (norm.avg_mean, norm.avg_var)), f.static.nbytes()]
    before = state()
    assert "-- most expensive, of" in str(f.explain()) and before == state()


def test_many_signatures_fit_on_the_screen() -> None:
    f = kusari.static_graph(lambda x: F.exp(x) * 2)
    for i in range(20):
        f(np.ones(i + 1, "f"))
    text = str(f.explain())
    assert text.count("\n  * ") == 6 and "and 14 more signatures" in text
    assert str(f.explain("plan")).count("== signature") == 20


@pytest.mark.parametrize("what", [*WORDS, "link", "variable", "parameter", "uninitialized", "graph", "computed"])
def test_html_has_the_facts_of_the_text(net: Net, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Graphviz."""
    monkeypatch.setattr(drawing, "svg", lambda dot: "")
    monkeypatch.setattr("kusari.explanation.svg", lambda dot: "")
    y = kusari.Variable(np.zeros((2, 2), "f"), name="<b>&\"") + 1
    ((_, entry), *_) = Net.loss.static.signatures(net)
    shown: Any = {"link": net, "variable": y, "parameter": net.l1.W, "uninitialized": L.Linear(2).W,
                  "graph": entry.recording.graph,
                  "computed": kusari.computational_graph.build_computational_graph([y])}.get(what)
    texts = {"link": "Net: 32 parameters l1 W float32[5, 3], rest Linear(in_size=5, out_size=2, nobias=False)",
             "variable": f"(2, 2) float32 {y!r}", "parameter": f"(5, 3) yes {net.l1.W!r}", "uninitialized": "None",
             "graph": str(drawing.print_graph(entry.recording.graph)),
             "computed": '0 <b>&": (2, 2), float32 1 _ + 1 <- 0 2'}
    if shown is None:
        shown = net.static.explain(what)
        assert Html(shown._repr_html_()).words == re.sub(r"(?m)^(== |-- )", "", str(shown)).split()
    page = Html(shown._repr_html_())
    assert set(texts.get(what, "").replace("\n", " ").split()) <= set(page.words)
    assert page.tags <= set("div h3 h4 h5 table tr th td pre details summary".split())


def test_contents_are_escaped() -> None:
    page = Html(Section(0, "<i>", ("<u>", Table(("<b>",), (("&lt;\"",),)))).html)
    assert page.words == ["<i>", "<u>", "<b>", "&lt;\""] and page.tags == {"h3", "pre", "table", "tr", "th", "td"}


def test_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``dot`` is installed it draws; if it fails, the text is shown."""
    import shutil
    import subprocess

    given: list[str] = []

    def run(command: list[str], input: str, **_: Any) -> Any:
        given.append(input)
        if len(given) > 1:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, "<?xml?><svg><g></g></svg>")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    graph = kusari.computational_graph.build_computational_graph([F.exp(kusari.Variable(X))])
    assert graph._repr_html_() == "<div><svg><g></g></svg></div>" and given == [graph.dump()]
    assert Html(graph._repr_html_()).tags == {"pre"} and len(given) == 2


def test_the_tree_of_a_model(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = str(net.static.explain("model")).split("\n")
    assert [re.sub(" {2,}", "  ", line).split("  ")[1:] for line in lines[2:]] == [
        ["/", "Net", "32"],
        ["l1", "Linear(in_size=3, out_size=5, nobias=False)", "W float32[5, 3], b float32[5]", "20"],
        ["rest", "Sequential", "12"],
        ["0", "Linear(in_size=5, out_size=2, nobias=False)", "W float32[2, 5], b float32[2]", "12"]]
    assert lines[0] == f"Net: {net.count_params()} parameters"
    assert str(Net().static.explain("model")).startswith("Net: 22 parameters, and 1 not initialized")


def test_layers_of_a_sequential_are_listed_as_they_follow_each_other() -> None:
    """Their names are Chainer's, which are not always in this order."""
    layers = kusari.Sequential(L.Linear(1, 2), F.relu, L.Linear(2, 3), L.Linear(3, 4))
    (table,) = tree(layers).content
    assert isinstance(table, Table)
    assert [row[0].strip() for row in table.rows if row[0]] == ["/", "0", "2", "1"]


@pytest.mark.parametrize("columns", [80, 100])
def test_the_tree_is_as_wide_as_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters go on in rows below, none is cut in two."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = str(L.NStepGRU(2, 4, 5, 0.1).static.explain("model")).split("\n")
    assert 60 < max(map(len, lines)) <= columns, lines
    assert [word.rstrip(",") for line in lines for word in re.findall(r"[bw]\d float32\[.*?\]", line)] == [
        f"{kind}{i} float32[{'5, 4' if kind == 'w' and i < 3 and layer == 0 else '5, 5' if kind == 'w' else '5'}]"
        for layer in range(2) for kind in "bw" for i in range(6)]


def test_to_networkx() -> None:
    pytest.importorskip("networkx")
    model = Net()
    model.loss(X, T)
    ((_, entry),) = Net.loss.static.signatures(model)
    graph = entry.recording.graph
    made = graph.to_networkx()
    assert sorted(made.edges(keys=True), key=repr) == sorted(
        [(v, n, i) for n in graph.nodes for i, v in enumerate(n.inputs)]
        + [(n, v, i) for n in graph.nodes for i, v in enumerate(n.outputs)], key=repr)
    kinds = [data["kind"] for _, data in made.nodes(data=True)]
    assert kinds.count("node") == len(graph.nodes) and kinds.count("param") == len(graph.params) == 4
    for remove in (False, True):
        drawn = kusari.computational_graph.build_computational_graph([model(X)], remove_variable=remove)
        edges = {(str(id(a)), str(id(b))) for a, b in drawn.to_networkx().edges}
        assert edges == set(re.findall(r"(\d+) -> (\d+)", drawn.dump())) and edges


def test_to_networkx_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(ImportError, match="to_networkx.. needs the package networkx"):
        kusari.computational_graph.build_computational_graph([kusari.Variable(X)]).to_networkx()
