"""Arrays that change in place between calls (memory, shape, strides, dtype, flags), or from one layout to another."""
from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable
from kusari.optimizers import SGD, Adam, MomentumSGD
from kusari.runtime.prepared import Invoker


def resize(a: Any, *shape: int) -> None:
    a.resize(shape, refcheck=False)


def move(a: Any) -> None:
    """Let an array have other memory, of the same shape."""
    shape = a.shape
    resize(a, 400, 400)
    resize(a, *shape)


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.W = kusari.Parameter(np.linspace(-1, 1, 16).reshape(4, 4).astype("f"))
            self.b = kusari.Parameter(np.linspace(-0.1, 0.1, 4).astype("f"))
            self.norm = L.BatchNormalization(4)
        self.k = np.linspace(1, 2, 4).astype("f")
        self.x = np.random.RandomState(0).randn(4, 4).astype("f")
        self.h: Any = None

    def out(self, x: Any) -> Any:
        return F.tanh(x @ self.W + F.broadcast_to(self.b, (x.shape[0], 4)))


def strides(*new: int) -> Callable[[Any], Any]:
    return lambda a: setattr(a, "strides", new)


def shape(*new: int) -> Callable[[Any], Any]:
    return lambda a: setattr(a, "shape", new)


def dtype(new: str) -> Callable[[Any], Any]:
    return lambda a: setattr(a, "dtype", new)


def size(*new: int) -> Callable[[Any], Any]:
    return lambda a: resize(a, *new)


def writeable(yes: bool) -> Callable[[Any], Any]:
    return lambda a: setattr(a.flags, "writeable", yes)


ARRAYS: dict[str, Callable[[Model], Any]] = {
    "W": lambda m: m.W.array, "b": lambda m: m.b.array, "mean": lambda m: m.norm.avg_mean, "k": lambda m: m.k,
    "x": lambda m: m.x, "v": lambda m: m.W.update_rule.state["v"]}
ALL, TRAIN = ("predict", "update", "step"), ("update", "step")
# Each: an array, what happens to it before which calls, and where that once went unseen.
CHANGES: dict[str, tuple[str, dict[int, Callable[[Any], Any]], tuple[str, ...]]] = {
    "transposed parameter": ("W", {3: strides(4, 16), 5: strides(16, 4)}, ALL),
    "repeating parameter": ("W", {3: strides(0, 4)}, ALL),
    "reshaped parameter": ("W", {3: shape(2, 8), 5: shape(4, 4)}, ALL),
    "reshaped bias": ("b", {3: shape(1, 4), 5: shape(4)}, TRAIN),
    "retyped bias": ("b", {3: dtype("i4"), 5: dtype("f4")}, ALL),
    "moved parameter": ("W", {3: move, 5: move}, ALL),
    "larger parameter": ("W", {3: size(4000, 400), 5: size(4, 4)}, ALL),
    "smaller parameter": ("W", {3: size(2, 2)}, ALL),
    "read-only parameter": ("W", {3: writeable(False), 5: writeable(True)}, TRAIN),
    "read-only bias": ("b", {4: writeable(False)}, TRAIN),
    "moved mean": ("mean", {3: move}, ALL),
    "larger mean": ("mean", {3: size(400000), 5: size(4)}, ALL),
    "reshaped mean": ("mean", {3: shape(2, 2), 5: shape(4)}, ALL),
    "lying mean": ("mean", {3: shape(1, 4)}, ALL),
    "repeating mean": ("mean", {3: strides(0)}, TRAIN),
    "read-only mean": ("mean", {3: writeable(False), 5: writeable(True)}, TRAIN),
    "moved attribute": ("k", {3: move}, ALL),
    "transposed argument": ("x", {3: strides(4, 16)}, ("update",)),
    "repeating argument": ("x", {3: strides(16, 0)}, ("update",)),
    "moved argument": ("x", {3: move, 5: size(8, 4)}, ("update",)),
    "moved state of a rule": ("v", {3: move, 5: move}, TRAIN),
    "larger state of a rule": ("v", {3: size(4, 8), 5: size(4, 4)}, TRAIN),
    "transposed state of a rule": ("v", {3: strides(4, 16)}, TRAIN),
    "read-only state of a rule": ("v", {3: writeable(False), 5: writeable(True)}, TRAIN)}


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, row in CHANGES.items() for mode in row[2]])
def test_changes_in_place(alike: Any, name: str, mode: str) -> None:
    _check(alike, name, mode)


