"""Objects of the library that static functions read: optimizers, iterators, data, rules, parameters, links, hooks."""
from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from static.observed.harness import Model, Rows, before, build

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Parameter, Variable, datasets, initializers, iterators, optimizers, training
from kusari.training import triggers

ROWS = Rows()


class Normalized(Model):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.norm = L.BatchNormalization(4)

W = initializers.Constant(0.3)


def optimizing(body: Any, make: Any, change: Any = lambda o, i: None, whole: bool = False) -> Any:
    """Return a program whose model has its optimizer as an attribute, and is updated by it."""
    model = build(body)
    model.optimizer = types.SimpleNamespace()  # an attribute of the model from its first call on
    optimizer = model.optimizer = make().setup(model)

    def call(i: int, x: Any) -> Any:
        change(optimizer, i)
        if whole and i % 2:
            optimizer.update(model, x)
        else:
            y = model(x)
            model.cleargrads()
            F.sum(y * y).backward()
            optimizer.update()
        return model, optimizer.t
    return call


# -- optimizers and their rules ----------------------------------------------------------------------------------------

@ROWS.either
def number_of_updates(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (1 + s.optimizer.t)), lambda: optimizers.SGD(0.01))


@ROWS.replays
def a_branch_on_the_number_of_updates(decorate: Any) -> Any:
    """Half of the calls are on each side; only a guard of what is compared can replay it."""
    return optimizing(decorate(lambda s, x: s.l(x) if s.optimizer.epoch < 1 else s.m(x)), lambda: optimizers.SGD(0.01),
                      lambda o, i: o.new_epoch() if i == 4 else None)


@ROWS.replays
def learning_rate(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * s.optimizer.lr), lambda: optimizers.MomentumSGD(0.1),
                      lambda o, i: setattr(o, "lr", 0.1 if i < 4 else 0.02))


@ROWS.replays
def hyperparameters(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * s.optimizer.hyperparam.alpha * 100), optimizers.Adam,
                      lambda o, i: setattr(o.hyperparam, "alpha", 0.001 * (1 + i // 3)))


@ROWS.replays
def hyperparameters_as_a_dictionary(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * s.optimizer.hyperparam.get_dict()["momentum"]),
                      optimizers.MomentumSGD, lambda o, i: setattr(o, "momentum", 0.9 if i < 5 else 0.5))


@ROWS.either
def learning_rate_of_adam(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (s.optimizer.lr * 100 if s.optimizer.t else 1.0)), optimizers.Adam)


@ROWS.replays
def rules_that_are_disabled(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) if s.l.W.update_rule.enabled else s.m(x)),
                      lambda: optimizers.SGD(0.01),
                      lambda o, i: setattr(o.target.l.W.update_rule, "enabled", i // 3 != 1))


@ROWS.replays
def links_whose_update_is_disabled(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: F.relu(s.l(x)) if s.l.update_enabled else s.l(x)),
                      lambda: optimizers.SGD(0.01),
                      lambda o, i: (o.target.l.disable_update if i // 3 == 1 else o.target.l.enable_update)())


@ROWS.replays
def hyperparameters_of_a_rule(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * s.l.W.update_rule.hyperparam.lr * 10), lambda: optimizers.SGD(0.1),
                      lambda o, i: setattr(o.target.l.W.update_rule.hyperparam, "lr", 0.1 if i < 3 else 0.3))


@ROWS.either
def updates_of_a_rule(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (s.l.W.update_rule.t + 1)), lambda: optimizers.SGD(0.01))


@ROWS.either
def state_of_a_rule(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        state = s.l.W.update_rule.state
        return s.l(x) if state is None else F.linear(x, state["v"])
    return optimizing(decorate(body), lambda: optimizers.MomentumSGD(0.01))


@ROWS.replays
def hooks_of_an_optimizer(decorate: Any) -> Any:
    def change(o: Any, i: int) -> None:
        if i == 3:
            o.add_hook(kusari.optimizer_hooks.WeightDecay(0.1))
        if i == 6:
            o.remove_hook("WeightDecay")
    return optimizing(decorate(lambda s, x: s.l(x) if "WeightDecay" in s.optimizer._hooks.pre else s.m(x)),
                      lambda: optimizers.SGD(0.01), change)


@ROWS.replays
def scale_of_losses(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (s.optimizer._loss_scale or 1.0)), lambda: optimizers.SGD(0.01),
                      lambda o, i: o.set_loss_scale(2.0) if i == 4 else None)


