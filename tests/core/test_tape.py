"""What core tells a recording tape: applications, and values that leave the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kusari import FunctionNode, Parameter, Variable, tape
from kusari import functions as F

ONES = np.ones((2, 2), np.float32)


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def before(self, function: FunctionNode, inputs: tuple[Variable, ...]) -> str:
        assert all(isinstance(x, Variable) for x in inputs)
        self.events.append(("before", function.label, len(inputs)))
        return "template"

    def after(self, template: str, function: FunctionNode, inputs: Any, outputs: Any) -> None:
        self.events.append(("after", template, function.label, len(inputs), len(outputs)))

    def enter(self, inputs: Any) -> Any:
        return tuple(inputs)

    def take(self, variable: Variable) -> Any:
        self.escape(variable, "array")
        return variable._array

    def made(self, parameter: Parameter) -> None:
        pass

    def initialize(self, parameter: Parameter, array: Any) -> None:
        parameter.initializer(array)

    def differentiating(self, function: FunctionNode) -> None:
        self.events.append(("differentiating", function.label))

    def note(self, reason: str) -> None:
        self.events.append(("note",))

    def escape(self, variable: Variable, what: str) -> None:
        self.events.append(("escape", what))


@pytest.fixture
def log() -> Iterator[Log]:
    found = Log()
    tape.current.tape = found
    yield found
    tape.current.tape = None


class Composite(FunctionNode):
    """Computes with functions inside: one node for whoever watches."""

    def forward(self, inputs):
        return (F.exp(inputs[0]).array,)


def test_application(log: Log) -> None:
    (y,) = Composite().apply((ONES,))
    assert log.events == [("before", "Composite", 1), ("after", "template", "Composite", 1, 1)]
    assert tape.active() is log
    assert y.creator is not None


def test_failing_application_leaves_the_tape_on(log: Log) -> None:
    class Fails(FunctionNode):
        def forward(self, inputs):
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        Fails().apply((ONES,))
    assert tape.active() is log


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda x: x.array, "array"),
        (lambda x: x.data, "array"),
        (lambda x: x.raw_array, "array"),
        (lambda x: x.item(), "item()"),
        (lambda x: np.asarray(x), "__array__"),
        (lambda x: float(x), "float()"),
        (lambda x: int(x), "int()"),
        (lambda x: repr(x), "repr()"),
        (lambda x: str(x), "repr()"),
        (lambda x: x.debug_print(), "debug_print()"),
        (lambda x: Parameter(0, (1, 1)).copydata(x), "copydata()"),
    ],
)
def test_reads_escape(log: Log, read, what: str) -> None:
    read(Variable(ONES[:1, :1]))
    assert ("escape", what) in log.events


def test_types_do_not_escape(log: Log) -> None:
    x = Variable(ONES)
    assert (x.shape, x.ndim, x.size, x.dtype, len(x), x.xp, x.label) == ((2, 2), 2, 4, np.float32, 2, np,
                                                                         "(2, 2), float32")  # fmt: skip
    assert str(x.device) == "@numpy"
    x.grad = ONES
    assert x.grad is ONES
    assert x.creator is None
    assert log.events == []


def test_backward_is_recorded_in_functions(log: Log) -> None:
    x = Variable(ONES)
    y = F.sum(x * x)
    log.events.clear()
    y.backward()
    assert np.array_equal(x.grad, 2 * ONES)
    # Both gradients of x * x, and their sum.
    assert sum(event[0] == "before" for event in log.events) >= 3
    assert [event[1] for event in log.events if event[0] == "differentiating"] == ["Sum", "_ * _"]
    assert not any(event[0] == "escape" for event in log.events)
