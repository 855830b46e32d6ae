"""Programs of one method that changes something outside, as rows of tables of hazards."""
from __future__ import annotations

from typing import Any

import numpy as np
from static.models import build
from static.observed.harness import CHANGED, Rows

import kusari
import kusari.functions as F


def add_row(rows: Rows, body: Any, later: Any = None, expected: str | None = "replays", pattern: str | None = None,
            whole: bool = False, **attributes: Any) -> None:
    """A program whose call is ``body(self, x, h)``; ``later(model)`` changes something before one of the calls."""
    def program(decorate: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x))
            found = body(self, x, h)
            y = h if found is None else found
            return F.sum(y) if whole else y
        made = {k: v.copy() if isinstance(v, (np.ndarray, list, dict, set)) else v for k, v in attributes.items()}
        model = build(decorate(forward), **made)
        optimizer = kusari.optimizers.SGD(0.01).setup(model) if whole else None

        def call(i: int, x: Any) -> Any:
            if i == CHANGED and later is not None:
                later(model)
            y = model(x) if optimizer is None else optimizer.update(model.forward, x)
            if whole:  # which may leave no gradients
                model.cleargrads()
            return y, {k: getattr(model, k) for k in attributes}, [p.array.copy() for p in model.params()]
        return call
    program.__name__ = body.__name__ + "_in_a_step" * whole
    program.__module__ = body.__module__
    rows.add(program, expected, pattern)


def named(name: str, body: Any) -> Any:
    body.__name__ = name
    return body