@ROWS.replays
def an_optimizer_that_is_replaced(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.optimizer.lr))

    def change(i: int) -> None:
        if i % 4 == 0:
            model.optimizer = optimizers.SGD(1.0 + i).setup(model)
    return before(model, change)


@ROWS.either
def number_of_updates_in_a_whole_step(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: F.sum(s.l(x)) * (1 + s.optimizer.t)), lambda: optimizers.SGD(0.01),
                      whole=True)


@ROWS.replays
def learning_rate_in_a_whole_step(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: F.sum(F.tanh(s.l(x))) * s.optimizer.lr), lambda: optimizers.SGD(0.1),
                      lambda o, i: setattr(o, "lr", 0.1 if i < 4 else 0.05), whole=True)


# -- iterators and data ------------------------------------------------------------------------------------------------

def iterating(read: Any, reading: bool = True, **options: Any) -> Any:
    def program(decorate: Any) -> Any:
        data = [np.full(4, k, "f") for k in range(6)]
        iterator = iterators.SerialIterator(data, 2, **{"shuffle": False, **options})
        static = decorate(lambda x: read(iterator, F.tanh(x)))

        def call(i: int, x: Any) -> Any:
            if reading and i % 3 == 2:
                iterator.next()
            return static(x), iterator.current_position, iterator.epoch
        return call
    return program


READS: dict[str, tuple[str | None, Any]] = {
    "epoch": ("replays", lambda it, x: x * (1 + it.epoch)),
    "is_new_epoch": ("replays", lambda it, x: F.relu(x) if it.is_new_epoch else x * 2),
    "epoch_detail": (None, lambda it, x: x * (1 + it.epoch_detail)),
    "current_position": (None, lambda it, x: x * (1 + it.current_position)),
    "previous_epoch_detail": (None, lambda it, x: x * (1 + (it.previous_epoch_detail or 0.0))),
    "next": (None, lambda it, x: x * float(it.next()[0][0])),
    "builtin next": (None, lambda it, x: x * float(sum(a[0] for a in next(it)))),
    "reset": (None, lambda it, x: (it.reset(), x * 2)[1]),
    "batch as operand": (None, lambda it, x: x + it.next()[1]),
    "data through it": (None, lambda it, x: x * float(it.dataset[it.current_position][0])),
    "batch size": ("replays", lambda it, x: x * it.batch_size),
    "loop": (None, lambda it, x: sum((x * float(b[0][0]) for _, b in zip(range(2), it, strict=False)), x)),
}
for _name, (_expected, _read) in READS.items():
    for _reading in (True, False):
        _program = iterating(_read, _reading)
        _program.__name__ = f"iterator: {_name}, {'moved' if _reading else 'left alone'}"
        _program.__module__ = __name__
        ROWS._add(_expected if _reading else None, _program, 2e-5)


@ROWS.either
def a_shuffled_iterator(decorate: Any) -> Any:
    iterator = iterators.SerialIterator(list(range(5)), 2)
    static = decorate(lambda x: F.tanh(x) * (1 + sum(iterator.next())))
    return lambda i, x: (static(x), iterator.epoch)


