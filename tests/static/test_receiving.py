"""Gradients given to and taken from parameters by straight-line Python, for none and for many parameters."""
from __future__ import annotations

from types import SimpleNamespace

import pytest

from kusari.static.replay import receiving


@pytest.mark.parametrize("count", [0, 1, 2, 255, 400])  # Python allows 255 targets before a starred one
def test_gradients_are_given_and_cleared(count: int) -> None:
    params = [SimpleNamespace(_array=0, _grad=None, _grad_var=None) for _ in range(count)]
    found = list(range(count + 2))
    assert list(receiving.giving(params)(found)) == [count, count + 1]
    assert [p._grad for p in params] == found[:count]
    receiving.clearing(params)()
    assert all(p._grad is None for p in params)
