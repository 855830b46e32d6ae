"""Loops that are one schedule, and loops that are not: `test_joined_loops.py` runs them."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import kusari
from kusari import functions as F
from kusari import links as L
from kusari import optimizer_hooks, optimizers

STEPS = 6


class Net(kusari.Chain):
    def __init__(self, dropout: bool = False) -> None:
        super().__init__()
        self.dropout, self.seen = dropout, []
        with self.init_scope():
            self.a, self.b, self.unread = L.Linear(5, 7), L.Linear(7, 3), L.Linear(2, 2)

    def compute(self, x: Any, t: Any) -> Any:
        h = F.tanh(self.a(x))
        return F.softmax_cross_entropy(self.b(F.dropout(h) if self.dropout else h), t)

    loss = kusari.static_graph(compute)


class Called(Net):
    forward = kusari.static_graph(Net.compute)


class Own(Net):
    __call__ = kusari.static_graph(Net.compute)


class World:
    """A model, its optimizer and its data on a device; ``trace`` is all that a loop has seen."""

    def __init__(self, kind: type[Net] = Net, optimizer: Any = optimizers.Adam, device: str = "@numpy",
                 **more: Any) -> None:
        np.random.seed(3)
        self.device = kusari.get_device(device)
        self.model = kind(**more)
        self.model.to_device(device)
        self.opt = optimizer()
        self.opt.setup(self.model)
        self.x: Any = self.device.send(np.random.rand(STEPS, 4, 5).astype(np.float32))
        self.t: Any = self.device.send(np.random.randint(0, 3, (STEPS, 4)).astype(np.int32))
        self.device.xp.random.seed(3)
        self.trace: list[Any] = []

    def state(self) -> list[Any]:
        """All that is left behind."""
        found: list[Any] = [*self.trace, self.opt.t]
        for _, p in sorted(self.model.namedparams()):
            rule = p.update_rule
            found += [p.array, p.grad, rule.t, *(v for _, v in sorted((rule.state or {}).items()))]
        return [host(x) if hasattr(x, "dtype") else x for x in found]

    @property
    def joined(self) -> bool:
        """Whether a step of the optimizer gives its loss."""
        steps = self.opt.__dict__.get("_steps")
        return steps is not None and any(s is not None and s.gives_loss and s.compiled is not None
                                         for _, s in steps.by_loss.values())


def host(array: Any) -> Any:
    """The elements of an array, of whatever device, as one of NumPy's."""
    return kusari.get_device("@numpy").send(array)


JOINED: list[Callable[[World], None]] = []
IN_PARTS: list[Callable[[World], None]] = []


def joined(loop: Any) -> Any:
    JOINED.append(loop)
    return loop


def in_parts(loop: Any) -> Any:
    IN_PARTS.append(loop)
    return loop


@joined
def clears_after(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))


@joined
def clears_before(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        model.cleargrads()
        loss = model.loss(x, t)
        loss.backward()
        opt.update()
        w.trace.append(loss.array)


@joined
def starred(w: World) -> None:
    model, opt, batches = w.model, w.opt, list(zip(w.x, w.t, strict=True))
    for i in range(STEPS):
        loss = model.loss(*batches[i % len(batches)])
        model.cleargrads()
        loss.backward()
        opt.update()
        del loss


@joined
def in_a_closure(w: World) -> None:
    model, opt = w.model, w.opt

    def step(x: Any, t: Any) -> float:
        model.cleargrads()
        loss = model.loss(x, t)
        loss.backward()
        opt.update()
        return float(loss.data)

    for x, t in zip(w.x, w.t, strict=True):
        w.trace.append(step(x, t))


@joined
def in_a_generator(w: World) -> None:
    def steps(model: Any, opt: Any) -> Any:
        for x, t in zip(w.x, w.t, strict=True):
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            opt.update()
            yield loss.array

    w.trace += list(steps(w.model, w.opt))


@joined
def gradients_are_seen(w: World) -> None:
    model, opt, kept = w.model, w.opt, []
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        kept.append((model.a.W.grad, model.a.W.grad.copy(), loss.array, loss.array.copy()))
    for a, b, c, d in kept:
        np.testing.assert_array_equal(host(a), host(b))
        np.testing.assert_array_equal(host(c), host(d))
        w.trace += [b, d]


@joined
def rate_changes(w: World) -> None:
    model, opt = w.model, w.opt
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        setattr(opt, "alpha" if hasattr(opt, "alpha") else "lr", 0.01 / (i + 1))
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()


@joined
def batches_of_two_sizes(w: World) -> None:
    model, opt = w.model, w.opt
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        x, t = (x, t) if i % 3 else (x[:2], t[:2])
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))


