"""Objects of the library that static functions read: optimizers and their rules, iterators, data."""
from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import Rows, before

import kusari
import kusari.functions as F
from kusari import datasets, iterators, optimizers

ROWS = Rows()




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

@ROWS.falls_back("changes in every call")
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


@ROWS.falls_back("changes in every call")
def learning_rate_of_adam(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (s.optimizer.alpha_t * 100 if s.optimizer.t else 1.0)),
                      optimizers.Adam)


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


@ROWS.falls_back("changes in every call")
def updates_of_a_rule(decorate: Any) -> Any:
    return optimizing(decorate(lambda s, x: s.l(x) * (s.l.W.update_rule.t + 1)), lambda: optimizers.SGD(0.01))


@ROWS.replays
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


@ROWS.falls_back("changes in every call")
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


READS: dict[str, tuple[str, Any]] = {
    "epoch": ("replays", lambda it, x: x * (1 + it.epoch)),
    "is_new_epoch": ("replays", lambda it, x: F.relu(x) if it.is_new_epoch else x * 2),
    "epoch_detail": ("replays", lambda it, x: x * (1 + it.epoch_detail)),
    "current_position": ("replays", lambda it, x: x * (1 + it.current_position)),
    "previous_epoch_detail": ("replays", lambda it, x: x * (1 + (it.previous_epoch_detail or 0.0))),
    "next": ("falls back", lambda it, x: x * float(it.next()[0][0])),
    "builtin next": ("falls back", lambda it, x: x * float(sum(a[0] for a in next(it)))),
    "reset": ("replays", lambda it, x: (it.reset(), x * 2)[1]),
    "batch as operand": ("falls back", lambda it, x: x + it.next()[1]),
    "data through it": ("replays", lambda it, x: x * float(it.dataset[it.current_position][0])),
    "batch size": ("replays", lambda it, x: x * it.batch_size),
    "loop": ("falls back", lambda it, x: sum((x * float(b[0][0]) for _, b in zip(range(2), it, strict=False)), x)),
}
for _name, (_expected, _read) in READS.items():
    for _reading in (True, False):
        _program = iterating(_read, _reading)
        _program.__name__ = f"iterator: {_name}, {'moved' if _reading else 'left alone'}"
        _program.__module__ = __name__
        ROWS.add(_program, _expected, None if _expected == "replays" else "changes in every call")


@ROWS.falls_back("no recorded function made")
def a_shuffled_iterator(decorate: Any) -> Any:
    iterator = iterators.SerialIterator(list(range(5)), 2)
    static = decorate(lambda x: F.tanh(x) * (1 + sum(iterator.next())))
    return lambda i, x: (static(x), iterator.epoch)


@ROWS.replays
def items_of_data(decorate: Any) -> Any:
    rows = [1.0, 2.0, 3.0]
    data = datasets.TupleDataset(rows, [4.0, 5.0, 6.0])
    static = decorate(lambda x: F.tanh(x) * sum(data[1]))
    return before(static, lambda i: rows.__setitem__(1, 1.0 + i // 3))


@ROWS.replays
def data_transformed(decorate: Any) -> Any:
    table = {"k": 1.0}
    data = datasets.TransformDataset([1.0, 2.0], lambda v: v * table["k"])
    static = decorate(lambda x: F.tanh(x) * data[0] * len(data))
    return before(static, lambda i: table.update(k=1.0 + i // 3))


@ROWS.replays
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


@ROWS.replays
def arrays_of_data(decorate: Any) -> Any:
    rows = np.ones((3, 4), "f")
    data = datasets.TupleDataset(rows)
    static = decorate(lambda x: F.tanh(x) + data[1][0])

    def change(i: int) -> None:
        rows[1] = i // 3
    return before(static, change)


@ROWS.falls_back("changes in every call")
def converted_batches(decorate: Any) -> Any:
    batch = [(np.ones(4, "f"), 1), (np.zeros(4, "f"), 2), (np.ones(4, "f"), 3)]
    static = decorate(lambda x: F.tanh(x) * kusari.dataset.concat_examples(batch)[0])

    def change(i: int) -> None:
        batch[i % 3] = (np.full(4, i, "f"), i)
    return before(static, change)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
