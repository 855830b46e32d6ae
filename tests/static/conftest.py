"""Runs a model define-by-run and static, on the same data with the same seed, and compares everything observable."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari


def run(make: Callable[[], Any], call: Callable[[Any, Any], Any], data: list[Any], static: bool, *,
        optimizer: Callable[[], Any] | None = None, backward: bool = True) -> list[dict[str, np.ndarray]]:
    """Call ``call(model, item)`` for every item, with backward and update, and return what was seen each time."""
    np.random.seed(1)
    model = make()
    opt = optimizer().setup(model) if optimizer is not None else None
    seen: list[dict[str, np.ndarray]] = []
    with kusari.using_config("use_static_graph", static):
        for i, item in enumerate(data):
            np.random.seed(100 + i)
            model.cleargrads()
            result = call(model, item)
            outputs = result if isinstance(result, (tuple, list)) else [result]
            if backward:
                loss = outputs[0]
                if loss.size != 1:
                    loss.grad = np.ones_like(loss.array)
                loss.backward()
            record = {f"output {k}": np.array(y.array) for k, y in enumerate(outputs) if y is not None}
            if backward:
                record.update({f"grad {n}": np.array(p.grad) for n, p in model.namedparams() if p.grad is not None})
            if opt is not None:
                opt.update()
            record.update({f"param {n}": np.array(p.array) for n, p in model.namedparams()})
            for name, link in model.namedlinks():
                for persistent in sorted(link._persistent):
                    record[f"state {name}/{persistent}"] = np.array(getattr(link, persistent))
            record["random"] = np.array(np.random.rand())
            seen.append(record)
    return seen


def _assert_same(make: Callable[[], Any], call: Callable[[Any, Any], Any], data: list[Any], *, rtol: float = 2e-5,
                atol: float = 1e-6, **options: Any) -> None:
    """Assert that static equals define-by-run at every call."""
    eager = run(make, call, data, False, **options)
    static = run(make, call, data, True, **options)
    for i, (a, b) in enumerate(zip(eager, static, strict=True)):
        assert a.keys() == b.keys(), f"call {i}: {a.keys() ^ b.keys()}"
        for key in a:
            assert a[key].dtype == b[key].dtype, f"call {i}, {key}: {a[key].dtype} became {b[key].dtype}"
            np.testing.assert_allclose(b[key], a[key], rtol=rtol, atol=atol, err_msg=f"call {i}, {key}")


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """The comparison, as a fixture since test modules do not import each other."""
    return _assert_same
