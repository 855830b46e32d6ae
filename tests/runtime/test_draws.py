"""Compiled draws and NumPy's global generator: one sequence, whoever draws, whatever generator it is."""
from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F


@kusari.static_graph
def two(x: Any) -> Any:
    return F.dropout(x), F.dropout(x * 2, .3)


def results(static: bool) -> list[np.ndarray]:
    np.random.seed(5)
    found: list[np.ndarray] = []
    with kusari.using_config("use_static_graph", static):
        for i in range(5):
            found.append(np.random.standard_normal(3))
            found += [v.array for v in two(np.full((7, 91), i + 1, "f"))]
            found.append(np.random.randint(0, 9, 3))
            if i == 3:
                np.random.set_state(np.random.RandomState(8).get_state())
    return found


def test_draws_are_those_of_define_by_run() -> None:
    for a, b in zip(results(False), results(True), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not hasattr(np.random, "set_bit_generator"), reason="this NumPy has one global generator")
def test_another_generator_behind_numpys_functions() -> None:
    before = np.random.get_bit_generator()
    x = np.ones((40, 40), "f")
    for _ in range(2):
        two(x)
    try:
        found = []
        for static in (False, True):
            np.random.set_bit_generator(np.random.PCG64(3))
            with kusari.using_config("use_static_graph", static):
                found.append([v.array for _ in range(3) for v in two(x)])
    finally:
        np.random.set_bit_generator(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_share_the_sequence() -> None:
    x = np.ones((64, 64), "f")
    for _ in range(2):
        two(x)
    np.random.seed(1)
    threads = [threading.Thread(target=lambda: [two(x) for _ in range(20)]) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    after = np.random.random_sample()
    np.random.seed(1)
    np.random.random_sample(2 * 64 * 64 * 60)
    assert after == np.random.random_sample()
