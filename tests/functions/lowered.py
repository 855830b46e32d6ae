"""A tape that lowers every node as it is applied, and checks that the primitives compute the same."""
from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kusari import tape
from kusari.ir import Builder, Graph, Value, interpret, tensor_type, verify


class LoweringTape:
    """Checks each applied node; ``seen`` counts what lowered, and what has no lowering, by class name."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.seen: Counter[str] = Counter()

    def before(self, function: Any, inputs: Any) -> Any:
        """Keep the static attributes, the inputs (state may change in place) and the state of the generator."""
        return copy.copy(function), [np.array(x.raw_array) for x in inputs], np.random.get_state()

    def after(self, template: Any, function: Any, inputs: Any, outputs: Any) -> None:
        """Lower, interpret, compare: values, dtypes, shapes, changed state and draws."""
        pristine, arrays, state = template
        name = type(function).__name__
        if not hasattr(pristine, "lower"):
            self.seen[f"{name} (not lowered)"] += 1
            return
        values = [Value(tensor_type(a.dtype, a.shape)) for a in arrays]
        b = Builder()
        results = pristine.lower(b, *values)
        if results is None:
            self.seen[f"{name} (not lowered)"] += 1
            return
        graph = verify(Graph(name, (), tuple(values), (), tuple(b.nodes), tuple(results)))
        after = np.random.get_state()
        np.random.set_state(state)
        copies = [a.copy() for a in arrays]
        found = interpret(graph, (), copies)
        assert np.random.rand() == (np.random.set_state(after), np.random.rand())[1], f"{name} draws otherwise"
        np.random.set_state(after)
        for y, output, value in zip(found, outputs, results, strict=True):
            expected = output.raw_array
            assert value.tensor == tensor_type(expected.dtype, expected.shape), (name, value.type, expected.dtype)
            np.testing.assert_allclose(y, expected, rtol=self.tolerance, atol=self.tolerance, err_msg=name)
        for mine, theirs in zip(copies, inputs, strict=True):
            np.testing.assert_allclose(mine, theirs.raw_array, rtol=self.tolerance, atol=self.tolerance, err_msg=name)
        self.seen[name] += 1

    def enter(self, inputs: Any) -> Any:
        """What functions are applied to is what they get."""
        return inputs

    def take(self, variable: Any) -> Any:
        """Reading data is allowed here."""
        return variable._array

    def forget(self, link: Any, names: Any) -> None:
        """Nothing."""

    def link(self, link: Any) -> None:
        """Nothing."""

    def differentiating(self, function: Any) -> None:
        """Called before a function's backward."""

    def escape(self, variable: Any, what: str) -> None:
        """Nothing."""


@contextmanager
def lowering(tolerance: float = 1e-5) -> Iterator[LoweringTape]:
    """Check the lowering of whatever is applied inside."""
    found = LoweringTape(tolerance)
    tape.current.tape = found
    try:
        yield found
    finally:
        tape.current.tape = None
