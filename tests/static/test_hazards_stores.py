"""Hazards of what a call stores, and of data that leaves the trace; static equals define-by-run."""
from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from static.hazards import Reading, items, xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

COUNT = 0
LAST: Any = None


# -- what the call itself stores ---------------------------------------------------------------------------------------

def test_stored_results_are_those_of_the_last_call(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            @decorate
            def forward(self, x: Any) -> Any:
                self.seen = None
                self.seen = self.l(x)
                self.size_seen = self.seen.shape[0]
                self.pair_seen = {"a": F.relu(self.seen), "b": 3}
                return F.sum(self.seen)

        model = Decorated()

        def call(x: Any) -> Any:
            model.cleargrads()
            y = model(x)
            model.seen.grad = np.ones_like(model.seen.array)
            model.seen.backward()
            return y, model.seen, model.pair_seen, model.size_seen, model.l.W.grad
        return call

    both(make, xs(5))


class Losses(kusari.Chain):
    """Stores containers in every call, and reads them afterwards or beforehand."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 4)
        self.losses: Any = {"sum": 0.0}

    def entries(self, x: Any) -> Any:
        self.losses = {"sum": F.sum(self.l(x)), "norm": F.sum(self.l.W ** 2)}
        return self.losses["sum"] + 0.1 * self.losses["norm"]

    def items(self, x: Any) -> Any:
        self.losses = []
        for i in range(3):
            self.losses.append(F.tanh(self.l(x[i:i + 1])))
        return sum(F.sum(y) for y in self.losses)

    def either(self, x: Any) -> Any:
        if len(x) > 2:
            self.losses = {"sum": F.sum(self.l(x))}
        return F.sum(self.l(x)) * self.losses["sum"]

    def before(self, x: Any) -> Any:
        last = self.losses["sum"]
        self.losses = {"sum": F.sum(self.l(x))}
        return last + self.losses["sum"]


@pytest.mark.parametrize("method", [Losses.entries, Losses.items])
def test_containers_that_are_stored_before_they_are_read(both: Any, method: Any) -> None:
    """What stood there before the call is no reason to trace again."""
    made: list[Any] = []

    def make(decorate: Any) -> Any:
        model, call = Losses(), decorate(method)
        made.append((model, call))
        return lambda x: [call(model, x), model.losses]
    both(make, xs(12))
    model, call = made[1]
    assert len(call.static.signatures(model)) <= 2


@pytest.mark.parametrize("method", [Losses.either, Losses.before])
def test_containers_that_may_be_read_first(both: Any, method: Any) -> None:
    def make(decorate: Any) -> Any:
        model, call = Losses(), decorate(method)
        model.losses = {"sum": 0.5}

        def run(x: Any) -> Any:
            y = call(model, x)
            model.losses = {"sum": float(y.array) / 7}
            return y
        return run
    both(make, [x[:n] for x, n in zip(xs(6), (3, 2, 2, 3, 2, 2), strict=True)])


@pytest.mark.parametrize("whole", [False, True])
def test_one_object_stays_one_object(whole: bool) -> None:
    """A Variable that is returned twice, or returned and stored: who looks at one sees the other's gradient."""
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(4, 4)

        @kusari.static_graph(strict=True)
        def loss(self, x: Any) -> Any:
            self.a = self.b = F.tanh(self.l(x))
            self.last = F.sum(self.a * self.a)
            return self.last if whole else (self.last, self.a, [self.b, x])

    net = Net()
    optimizer = kusari.optimizers.SGD(0.1).setup(net)
    for x in xs(6):
        if whole:
            optimizer.update(net.loss, x)
            loss, same = net.last, [net.a, net.b]
        else:
            loss, a, (b, given) = net.loss(x)
            same = [a, b, net.a, net.b]
            assert loss is net.last and given is x
        assert all(v is same[0] and v.node is same[0].node for v in same)
        loss.backward(retain_grad=True)
        np.testing.assert_allclose(same[0].grad, 2 * same[0].array, rtol=1e-6)
        with kusari.no_backprop_mode():
            net.loss(x)
        assert net.a is net.b


@pytest.mark.parametrize("outside", [False, True], ids=["kept-by-the-call", "kept-outside"])
def test_recurrent_state(both: Any, outside: bool) -> None:
    """State that a call leaves for the next one, with gradients back through all calls since the reset."""
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            h: Any = None

            @decorate
            def forward(self, x: Any) -> Any:
                h = self.l(x)
                if self.h is not None:
                    h = h + self.m(self.h)
                h = F.tanh(h)
                if not outside:
                    self.h = h
                return h

        model = Decorated()
        loss: Any = 0

        def call(item: Any) -> Any:
            nonlocal loss
            step, x = item
            if step == 0:
                model.h, loss = None, 0
            y = model(x)
            if outside:
                model.h = y
            loss = loss + F.sum(y * y)
            if step < 3:
                return y
            model.cleargrads()
            loss.backward()
            model.h.unchain_backward()
            loss = 0
            return y, [p.grad for p in model.params() if p.grad is not None]
        return call

    both(make, items([0, 1, 2, 3, 0, 1, 3, 0, 1, 2, 3, 2, 3, 2, 3]), rtol=1e-3, atol=1e-4)


def test_counting_is_followed(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            calls = 0

            @decorate
            def forward(self, x: Any) -> Any:
                self.calls += 1
                return self.l(x) * self.calls

        model = Decorated()
        return lambda x: (model(x), model.calls)

    both(make, xs(12))


def test_lists_globals_and_closure_variables_are_changed_by_replays(both: Any) -> None:
    """They have what define-by-run leaves there, in its order, also after somebody else has changed them."""
    def make(decorate: Any) -> Any:
        global LAST
        LAST = None
        last: Any = None
        log: list[Any] = []

        @decorate
        def f(x: Any) -> Any:
            nonlocal last
            global LAST
            last = F.tanh(x)
            log.append(last)
            LAST = last, [last, 1]
            log.append(x.shape)
            return F.relu(last)

        def call(item: Any) -> Any:
            nonlocal last
            global LAST
            i, x = item
            y = f(x)
            seen = y, list(log), last, LAST, LAST[0] is last and LAST[1][0] is last and log[-2] is last
            if i % 3 == 2:
                last = LAST = None
                log.clear()
            return seen
        return call

    both(make, list(enumerate(xs(8))))


@pytest.mark.parametrize(("kind", "aside"), [("global", None),
                                             ("closure", r"the closure variable count .* changes in every call")])
def test_counters_of_closures_step_aside(both: Any, kind: str, aside: str | None) -> None:
    def make(decorate: Any) -> Any:
        global COUNT
        COUNT = 0
        count = 0

        def f(x: Any) -> Any:
            if kind == "global":
                global COUNT
                COUNT += 1
            else:
                nonlocal count
                count += 1
            return F.relu(x)

        static = decorate(f)
        return lambda x: (static(x), COUNT, count)

    both(make, xs(9), aside=aside)


def test_layers_made_in_the_first_call(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Lazy(kusari.Chain):
            @decorate
            def forward(self, x: Any) -> Any:
                if not hasattr(self, "l"):
                    with self.init_scope():
                        self.l = L.Linear(4, 2)
                return self.l(x)

        return Lazy()

    both(make, xs(5))


# -- data that leaves the trace ----------------------------------------------------------------------------------------

LEAVING: dict[str, tuple[Any, str]] = {
    "array-sum": (lambda x: F.relu(x) if float(F.tanh(x).array.sum()) > 0 else F.relu(-x), "gt takes a number out"),
    "item": (lambda x: F.relu(x) * round(F.sum(x).item()), r"__round__\(\) of a float takes data out"),
    "float": (lambda x: F.relu(x) * round(float(F.sum(x).array)), r"__round__\(\) of a float takes data out"),
    "permutation": (lambda x: F.relu(x)[np.random.permutation(len(x))], None),
    "python-noise": (lambda x: F.relu(x) if random.random() < 0.5 else F.tanh(x), "lt takes a number out"),
    "branch-on-noise": (lambda x: F.relu(x) if np.random.rand() < 0.5 else F.tanh(x), None),
    "raw-branch": (lambda x: F.relu(x) if x.sum() > 0 else F.relu(-x), "greater takes a number out"),
    "raw-float": (lambda x: F.relu(x) * round(float(x[0, 0])), "of a float takes data out"),
    "raw-mean": (lambda x: F.relu(x) * math.sqrt(float(np.mean(x * x))), None),
    "raw-mean, odd": (lambda x: F.relu(x) * math.fsum([float(np.mean(x * x))]), "fsum of a float takes data out"),
    "raw-max": (lambda x: F.leaky_relu(x, float(x.max())), "of a float takes data out"),
    "raw-tolist": (lambda x: F.relu(x) * x.tolist()[0][0], "an argument"),
    "wrapped": (lambda x: F.exp(Variable(x)) ** Variable(x).array.max(), "takes data out"),
}


@pytest.mark.parametrize("name", LEAVING)
def test_data_that_leaves_the_trace(both: Any, name: str) -> None:
    body, aside = LEAVING[name]

    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any) -> Any:
            return body(x)
        return f

    both(make, xs(6), aside=aside)


def test_parameters_read_as_numbers(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            @decorate
            def forward(self, x: Any) -> Any:
                return self.l(x) * hash(float(np.abs(self.l.W.array).sum()))

        model = Decorated()

        def call(x: Any) -> Any:
            model.l.W.array *= 1.5
            return model(x)
        return call

    both(make, xs(5), aside=r"__hash__\(\) of a float takes data out")


def test_strict_raises() -> None:
    @kusari.static_graph(strict=True)
    def f(x: Any) -> Any:
        return F.relu(x) * np.frombuffer(bytes(16), "f")

    with pytest.raises(kusari.static.StaticGraphError, match=r"test_hazards_stores\.py:\d+.*frombuffer is impl"):
        f(xs(1)[0])
