"""Parameters, Variables and links that static functions read: names, counts, shapes, hooks, what observes them."""
from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from static.models import Model, Normalized, build
from static.observed.harness import Rows, before

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Parameter, Variable, initializers, iterators, optimizers, training
from kusari.training import triggers

ROWS = Rows()
W = initializers.Constant(0.3)


@ROWS.replays
def attributes_of_a_parameter(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.l.W.scale))
    return before(model, lambda i: setattr(model.l.W, "scale", 1.0 + i // 3))


@ROWS.replays
def names_of_a_parameter(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * len(s.l.W.name)))
    return before(model, lambda i: setattr(model.l.W, "name", "W" * (1 + i // 3)))


@ROWS.falls_back("of a Variable may be read or stored")
def names_of_a_variable(decorate: Any) -> Any:
    v = Variable(np.ones(4, "f"))
    static = decorate(lambda x: F.tanh(x) if v.name == "a" else F.relu(x))
    return before(static, lambda i: setattr(v, "name", "ab"[i // 3 % 2]))


@ROWS.replays
def names_of_links(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * len(s.l.name)))
    return before(model, lambda i: setattr(model.l, "name", "l" * (1 + i // 3)))


@ROWS.falls_back("of a Variable may be read or stored")
def names_of_an_argument(decorate: Any) -> Any:
    static = decorate(lambda v: F.tanh(v) if v.name == "a" else F.relu(v))
    return lambda i, x: static(Variable(x, name="ab"[i // 3 % 2]))


@ROWS.falls_back("of a Variable may be read or stored")
def attributes_of_an_argument(decorate: Any) -> Any:
    static = decorate(lambda v: F.tanh(v) * v.scale)

    def call(i: int, x: Any) -> Any:
        v = Variable(x)
        v.__dict__["scale"] = 1.0 + i // 3
        return static(v)
    return call


@ROWS.replays
def whether_an_argument_needs_a_gradient(decorate: Any) -> Any:
    static = decorate(lambda v: F.tanh(v) if v.requires_grad else F.relu(v))
    return lambda i, x: static(Variable(x, requires_grad=i // 3 != 1))


@ROWS.replays
def values_of_an_initializer(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * W.fill_value)
    return before(static, lambda i: setattr(W, "fill_value", 1.0 + i // 3))


@ROWS.falls_back("changes in every call")
def initializers_of_a_parameter(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.scale.initializer.fill_value), scale=Parameter(W))
    return before(model, lambda i: setattr(model, "scale", Parameter(initializers.Constant(1.0 + i // 3))))


@ROWS.replays
def number_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * len(list(s.params()))))
    return before(model, lambda i: model.add_param("extra", 3) if i == 4 else None)


@ROWS.replays
def count_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * (0.01 * s.count_params())))

    def change(i: int) -> None:
        if i == 4:
            model.add_link("extra", L.Linear(2, 3))
    return before(model, change)


@ROWS.replays
def names_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * (0.01 * sum(len(n) for n, _ in s.namedparams()))))

    def change(i: int) -> None:
        if i == 4:
            with model.l.init_scope():
                model.l.extra = Parameter(np.ones(2, "f"))
    return before(model, change)


@ROWS.replays
def sums_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) + sum(F.sum(p ** 2) for p in s.params())))

    def change(i: int) -> None:
        if i == 4:
            model.add_param("extra", (2,), initializer=1.0)
    return before(model, change)


@ROWS.replays
def number_of_links(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * sum(1.0 for _ in s.links())))
    return before(model, lambda i: model.add_link("extra", L.PReLU()) if i == 4 else None)


@ROWS.replays
def children_in_a_list(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: [x := F.tanh(link(x)) for link in s.layers][-1]), layers=[L.Linear(4, 4)])
    return before(model, lambda i: model.layers.append(L.Linear(4, 4)) if i in (3, 6) else None)


@ROWS.replays
def parts_of_a_sequential(decorate: Any) -> Any:
    class Decorated(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.body = kusari.Sequential(L.Linear(4, 4), F.relu)

        @decorate
        def forward(self, x: Any) -> Any:
            return self.body(x) * len(self.body)

    model = Decorated()

    def change(i: int) -> None:
        if i == 3:
            model.body[1] = F.tanh
        if i == 6:
            model.body.append(L.Linear(4, 4))
    return before(model, change)


@ROWS.replays
def parameters_before_initialize(decorate: Any) -> Any:
    class Decorated(Model):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.late = Parameter(initializers.Constant(2.0))

        @decorate
        def forward(self, x: Any) -> Any:
            return self.l(x) if self.late.array is None else self.l(x) * self.late

    model = Decorated()
    return before(model, lambda i: model.late.initialize((4,)) if i == 4 else None)


@ROWS.replays
def whether_a_parameter_is_initialized(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * (2.0 if s.more.W.is_initialized else 1.0)), more=L.Linear(3))
    return before(model, lambda i: model.more.W.initialize((3, 2)) if i == 4 else None)


@ROWS.replays
def parameters_without_data_by_a_helper(decorate: Any) -> Any:
    late = Parameter(initializers.Constant(2.0))

    def known() -> bool:
        return late.data is not None
    static = decorate(lambda x: F.tanh(x) * late if known() else F.relu(x))
    return before(static, lambda i: late.initialize((4,)) if i == 3 else None)


@ROWS.replays
def shapes_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.extra.shape[0] * s.extra.size), extra=Parameter(np.ones(2, "f")))
    return before(model, lambda i: setattr(model.extra, "array", np.ones((2 + i // 3, 2), "f")))


@ROWS.replays
def dtypes_of_parameters(decorate: Any) -> Any:
    v = Variable(np.ones(2, "f"))
    static = decorate(lambda x: F.cast(F.tanh(x), v.dtype))
    return before(static, lambda i: setattr(v, "array", np.ones(2, "d" if i in (3, 4) else "f")))


@ROWS.falls_back("of a Variable may be read or stored")
def gradients_of_parameters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) if s.l.W.grad is None else s.m(x)))

    def change(i: int) -> None:
        model.l.W.grad = None if i // 3 == 1 else np.ones((4, 4), "f")
    return before(model, change)


@ROWS.replays
def persistent_numbers(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.step))
    model.add_persistent("step", 1)
    return before(model, lambda i: setattr(model, "step", 1 + i // 3))


@ROWS.replays
def options_of_layers(decorate: Any) -> Any:
    class Decorated(Normalized):
        @decorate
        def forward(self, x: Any) -> Any:
            return self.norm(self.l(x)) * self.norm.eps * 1e5

    model = Decorated()

    def change(i: int) -> None:
        model.norm.decay, model.norm.eps = 0.9 if i < 4 else 0.5, 2e-5 if i < 6 else 1e-3
    return before(model, change)


@ROWS.replays
def statistics_of_layers(decorate: Any) -> Any:
    class Decorated(Normalized):
        @decorate
        def forward(self, x: Any) -> Any:
            return self.norm(self.l(x)) * (1.0 if self.norm.avg_var[0] > 0.5 else 2.0)

    model = Decorated()
    return lambda i, x: model(x)


@ROWS.replays
def hooks_of_links(decorate: Any) -> Any:
    class Hook(kusari.LinkHook):
        name = "Hook"

    model = build(decorate(lambda s, x: s.l(x) if "Hook" in s.m.local_link_hooks else s.m(x)))
    model.l.W.array[...] = 1

    def change(i: int) -> None:
        if i == 6:
            model.m.add_hook(Hook())
    return before(model, change)


@ROWS.falls_back("changes in every call")
def reporters(decorate: Any) -> Any:
    reporter = kusari.Reporter()
    static = decorate(lambda x: F.tanh(x) * (1 + len(reporter.observation)))

    def change(i: int) -> None:
        reporter.observation = {str(k): k for k in range(i // 3)}
    return before(static, change)


@ROWS.replays
def summaries(decorate: Any) -> Any:
    summary = kusari.Summary()
    summary.add(1.0)
    static = decorate(lambda x: F.tanh(x) * float(summary.compute_mean()))
    return before(static, lambda i: summary.add(float(i)) if i % 3 == 0 else None)


@ROWS.falls_back("changes in every call")
def triggers_of_trainers(decorate: Any) -> Any:
    updater = types.SimpleNamespace(iteration=1, epoch_detail=0.1, previous_epoch_detail=0.0)
    fake = types.SimpleNamespace(updater=updater)
    trigger = triggers.IntervalTrigger(3, "iteration")
    static = decorate(lambda x: F.tanh(x) if trigger(fake) else F.relu(x))
    return before(static, lambda i: setattr(fake.updater, "iteration", i))


@ROWS.falls_back("changes in every call")
def updaters(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: F.sum(s.l(x)) * (1 + s.updater[0].iteration if s.updater else 1)), updater=[])
    optimizer = optimizers.SGD(0.01).setup(model)
    data = list(np.random.RandomState(0).randn(12, 4).astype("f"))
    updater = training.updaters.StandardUpdater(iterators.SerialIterator(data, 2, shuffle=False), optimizer)
    model.updater.append(updater)

    def call(i: int, x: Any) -> Any:
        updater.update()
        return model, updater.iteration
    return call


@ROWS.replays
def classifiers(decorate: Any) -> Any:
    model = L.Classifier(build(decorate(lambda s, x: F.tanh(s.l(x)))), lossfun=F.mean_squared_error)
    model.compute_accuracy = False

    def call(i: int, x: Any) -> Any:
        model.lossfun = F.mean_absolute_error if i // 3 == 1 else F.mean_squared_error
        return model(x, x)
    return call


@ROWS.replays
def classifiers_that_are_static(decorate: Any) -> Any:
    class Decorated(L.Classifier):
        forward = decorate(L.Classifier.forward)

    model = Decorated(L.Linear(4, 4), lossfun=F.mean_squared_error)
    model.compute_accuracy = False

    def call(i: int, x: Any) -> Any:
        model.lossfun = F.mean_absolute_error if i // 3 == 1 else F.mean_squared_error
        return model(x, x), model.loss is not None, model.y
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