@pytest.mark.parametrize("name", ["moved parameter", "read-only mean", "transposed state of a rule"])
def test_changes_in_place_where_native_code_sees_nothing_of_arrays(alike: Any, name: str,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Invoker, "binder", lambda *args, **options: None)
    _check(alike, name, "step")


def _check(alike: Any, name: str, mode: str) -> None:
    where, changes, _ = CHANGES[name]

    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def loss(self, x: Any) -> Any:
                return F.sum(self.norm(self.out(x)) ** 2 * self.k)

        model = Decorated()
        opt = MomentumSGD(0.01).setup(model)
        model.cleargrads()
        opt.update(lambda: F.sum(model.out(model.x)))  # from here on rules have states

        def call(i: int) -> Any:
            if i in changes:
                changes[i](ARRAYS[where](model))
            try:
                if mode == "predict":
                    with kusari.using_config("train", False), kusari.no_backprop_mode():
                        return model.loss(model.x)
                if mode == "step":
                    opt.update(model.loss, model.x)
                    return opt.t
                model.cleargrads()
                model.loss(model.x).backward()
                opt.update()
                return [None if p.grad is None else p.grad for p in model.params()]
            finally:
                seen.append([p.array.astype("f") for p in model.params() if name != "retyped bias"])
                seen[-1] += [model.norm.avg_mean.copy(), opt.t, model.W.update_rule.state["v"].copy()]
        seen: list[Any] = []
        return lambda i: (_outcome(call, i), seen[-1])

    alike(make, range(8), fallbacks=-1, atol=1e-4)  # gradients that cancel


def _outcome(call: Callable[[int], Any], i: int) -> Any:
    try:
        return call(i)
    except Exception as error:
        return type(error)


# Each: from a decorator to a function of the number of the call and of an array.
PROGRAMS: dict[str, Callable[[Any], Callable[[int, Any], Any]]] = {}


def program(f: Any) -> Any:
    PROGRAMS[f.__name__] = f
    return f


@program
def results(decorate: Any) -> Any:
    """results that callers have changed in place and dropped, too large to be copied."""
    f = decorate(lambda self, x: self.out(x))
    model = Model()

    def call(i: int, x: Any) -> Any:
        with kusari.no_backprop_mode():
            y = f(model, np.tile(x, (4096, 1))).array
        seen = y.copy(), y.flags.writeable
        if i in (2, 3):
            y.shape = (-1,)
        elif i == 4:
            resize(y, 1, 1)
        elif i == 5:
            resize(y, 4000, 4)
        elif i == 6:
            y.flags.writeable = False
        elif i == 7:
            y.dtype = "i4"
        return seen
    return call


@program
def gradients(decorate: Any) -> Any:
    f = decorate(lambda self, x: F.sum(self.out(x) ** 2))
    model = Model()
    opt = Adam(0.01).setup(model)

    def call(i: int, x: Any) -> Any:
        opt.update(f, model, x)
        seen = [p.grad.copy() for p in (model.W, model.b)], model.W.array.copy()
        if i >= 2:
            model.W.grad.shape = (16,)
            model.b.grad.shape = (2, 2)
        return seen
    return call


@program
def clipped_gradients(decorate: Any) -> Any:
    f = decorate(lambda self, x: F.sum(self.out(x) ** 2))
    model = Model()
    opt = MomentumSGD(0.01).setup(model)
    opt.add_hook(kusari.optimizer_hooks.GradientClipping(0.1))

    def call(i: int, x: Any) -> Any:
        model.cleargrads()
        f(model, x).backward()
        if i == 3:
            model.W.grad.flags.writeable = False
        if i == 4:
            model.W.grad = np.asfortranarray(model.W.grad)
        if i == 5:
            model.W.grad.shape = (2, 8)
        return _outcome(lambda _: opt.update(), 0), [p.array.copy() for p in model.params()], opt.t
    return call


@program
def parameters_before_backward(decorate: Any) -> Any:
    f = decorate(lambda self, x: F.sum(F.tanh(self.out(x) @ self.W)))
    model = Model()

    def call(i: int, x: Any) -> Any:
        model.cleargrads()
        v = Variable(x)
        y = f(model, v)
        if i == 3:
            model.W.array.strides = (4, 16)
        elif i == 4:
            move(model.W.array)
            model.W.array[...] = 0.5
        elif i == 5:
            model.W.array.flags.writeable = False
        y.backward()
        return v.grad.copy(), model.W.grad.copy()
    return call


@program
def results_of_the_traced_call(decorate: Any) -> Any:
    f = decorate(lambda self, x: self.out(x))
    model = Model()

    def call(i: int, x: Any) -> Any:
        with kusari.no_backprop_mode():
            y = f(model, x[:i % 3 + 1]).array
        resize(y, 2, 2)
        return y
    return call


