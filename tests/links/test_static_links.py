"""Every link compiled: results, gradients of inputs and parameters, and state equal define-by-run's."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from links.every_link import CASES

import kusari

# Compiled in few other tests; the rest, whose parts are compiled in many, is slow here.
QUICK = {"Bias", "Scale", "DepthwiseConvolution2D", "LocalConvolution2D", "Convolution1D", "Deconvolution1D",
         "StatefulGRU", "StatelessMGU", "NStepGRU", "NaryTreeLSTM"}


def _trained(link: Any, f: Any, arrays: tuple[Any, ...], steps: int) -> list[Any]:
    found: list[Any] = []
    for step in range(steps):
        xs = [kusari.Variable((x * (1 + 0.1 * step)).astype("f")) if x.dtype.kind == "f" else x for x in arrays]
        link.cleargrads()
        if hasattr(link, "reset_state"):
            link.reset_state()
        np.random.seed(step)
        ys = f(*xs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        for i, y in enumerate(ys):
            y.grad = np.random.RandomState(i).uniform(-1, 1, y.shape).astype("f")
        kusari.backward(ys)
        found += [y.array for y in ys] + [x.grad for x in xs if isinstance(x, kusari.Variable)]
        found += [p.grad for _, p in sorted(link.namedparams())]
        found += [np.array(getattr(k, n)) for _, k in sorted(link.namedlinks()) for n in sorted(k._persistent)]
    return found


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES])
def test_compiled(name: str) -> None:
    make, arrays = CASES[name]
    both = []
    for compiled in (False, True):
        np.random.seed(0)
        made = make()
        call, link = made if isinstance(made, tuple) else (made, made)
        with kusari.using_config("train", False):
            np.random.seed(1)
            call(*arrays)  # parameters whose shapes follow the input
        f = kusari.static_graph(lambda *xs, call=call: call(*xs)) if compiled else call
        both.append(_trained(link, f, arrays, 3))
    for e, y in zip(*both, strict=True):
        assert (e is None) == (y is None)
        if e is not None:
            assert (y.dtype, y.shape) == (e.dtype, e.shape)
            np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-4 * max(1, abs(e).max(initial=0)))


def test_chainers_names_of_schedules_are_there_once_there_is_one() -> None:
    class Model(kusari.Chain):
        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return x * 2

    model = Model()
    with kusari.using_config("use_static_graph", False):
        model(np.ones(2, "f"))
    assert not hasattr(model, "schedule_manager") and not hasattr(model, "static_schedule")
    model(np.ones(2, "f"))
    model.schedule_manager.end_forward()
    assert model.static_schedule.nbytes >= 0
