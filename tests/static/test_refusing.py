"""Functions whose forward does not take just any elements: gradients are derived on arrays of ones."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.static import StaticGraphWarning


def gradients(f: Any, steps: int = 3) -> list[np.ndarray]:
    found = []
    for i in range(steps):
        x = kusari.Variable(np.linspace(2, 3, 12, dtype="f").reshape(1, 1, 3, 4) + i)
        F.sum(f(x)).backward()
        found.append(x.grad)
    return found


def test_regions_of_the_only_image() -> None:
    """Regions of ones would be of a second image."""
    rois = np.array([[0, 1, 0, 3, 2]], "f")
    both = [gradients(f) for f in (lambda x: F.tanh(F.roi_pooling_2d(x, rois, 2, 2, 1.0)),
                                   kusari.static_graph(lambda x: F.tanh(F.roi_pooling_2d(x, rois, 2, 2, 1.0))))]
    for e, g in zip(*both, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)


class Picky(kusari.FunctionNode):
    """The identity of anything but ones."""

    pure = True

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        if np.asarray(x).flat[0] == 1:
            raise ValueError("ones")
        return x.copy(),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return grad_outputs[0] * 2,


def test_what_refuses_ones_is_differentiated_define_by_run() -> None:
    static = kusari.static_graph(lambda x: F.exp(Picky().apply((x,))[0]))
    with pytest.warns(StaticGraphWarning, match="in its backward: Picky refuses arrays of ones"):
        found = gradients(static)
    for e, g in zip(gradients(lambda x: F.exp(Picky().apply((x,))[0])), found, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)
