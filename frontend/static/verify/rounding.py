"""How far rounding may carry the results of a graph: it is interpreted again with noise of rounding's size.

Where a value is within rounding of a threshold (of a ReLU, the largest of a window, an index that is rounded), two
correct programs go different ways, and no bound on single operations holds from there on. Rounding may change the
results as much as noise does: Monte Carlo arithmetic (D. S. Parker, 1997).
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from kusari.ir import Node, TensorType, Trait, Value

_NOISE_ULPS = 200        # units in the last place of the operands, and of the root of the mean square of the results
_LARGEST_SHARE = 0.01    # for coarse dtypes
_PAIRS = 2               # of samples whose noise is opposite: one of them is on the other side of a threshold nearby
_NOISE_RATIO = 4.0       # a difference may be that many times the effect of the noise
_COMPARED_ELEMENTS = 16  # by which operations that only select are recognised

Evaluate = Callable[[Node, Sequence[Any]], Sequence[Any]]


def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
    """Apply a node's operation, as it is."""
    return node.op.call(node.attrs, *inputs)


class Rounding:
    """The effect of noise on each value of a graph.

    ``run`` interprets it, given a caller of operations, and returns all values; ``state`` are values that operations
    write to, which therefore are called once only. Invariant: samples differ in noise alone.
    """

    def __init__(self, run: Callable[[Evaluate], dict[Value, Any]], unit: float, state: Collection[Value]) -> None:
        self._run = run
        self._size = min(_NOISE_ULPS * unit, _LARGEST_SHARE)
        self._state = state
        self._plain: dict[Value, Any] = {}
        self._spread: dict[Value, tuple[float, float]] = {}
        self._pairs = 0

    def excuses(self, value: Value, expected: Any, found: Any) -> bool:
        """Whether ``found`` is as near to the ``expected`` array of ``value`` as arrays with noise are."""
        if expected is None or found is None or (expected.shape, expected.dtype) != (found.shape, found.dtype):
            return False
        if expected.dtype.kind in "fc" and not np.array_equal(np.isfinite(expected), np.isfinite(found)):
            return False
        most, mean = _distance(expected, found)
        while True:
            spread = self._spread.get(value, (0.0, 0.0))
            if most <= _NOISE_RATIO * spread[0] and mean <= _NOISE_RATIO * spread[1]:
                return True
            if self._pairs == _PAIRS:
                return False
            self._sample()

    def _sample(self) -> None:
        """Run with one more pair of noises."""
        if not self._plain:
            self._plain = self._run(call)
        self._pairs += 1
        for sign in (1.0, -1.0):
            env = self._run(_Noise(self._state, sign * self._size, np.random.RandomState(self._pairs)))
            for value, array in env.items():
                if isinstance(value.type, TensorType):
                    most, mean = self._spread.get(value, (0.0, 0.0))
                    found = _distance(np.asarray(self._plain[value]), np.asarray(array))
                    self._spread[value] = max(most, found[0]), max(mean, found[1])


class _Noise:
    """Calls operations with noise of rounding's size in operands and results."""

    def __init__(self, state: Collection[Value], size: float, draws: np.random.RandomState) -> None:
        self._state = state
        self._size = size
        self._draws = draws

    def __call__(self, node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        noisy = [x if v in self._state else self._operand(x) for v, x in zip(node.inputs, inputs, strict=True)]
        once = node.op.traits & (Trait.OPAQUE | Trait.WRITES | Trait.RANDOM) or any(
            v in self._state for v in node.inputs)
        if not once:
            results = call(node, inputs)
            if not inputs or all(_selected(np.asarray(x), inputs) for x in results):
                return results
        return [self._result(x) for x in call(node, noisy)]

    def _signs(self, x: Any) -> Any:
        return (self._draws.randint(0, 2, x.shape) * 2 - 1) * self._size

    def _operand(self, x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fc":
            return x
        return np.asarray(x * (1 + self._signs(x)), x.dtype)

    def _result(self, x: Any) -> Any:
        """Zeros too become small numbers, unless all numbers have one sign, as variances do."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fc" or not ((x.real > 0).any() and (x.real < 0).any()):
            return x
        finite = abs(x[np.isfinite(x)]).astype(np.float64)
        return np.asarray(x + self._signs(x) * np.sqrt(np.mean(finite * finite)), x.dtype)


def _selected(x: Any, inputs: Sequence[Any]) -> bool:
    """Whether an operation rounds nothing, as its results are among its inputs."""
    if x.dtype.kind not in "fc":
        return True
    some = x.ravel()[:: max(1, x.size // (4 * _COMPARED_ELEMENTS))]
    return all(any((i == e).any() for i in inputs if hasattr(i, "dtype")) for e in some[some != 0][:_COMPARED_ELEMENTS])


def _distance(a: Any, b: Any) -> tuple[float, float]:
    """The largest difference of two arrays, and the root of the mean square, where both are finite."""
    if not a.size:
        return 0.0, 0.0
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        off = abs(a.astype(kind) - b.astype(kind))
    off = off[np.isfinite(off)]
    return (float(off.max()), float(np.sqrt(np.mean(off * off)))) if off.size else (0.0, 0.0)
