"""Initial values and five steps of each optimizer, bit for bit what Chainer 7.8.1 computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kusari
from kusari import initializers, optimizer_hooks, optimizers

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = json.loads((GOLDEN / "cases.json").read_text())
with np.load(GOLDEN / "chainer_values.npz") as _file:
    EXPECTED = dict(_file)

# Where operations come in another order than Chainer's, by units in the last place.
ROUNDED = {"GradientClipping": 1, "GradientHardClipping": 1, "order": 1, "MSVAG": 2, "GradientLARS": 4}


def steps(case: dict, shared: bool) -> np.ndarray:
    draw = np.random.RandomState(0)
    params = [draw.randn(3, 4).astype("f"), draw.randn(4).astype("f")]
    grads = [[draw.randn(3, 4).astype("f"), draw.randn(4).astype("f")] for _ in range(5)]
    link = kusari.Link()
    with link.init_scope():
        link.p0, link.p1 = (kusari.Parameter(p.astype(case["dtype"])) for p in params)
    optimizer = getattr(optimizers, case["class"])(**case["arguments"]).setup(link)
    for hook, arguments in case["hooks"]:
        optimizer.add_hook(getattr(optimizer_hooks, hook)(*arguments))
    if shared:
        for param in link.params():
            param.update_rule.update_core = param.update_rule._apply_exprs
    np.random.seed(1)
    for g0, g1 in grads:
        link.p0.grad, link.p1.grad = g0.astype(case["dtype"]), g1.astype(case["dtype"])
        optimizer.update()
    states = link.p0.update_rule.state
    parts = (link.p0.array, link.p1.array, *(states[key] for key in sorted(states)))
    return np.concatenate([part.ravel() for part in parts])


@pytest.mark.parametrize("name", CASES["initializers"])
def test_initial_values(name: str) -> None:
    case = CASES["initializers"][name]
    np.random.seed(7)
    initializer = getattr(initializers, case["class"])(**case["arguments"])
    parts = [initializers.generate_array(initializer, tuple(shape), np) for shape in case["shapes"]]
    found = np.concatenate([part.ravel() for part in parts])
    expected = EXPECTED["initializer " + name]
    assert found.dtype == expected.dtype
    if name == "Orthogonal":  # the decomposition is LAPACK's, whichever NumPy was built with
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CASES["optimizers"])
def test_five_steps(name: str) -> None:
    found, expected = steps(CASES["optimizers"][name], shared=False), EXPECTED["optimizer " + name]
    assert found.dtype == expected.dtype
    np.testing.assert_array_max_ulp(found, expected, ROUNDED.get(name, 0))


@pytest.mark.parametrize("name", CASES["optimizers"])
def test_the_compilers_formula_is_the_eager_one(name: str) -> None:
    case = CASES["optimizers"][name]
    eager, shared = steps(case, shared=False), steps(case, shared=True)
    if case["dtype"] == "float16":  # eager Adam reads its states back from float16 before it uses them
        np.testing.assert_allclose(eager, shared, atol=8e-3)
    else:
        np.testing.assert_array_equal(eager, shared)
