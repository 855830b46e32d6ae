"""Hazards of links: hooks, updates, statistics, parameters and links that change after the trace."""
from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
from static.hazards import Normed, eager, warm, xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizers, serializers

# -- hooks -------------------------------------------------------------------------------------------------------------

class CountFunctions(kusari.FunctionHook):
    name = "CountFunctions"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self.seen.append(function.label)


class CountLinks(kusari.LinkHook):
    name = "CountLinks"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def forward_postprocess(self, args: Any) -> None:
        self.seen.append(type(args.link).__name__)


def test_hooks_added_after_the_trace_fire() -> None:
    model = warm(Normed())
    with kusari.using_config("train", False):
        warm(model)
        x, = xs(1)
        for kind in (CountFunctions, CountLinks):
            hook, reference = kind(), kind()
            with hook:
                model(x)
            with reference:
                eager(model, x)
            assert hook.seen == reference.seen != []
        assert F.sum(model(x)).array is not None


@pytest.mark.parametrize("where", ["model", "child"])
def test_hooks_of_links_fire_and_can_be_taken_away(where: str) -> None:
    model = warm(Normed())
    link = model if where == "model" else model.l
    hook = CountLinks()
    link.add_hook(hook)
    for i, x in enumerate(xs(3)):
        model(x)
        assert len(hook.seen) == i + 1
    link.delete_hook("CountLinks")
    model(x)
    assert len(hook.seen) == 3
    optimizer = optimizers.SGD().setup(model)
    link.add_hook(hook)

    class Loss(Normed):
        pass

    optimizer.update(lambda v: F.sum(model(v)), x)
    assert len(hook.seen) == 4


# -- updates -----------------------------------------------------------------------------------------------------------

def test_frozen_parameters(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Normed):
            forward = decorate(lambda self, x: F.sum(F.tanh(self.norm(self.l(x)))))

        model = Decorated()
        optimizer = optimizers.MomentumSGD().setup(model)

        def call(item: Any) -> Any:
            i, x = item
            if i == 3:
                model.l.disable_update()
            if i == 6:
                model.l.enable_update()
                model.norm.gamma.update_rule.enabled = False
            optimizer.update(model, x)
            return [p.array.copy() for p in model.params()], model.norm.avg_mean, model.norm.avg_var
        return call

    both(make, list(enumerate(xs(9))), rtol=1e-3, atol=1e-4)


def test_statistics_reallocated_loaded_and_switched(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Normed):
            forward = decorate(lambda self, x: self.norm(self.l(x)))

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            if i == 3:
                model.norm.avg_mean = model.norm.avg_mean + 1
            if i == 5:
                model.norm.avg_var = np.full(4, 2, "f")
            with kusari.using_config("train", i % 3 != 2), kusari.using_config("enable_backprop", i % 2 == 0):
                y = model(x)
            return y, model.norm.avg_mean, model.norm.avg_var
        return call

    both(make, list(enumerate(xs(12))), rtol=1e-4, atol=1e-5)


def test_finetuning_counts(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Normed):
            forward = decorate(lambda self, x: self.norm(self.l(x), finetune=True))

        model = Decorated()
        return lambda x: (model(x), model.norm.N, model.norm.avg_mean, model.norm.avg_var)

    both(make, xs(12), rtol=1e-4, atol=1e-5, aside=r"BatchNormalization\.N")


def test_normalization_without_scale_is_static(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.norm = L.BatchNormalization(4, use_gamma=False, use_beta=False)

            forward = decorate(lambda self, x: self.norm(x))

        model = Decorated()
        return lambda x: (model(x), model.norm.avg_mean)

    both(make, xs(5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", ["lazy", "moved", "loaded", "cast"])
def test_parameters_initialized_moved_and_loaded(both: Any, change: str) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Normed):
            forward = decorate(lambda self, x: self.l(F.relu(self.l2(x))))

        model = Decorated(None if change == "lazy" else 4)
        with model.init_scope():
            model.l2 = L.Linear(None, 4)

        def call(item: Any) -> Any:
            i, x = item
            if i == 3 and change == "moved":
                model.to_device("@numpy")
            if i == 3 and change == "loaded":
                file = io.BytesIO()
                serializers.save_npz(file, model)
                file.seek(0)
                model.l.W.array[...] = 0
                serializers.load_npz(file, model)
            if i == 3 and change == "cast":
                for p in model.params():
                    p.array = p.array.astype("d")
            model.cleargrads()
            y = model(x.astype("d") if change == "cast" and i >= 3 else x)
            F.sum(y).backward()
            return y, [p.grad for p in model.params() if p.grad is not None]
        return call

    both(make, list(enumerate(xs(7))))


def test_links_added_to_a_list_after_the_trace(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.ChainList):
            @decorate
            def forward(self, x: Any) -> Any:
                for link in self.children():
                    x = F.tanh(link(x))
                return x

        model = Decorated(L.Linear(4, 4))

        def call(item: Any) -> Any:
            i, x = item
            if i in (3, 6):
                model.append(L.Linear(4, 4))
            if i == 8:
                model[0] = L.Linear(4, 4)
            return model(x)
        return call

    both(make, list(enumerate(xs(11))))


def test_links_added_to_a_chain_after_the_trace(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Normed):
            @decorate
            def forward(self, x: Any) -> Any:
                for name in sorted(self._children):
                    x = self[name](x)
                return x

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            if i == 3:
                model.add_link("z", L.Linear(4, 4))
            return model(x)
        return call

    both(make, list(enumerate(xs(6))), rtol=1e-3, atol=1e-4)


def test_sequential(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Sequential):
            forward = decorate(kusari.Sequential.forward)

        model = Decorated(L.Linear(4, 4), F.relu)

        def call(item: Any) -> Any:
            i, x = item
            if i == 3:
                model.append(F.tanh)
            return model(x)
        return call

    both(make, list(enumerate(xs(6))))


def test_nested_static_functions(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Inner(Normed):
            forward = decorate(lambda self, x: F.tanh(self.l(x)))

        class Outer(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.a = Inner()
                    self.b = Inner()

            @decorate
            def forward(self, x: Any) -> Any:
                return self.b(F.dropout(self.a(x), 0.2)) + self.a(x)

        model = Outer()

        def call(x: Any) -> Any:
            model.cleargrads()
            y, z = model(x), model.a(x)
            F.sum(y * z).backward()
            return y, z, [p.grad for _, p in model.namedparams() if p.grad is not None]
        return call

    with warnings.catch_warnings():
        both(make, xs(5))
