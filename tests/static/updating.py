"""Training runs that change something between steps, static and define-by-run: rows of a table, compared."""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.optimizer import GradientMethod
from kusari.optimizers import SGD, MomentumSGD

STEPS = 8
FIRST, LAST = 3, 5  # the steps before which what comes late comes, and goes again


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(5, 7)
            self.l2 = L.Linear(7, 3)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.tanh(self.l1(x))), t)


class Run:
    """A training run; what happens between steps may put others in place of model and optimizer."""

    def __init__(self, make: Callable[[Run], Any]) -> None:
        np.random.seed(0)
        self.seen: list[Any] = []
        self.model: Any = Model()
        self.open = contextlib.ExitStack()
        self.more: dict[str, Any] = {}
        self.dtype = "f"
        self.opt = make(self)
        if self.opt.target is None:
            self.opt.setup(self.model)

    def note(self, what: Any) -> None:
        self.seen.append(what)

    @property
    def W(self) -> Any:
        return self.model.l1.W

    def look(self) -> None:
        for name, p in sorted(self.model.namedparams()):
            rule = p.update_rule
            grad = None if p._array is None else p.grad
            self.seen += [name, *(None if a is None else np.array(a) for a in (p._array, grad)), p._loss_scale]
            self.seen += [] if rule is None else [rule.t, *map(np.array, (rule.state or {}).values())]
        self.seen += [self.opt.t, self.opt.epoch, self.opt._loss_scale]


class OwnRule(SGD):
    """An optimizer with rules of the user's."""

    def __init__(self, kind: Any) -> None:
        super().__init__(0.1)
        self.kind = kind

    def create_update_rule(self) -> Any:
        return self.kind(self.hyperparam)


def whole(s: Run, x: Any, t: Any) -> None:
    s.opt.update(s.model.loss, x, t)


def in_parts(s: Run, x: Any, t: Any) -> None:
    loss = s.model.loss(x, t)
    s.model.cleargrads()
    loss.backward()
    s.opt.update()


def joined(s: Run, x: Any, t: Any) -> None:
    """The code of steps in parts, which is one schedule where that may be."""
    model, opt = s.model, s.opt
    loss = model.loss(x, t)
    model.cleargrads()
    loss.backward()
    opt.update()


PART = {whole: "step", joined: "step", in_parts: "parts"}
Between = Callable[[int, Run], None]


def nothing(i: int, s: Run) -> None:
    pass


class Rows(dict[str, tuple[Callable[[Run], Any], Between, str]]):
    """Rows by name: what makes the optimizer, what happens between steps, and what is compiled in the end.

    That is the "whole" of it, a "step", updates in "parts", or nothing.
    """

    def row(self, name: str, make: Any = MomentumSGD, between: Between = nothing, compiled: str = "") -> None:
        """Append a row."""
        assert name not in self
        self[name] = (lambda s: make(0.1)) if isinstance(make, type) else make, between, compiled

    def program(self, name: str, make: Any = MomentumSGD, compiled: str = "whole") -> Callable[[Between], Between]:
        """Append a row of what happens between steps, as a decorator."""
        def add(between: Between) -> Between:
            self.row(name, make, between, compiled)
            return between
        return add

    def run(self, name: str, step: Callable[..., None], static: bool) -> Run:
        """Train."""
        make, between, _ = self[name]
        s = Run(make)
        rs = np.random.RandomState(3)
        with s.open, kusari.using_config("use_static_graph", static):
            for i in range(STEPS):
                between(i, s)
                try:
                    step(s, rs.randn(8, 5).astype(s.dtype), rs.randint(0, 3, 8).astype("i"))
                except Exception as error:
                    s.note(type(error).__name__)
                s.look()
        return s

    def check(self, name: str, step: Callable[..., None]) -> None:
        """Assert that static is as define-by-run, and what is compiled."""
        expected = self.run(name, step, False).seen
        s = self.run(name, step, True)
        assert len(s.seen) == len(expected)
        for k, (a, b) in enumerate(zip(s.seen, expected, strict=True)):
            if isinstance(b, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6 + 2e-5 * np.abs(b).max(initial=0), err_msg=str(k))
            else:
                assert a == b
        steps = s.opt.__dict__.get("_steps")
        made = s.opt._compiled if step is in_parts else steps and [None, *[x for _, x in steps.by_loss.values()]][-1]
        if step is joined and (type(s.opt).update is not GradientMethod.update or s.opt._loss_scale is not None):
            return  # made in parts by now; there may be a joined step of earlier calls
        assert (made is not None) == (self[name][2] in ("whole", PART[step])), str(s.model.static.explain("plan"))
