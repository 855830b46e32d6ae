"""Static functions that are given arrays on a graphics card (here a stand-in for CuPy) stay define-by-run."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cupy_double import cupy

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.static import StaticGraphWarning

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


class Net(kusari.Chain):
    """Parameters that are moved to the card."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(3, 4, initialW=0.5)

    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return F.tanh(self.l(x))


@kusari.static_graph
def double(x: Any) -> Any:
    return F.relu(x) * 2


@pytest.mark.parametrize("name", ["link", "function"])
def test_one_warning_and_no_trace_for_every_call(name: str) -> None:
    net = Net()
    static, call = (Net.forward.static, net) if name == "link" else (double.static, double)
    expected = call(X).array
    with cupy() as module:
        if name == "link":
            net.to_device("@cupy:0")
        with pytest.warns(StaticGraphWarning, match="on a graphics card") as warned:
            found = [call(module.asarray(X * k)).array for k in (1, 1, 2)]
        np.testing.assert_allclose(found[1]._host, expected, rtol=1e-6)
        assert len(warned) == 1 and not any(cache.retraces for cache in static.caches())