@program
def elements_in_python(decorate: Any) -> Any:
    f = decorate(lambda self, x: x * float(self.k[1].sum()) + self.k.ndim)
    model = Model()

    def call(i: int, x: Any) -> Any:
        if i in (2, 4, 6):
            {2: shape(2, 2), 4: shape(4), 6: dtype("u4")}[i](model.k)
        return f(model, x)
    return call


@program
def frozen_and_read_only(decorate: Any) -> Any:
    f = decorate(lambda self, x: F.sum(self.out(x) ** 2))
    model = Model()
    model.b.array.flags.writeable = False
    opt = MomentumSGD(0.1).setup(model)

    def call(i: int, x: Any) -> Any:
        model.b.array.flags.writeable = i in (4, 5)
        model.b.update_rule.enabled = i in (5, 6)
        return _outcome(lambda _: opt.update(f, model, x), 0), model.b.array.copy(), model.W.array.copy(), opt.t
    return call


@program
def arguments_in_statistics(decorate: Any) -> Any:
    """What functions write while others read it."""
    f = decorate(lambda self, x, z: F.sum((self.norm(z) + 1) * x * x))
    model = Model()
    opt = SGD(0.1).setup(model)

    def call(i: int, z: Any) -> Any:
        mean = model.norm.avg_mean
        x = z + 1 if i < 3 else (np.broadcast_to(mean, (4, 4)), np.lib.stride_tricks.as_strided(mean, (4, 4), (0, 4)),
                                 z)[i % 3]
        opt.update(f, model, x, z)
        return model.norm.beta.grad.copy(), mean.copy()
    return call


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(alike: Any, name: str) -> None:
    rs = np.random.RandomState(1)

    def make(decorate: Any) -> Any:
        call = PROGRAMS[name](decorate)
        return lambda item: call(*item)

    alike(make, [(i, rs.randn(4, 4).astype("f")) for i in range(9)], fallbacks=int(name == "arguments_in_statistics"))


def memmap(a: Any, mode: Any = "r+") -> Any:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(a.tobytes())
    return np.memmap(file.name, a.dtype, mode, shape=a.shape)


def like(a: Any, made: Any) -> Any:
    made[...] = a
    return made


def frozen(a: Any) -> Any:
    a.flags.writeable = False
    return a


LAYOUTS: list[Callable[[Any], Any]] = [
    np.copy, np.asfortranarray, np.copy, lambda a: np.broadcast_to(a[:1], a.shape), np.copy,
    lambda a: a[::-1].copy()[::-1], lambda a: like(a, np.zeros((a.shape[0], 8), a.dtype)[:, ::2]),
    lambda a: frozen(a.copy()), np.copy, lambda a: like(a, np.ndarray(a.shape, a.dtype, np.zeros(99, "u1"), 1)),
    np.copy, memmap, np.copy,
    lambda a: like(a, np.lib.stride_tricks.as_strided(np.zeros(a.size, a.dtype), a.shape, (8, 4))),
    lambda a: np.lib.stride_tricks.as_strided(a.copy(), a.shape, (0, 4)), np.copy, lambda a: memmap(a, "r"),
    lambda a: frozen(np.asfortranarray(a.copy())), lambda a: memmap(a).view(np.ndarray),
    lambda a: pickle.loads(pickle.dumps(a)), np.copy, lambda a: a.astype(a.dtype.newbyteorder()), np.copy]


@pytest.mark.parametrize("where", ["argument", "W", "mean"])
def test_layouts_that_change_into_each_other(alike: Any, where: str) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            @decorate
            def loss(self, x: Any) -> Any:
                return F.sum(F.tanh(self.norm(x @ self.W)) * self.k * x)

        model = Decorated()
        opt = MomentumSGD(0.01).setup(model)

        def call(item: Any) -> Any:
            i, x = item
            layout = LAYOUTS[i]
            if where == "argument":
                x = layout(x)
            elif where == "W":
                model.W.array = layout(model.W.array)
            else:
                model.norm.avg_mean = layout(np.stack([model.norm.avg_mean] * 2))[0]
            found = _outcome(lambda _: opt.update(model.loss, x), 0)
            return found, [p.array.astype("f") for p in model.params()], model.norm.avg_mean.copy(), opt.t
        return call

    rs = np.random.RandomState(1)
    alike(make, [(i, rs.randn(4, 4).astype("f")) for i in range(len(LAYOUTS))], fallbacks=-1)
