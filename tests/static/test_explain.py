"""``explain()``: which schedules there are, why a call was traced again, what fell back."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.static import StaticGraphWarning

X = np.ones((2, 3), "f")


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        self.alpha = 1.0
        with self.init_scope():
            self.l = L.Linear(3, 2)

    @static_graph
    def forward(self, x: Any) -> Any:
        return self.l(x) * self.alpha

    @static_graph
    def reading(self, x: Any) -> Any:
        return self.l(x) * round(float(x.sum()))


def test_why_a_call_was_traced_again() -> None:
    model = Model()
    for alpha in (1.0, 1.0, 2.0, 2.0):
        model.alpha = alpha
        model(X)
    text = str(model.static.explain("all"))
    line = Model.forward.__wrapped__.__code__.co_firstlineno
    assert re.search(rf"traced again: .*test_explain.py:{line}, in forward: .*alpha \(1.0 became 2.0\)", text)
    assert "2 schedules in" in text and "1 more kept" in text
    assert model.static.nbytes > 0
    model.alpha = 1.0
    model(X)  # the first schedule again
    assert str(model.static.explain("all")).count("traced again") == 1


def test_what_is_loaded_when_it_is_first_read_does_not_have_a_call_traced_again(monkeypatch: Any) -> None:
    monkeypatch.delitem(vars(kusari), "report", raising=False)
    f = static_graph(lambda x: (kusari.report({"x": x}), F.relu(x))[1])
    for _ in range(3):
        f(X)
    assert "traced again" not in str(f.static.explain("all"))


def test_warnings_point_at_the_line_of_the_call() -> None:
    for call in (lambda f: f(X), lambda f: kusari.Sequential(f)(X)):
        f = static_graph(lambda x: F.relu(x) * round(float(x.sum())))
        with pytest.warns(StaticGraphWarning) as caught:
            call(f)
        assert (caught[0].filename, caught[0].lineno) == (__file__, call.__code__.co_firstlineno)


def test_objects_of_users_are_not_shown() -> None:
    """Their ``repr`` may take long, fail, or tell a secret."""
    class Silent:
        factor = 2

        def __repr__(self) -> str:
            raise AssertionError("repr() of a user's object")

    @static_graph
    def f(x: Any, o: Silent) -> Any:
        return F.relu(x) * o.factor

    kept = Silent()
    for _ in range(3):
        f(X, kept)
    with pytest.warns(StaticGraphWarning, match="an object is another one"):
        for _ in range(10):
            f(X, Silent())
    text = str(f.explain())
    assert text.index("compiled: f") < text.index("traced, compiled at the next call") and "Silent object" in text
    assert "Silent object" in str(f.explain("all")) and "Silent object" in f.explain("all")._repr_html_()


def test_a_class_is_not_decorated() -> None:
    with pytest.raises(TypeError, match="Model is a class: decorate its forward"):
        static_graph(Model)


def test_a_parameter_of_another_shape() -> None:
    model = Model()
    model(X)
    model(X)
    model.l.b.array = np.zeros(2, "d")
    with kusari.using_config("type_check", False):
        model(X)
    assert re.search(r"traced again: .*(float64|b \()", str(model.static.explain("all")))


def test_what_stepped_aside() -> None:
    model = Model()
    with pytest.warns(StaticGraphWarning):
        model.reading(X)
    text = str(Model.reading.explain("all"))
    assert "0 schedules in 0 bytes, 0 traced, 1 fell back" in text
    assert re.search(r"fell back to define-by-run: .*test_explain.py:\d+, in reading", text)


def test_verified_calls_are_counted() -> None:
    f = static_graph(verify=2)(lambda x: F.relu(x))
    for _ in range(6):
        f(X)
    assert "every 2. call verified: 3 compared so far" in str(f.explain("all"))


def test_whole_steps() -> None:
    """Their graphs, memory and kernels are listed, and what was made in parts."""
    from kusari.optimizers import SGD

    class Model(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l1 = kusari.links.Linear(3, 2)

        @kusari.static_graph
        def loss(self, x: Any) -> Any:
            return F.sum(F.tanh(self.l1(x)))

        @kusari.static_graph
        def losses(self, x: Any) -> Any:
            return F.tanh(self.l1(x))
    model = Model()
    optimizer = SGD(0.1).setup(model)
    for i in range(5):
        x = kusari.Variable(np.ones((4, 3), "f"))
        optimizer.update(model.loss, F.exp(x) if i == 3 else x)
    text = str(model.static.explain("all"))
    assert "and 1 whole step in" in text and "whole step of SGD" in text and "loss_step" in text
    assert "1 step made in parts: gradients go on behind an argument" in text
    assert text.count("-- memory") == 3  # the step, and the forward and backward of the call made in parts
    ((_, step),) = optimizer._steps.by_loss.values()
    assert model.static.nbytes > step.nbytes > 0
    for _ in range(2):
        with pytest.raises(ValueError):
            optimizer.update(model.losses, np.ones((4, 3), "f"))
    assert "made in parts: the loss is not one differentiable number" in str(model.static.explain("all"))


def test_locations_are_the_users() -> None:
    """Forward, backward and whole steps: every node is located where the user applied the function it comes from."""
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(1, 4, 3)
                self.norm = L.BatchNormalization(4)
                self.l = L.Linear(4, 3)

        @static_graph
        def forward(self, x: Any) -> Any:
            h = F.average(F.relu(self.norm(self.conv(x))), axis=(2, 3))
            return self.l(h + F.dropout(h, 0.5))

        @static_graph
        def loss(self, x: Any, t: Any) -> Any:
            return F.softmax_cross_entropy(self.forward(x), t)
    model = Net()
    optimizer = kusari.optimizers.Adam().setup(model)
    x, t = np.ones((2, 1, 5, 5), "f"), np.zeros(2, "i")
    for _ in range(3):
        optimizer.update(model.loss, x, t)
        F.sum(model.forward(x)).backward()
    text = str(model.static.explain("all"))
    assert "whole step of Adam" in text and text.count("-- schedule") == 3  # one is the backward from the sum
    places = set(re.findall(r"  # (\S.*)", text))
    assert len(places) == 5 and {re.sub(r":\d+$", "", p) for p in places} == {"test_explain.py", "optimizer"}


@pytest.mark.slow
def test_why_a_convolution_has_its_algorithm() -> None:
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.few = L.Convolution2D(3, 64, 3)
                self.many = L.Convolution2D(64, 64, 3, pad=1)
                self.single = L.Convolution2D(64, 8, 1)

        @static_graph
        def forward(self, x: Any) -> Any:
            return self.single(self.many(self.few(x)))
    model = Net()
    for _ in range(3):
        F.sum(model.forward(np.ones((2, 3, 30, 30), "f"))).backward()
    text = str(model.static.explain("all"))
    rows = re.findall(r"  (conv\w+|winograd\w+)  # .*\n      (\w+)(.*): \d+ cycles by count, ([\w ]+)(.*)", text)
    # Three forward, three weights' gradients and two inputs' gradients.
    assert len(rows) == 8
    for symbol, algorithm, _, why, others in rows:
        assert f"_{algorithm}_" in symbol or (algorithm == "winograd" and symbol.startswith("winograd")), symbol
        assert why in ("the fewest", "windows of one element", "the only way") or "the sums as they are defined" in why
        assert why == "windows of one element" or "3x3" not in symbol or re.match(r"; others: \w+", others), symbol


SCALE = 2.0


def test_what_a_schedule_depends_on() -> None:
    """Each read of the user's code is named as it stands there, with its line and value."""
    class Reading(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            self.alpha = 3.0

        @static_graph
        def forward(self, x: Any) -> Any:
            return F.cast(F.relu(x) * self.alpha * SCALE, kusari.config.dtype)

    model = Reading()
    for _ in range(2):
        model.forward(np.ones((2, 3), "f"))
        text = str(model.static.explain("all"))
        for line in (r"the global SCALE \(here\) = 2\.0", r"Reading\.alpha \(here\) = 3\.0",
                     r"config\.dtype \(here\) = float32"):
            assert re.search(line.replace("here", r"test_explain\.py:\d+"), text), line