@joined
def hooks_that_are_compiled(w: World) -> None:
    model, opt = w.model, w.opt
    opt.add_hook(optimizer_hooks.WeightDecay(0.01))
    opt.add_hook(lambda o: w.trace.append(float(model.a.W.array.sum())), name="after", timing="post")
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()


@joined
def a_label_is_out_of_range(w: World) -> None:
    model, opt = w.model, w.opt
    w.t[4, 1] = 7
    for x, t in zip(w.x, w.t, strict=True):
        try:
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            opt.update()
            w.trace.append(float(loss.array))
        except Exception as error:
            w.trace.append(type(error).__name__)
            w.trace.append(model.a.W.array.copy())


@joined
def a_variable_gets_a_gradient(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        v = kusari.Variable(x)
        loss = model.loss(v, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(v.grad)


@joined
def a_parameter_is_not_updated(w: World) -> None:
    model, opt = w.model, w.opt
    model.b.disable_update()
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()


@joined
def now_and_then_in_parts(w: World) -> None:
    model, opt = w.model, w.opt
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        kusari.config.use_static_graph = i % 3 != 1
        try:
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            opt.update()
        finally:
            kusari.config.use_static_graph = True
        w.trace.append(float(loss.array))


@joined
def the_optimizer_is_another_at_times(w: World) -> None:
    model, first, second = w.model, w.opt, optimizers.SGD(0.5)
    second.setup(model)
    first.setup(model)
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        opt = second if i == 3 else first
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
    w.trace += [first.t, second.t]


@joined
def others_watch_at_times(w: World) -> None:
    model, opt = w.model, w.opt

    def watch(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is step.__code__:
            w.trace.append((frame.f_lineno - step.__code__.co_firstlineno, event, float(model.a.W.array.sum())))
        return watch

    def step(x: Any, t: Any) -> None:
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()

    before = sys.gettrace()
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        sys.settrace(watch if i == 4 else None)
        try:
            step(x, t)
        finally:
            sys.settrace(before)


@in_parts
def the_loss_goes_on(w: World) -> None:
    model, opt, losses = w.model, w.opt, []
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        losses.append(loss)
    model.cleargrads()
    losses[-1].backward()


@in_parts
def the_loss_has_two_backwards(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        loss.backward()


@in_parts
def a_function_has_the_loss(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float((lambda: loss)().array))


@in_parts
def all_variables_are_shown(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        locals()["loss"].backward()


@in_parts
def something_lies_between(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        model.a.W.grad[...] *= 2
        opt.update()
        w.trace.append(float(loss.array))


@in_parts
def a_branch_lies_between(w: World) -> None:
    model, opt = w.model, w.opt
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        loss = model.loss(x, t)
        if i != 3:
            model.cleargrads()
        loss.backward()
        opt.update()


@in_parts
def gradients_add_up(w: World) -> None:
    model, opt = w.model, w.opt
    model.cleargrads()
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        loss.backward()
        opt.update()


@in_parts
def the_loss_is_a_sum_of_calls(w: World) -> None:
    model, opt = w.model, w.opt
    for i in range(STEPS - 1):
        loss: Any = sum(map(model.loss, w.x[i:i + 2], w.t[i:i + 2]))
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))


@in_parts
def a_call_inside_another(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = F.sum(model.loss(x, t))
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))


@in_parts
def a_hook_of_the_users(w: World) -> None:
    model, opt = w.model, w.opt
    opt.add_hook(lambda o: w.trace.append(float(model.a.W.grad.sum())), name="own", timing="pre")
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()


@in_parts
def another_object_updates(w: World) -> None:
    class Updates:
        def __init__(self, opt: Any) -> None:
            self.opt = opt

        def update(self) -> None:
            w.trace.append(float(w.model.a.W.array.sum()))
            self.opt.update()

    model, opt = w.model, Updates(w.opt)
    for x, t in zip(w.x, w.t, strict=True):
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