@ROWS.either
def items_of_data(decorate: Any) -> Any:
    rows = [1.0, 2.0, 3.0]
    data = datasets.TupleDataset(rows, [4.0, 5.0, 6.0])
    static = decorate(lambda x: F.tanh(x) * sum(data[1]))
    return before(static, lambda i: rows.__setitem__(1, 1.0 + i // 3))


@ROWS.either
def data_transformed(decorate: Any) -> Any:
    table = {"k": 1.0}
    data = datasets.TransformDataset([1.0, 2.0], lambda v: v * table["k"])
    static = decorate(lambda x: F.tanh(x) * data[0] * len(data))
    return before(static, lambda i: table.update(k=1.0 + i // 3))


@ROWS.either
def data_of_the_user(decorate: Any) -> Any:
    class Data(kusari.dataset.DatasetMixin):
        rows = [1.0, 2.0]

        def __len__(self) -> int:
            return len(self.rows)

        def get_example(self, i: int) -> float:
            return self.rows[i]

    data = Data()
    static = decorate(lambda x: F.tanh(x) * data[0] * sum(data[0:len(data)]))

    def change(i: int) -> None:
        Data.rows[0] = 1.0 + i // 4
        if i == 6:
            Data.rows.append(7.0)
    return before(static, change)


@ROWS.either
def arrays_of_data(decorate: Any) -> Any:
    rows = np.ones((3, 4), "f")
    data = datasets.TupleDataset(rows)
    static = decorate(lambda x: F.tanh(x) + data[1][0])

    def change(i: int) -> None:
        rows[1] = i // 3
    return before(static, change)


@ROWS.either
def converted_batches(decorate: Any) -> Any:
    batch = [(np.ones(4, "f"), 1), (np.zeros(4, "f"), 2), (np.ones(4, "f"), 3)]
    static = decorate(lambda x: F.tanh(x) * kusari.dataset.concat_examples(batch)[0])

    def change(i: int) -> None:
        batch[i % 3] = (np.full(4, i, "f"), i)
    return before(static, change)


# -- parameters, Variables, links --------------------------------------------------------------------------------------

@ROWS.replays
def attributes_of_a_parameter(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.l.W.scale))
    return before(model, lambda i: setattr(model.l.W, "scale", 1.0 + i // 3))


@ROWS.replays
def names_of_a_parameter(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * len(s.l.W.name)))
    return before(model, lambda i: setattr(model.l.W, "name", "W" * (1 + i // 3)))


@ROWS.replays
def names_of_a_variable(decorate: Any) -> Any:
    v = Variable(np.ones(4, "f"))
    static = decorate(lambda x: F.tanh(x) if v.name == "a" else F.relu(x))
    return before(static, lambda i: setattr(v, "name", "ab"[i // 3 % 2]))


@ROWS.replays
def names_of_links(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * len(s.l.name)))
    return before(model, lambda i: setattr(model.l, "name", "l" * (1 + i // 3)))


@ROWS.either
def names_of_an_argument(decorate: Any) -> Any:
    static = decorate(lambda v: F.tanh(v) if v.name == "a" else F.relu(v))
    return lambda i, x: static(Variable(x, name="ab"[i // 3 % 2]))


@ROWS.either
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


@ROWS.replays
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


@ROWS.either
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


@ROWS.either
def whether_a_parameter_is_initialized(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * (2.0 if s.more.W.is_initialized else 1.0)), more=L.Linear(3))
    return before(model, lambda i: model.more.W.initialize((3, 2)) if i == 4 else None)


@ROWS.either
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


@ROWS.either
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


@ROWS.either
def statistics_of_layers(decorate: Any) -> Any:
    class Decorated(Normalized):
        @decorate
        def forward(self, x: Any) -> Any:
            return self.norm(self.l(x)) * (1.0 if self.norm.avg_var[0] > 0.5 else 2.0)

    model = Decorated()
    return lambda i, x: model(x)


@ROWS.either
def hooks_of_links(decorate: Any) -> Any:
    class Hook(kusari.LinkHook):
        name = "Hook"

    model = build(decorate(lambda s, x: s.l(x) if "Hook" in s.m.local_link_hooks else s.m(x)))
    model.l.W.array[...] = 1

    def change(i: int) -> None:
        if i == 6:
            model.m.add_hook(Hook())
    return before(model, change)


@ROWS.either
def reporters(decorate: Any) -> Any:
    reporter = kusari.Reporter()
    static = decorate(lambda x: F.tanh(x) * (1 + len(reporter.observation)))

    def change(i: int) -> None:
        reporter.observation = {str(k): k for k in range(i // 3)}
    return before(static, change)


@ROWS.either
def summaries(decorate: Any) -> Any:
    summary = kusari.Summary()
    summary.add(1.0)
    static = decorate(lambda x: F.tanh(x) * float(summary.compute_mean()))
    return before(static, lambda i: summary.add(float(i)) if i % 3 == 0 else None)


@ROWS.either
def triggers_of_trainers(decorate: Any) -> Any:
    fake = types.SimpleNamespace(updater=types.SimpleNamespace(iteration=1, epoch_detail=0.1, previous_epoch_detail=0.0))
    trigger = triggers.IntervalTrigger(3, "iteration")
    static = decorate(lambda x: F.tanh(x) if trigger(fake) else F.relu(x))
    return before(static, lambda i: setattr(fake.updater, "iteration", i))


@ROWS.either
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
    model = L.Classifier(build(decorate(lambda s, x: F.tanh(s.l(x)))), lossfun=F.mean_squared_error, accfun=None)
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
