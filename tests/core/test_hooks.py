"""Function hooks: order, registration, and the ready-made ones."""

from __future__ import annotations

import io

import numpy as np
import pytest

import kusari
from kusari import Function, FunctionHook, FunctionNode, Variable
from kusari.function_hooks import PrintHook, TimerHook

pytestmark = pytest.mark.filterwarnings("ignore:Treating a variable of one element")


class Double(FunctionNode):
    def forward(self, inputs):
        return (inputs[0] * 2,)

    def backward(self, target_input_indexes, grad_outputs):
        return Double().apply(grad_outputs)


class Recorder(FunctionHook):
    name = "Recorder"

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def added(self, function):
        self.calls.append(("added", None if function is None else function.label))

    def deleted(self, function):
        self.calls.append(("deleted", None if function is None else function.label))

    def forward_preprocess(self, function, in_data):
        self.calls.append(("before forward", in_data[0].tolist()))

    def forward_postprocess(self, function, in_data):
        self.calls.append(("after forward", in_data[0].tolist()))

    def backward_preprocess(self, function, in_data, out_grad):
        self.calls.append(("before backward", (in_data[0], out_grad[0].tolist())))

    def backward_postprocess(self, function, in_data, out_grad):
        self.calls.append(("after backward", out_grad[0].tolist()))


def double(x):
    return Double().apply((x,))[0]


def test_thread_hook() -> None:
    x = Variable(np.array([1.0]))
    hook = Recorder()
    with hook:
        y = double(x)
        assert list(kusari.get_function_hooks()) == ["Recorder"]
        y.backward()
    double(x)
    assert hook.calls == [
        ("added", None), ("before forward", [1]), ("after forward", [1]), ("before backward", (None, [1])),
        ("before forward", [1]), ("after forward", [1]), ("after backward", [1]), ("deleted", None),
    ]  # fmt: skip


def test_local_hook() -> None:
    hook = Recorder()
    f = Double()
    f.add_hook(hook)
    with pytest.raises(KeyError, match="Hook Recorder already exists"):
        f.add_hook(hook)
    f.add_hook(hook, "again")
    f.delete_hook("again")
    with pytest.raises(KeyError, match="Hook again does not exist"):
        f.delete_hook("again")
    (y,) = f.apply((Variable(np.array([1.0])),))
    double(y)
    assert list(f.local_function_hooks) == ["Recorder"]
    assert [name for name, _ in hook.calls] == ["added", "added", "deleted", "before forward", "after forward"]


def test_local_hook_of_an_old_function() -> None:
    class Old(Function):
        def forward(self, inputs):
            return inputs

    f, hook = Old(), Recorder()
    f.add_hook(hook)
    f(Variable(np.array([1.0])))
    assert [name for name, _ in hook.calls] == ["added", "before forward", "after forward"]


def test_one_name_once() -> None:
    with Recorder(), pytest.raises(KeyError, match="hook Recorder already exists"), Recorder():
        pass
    assert not kusari.get_function_hooks()
    with pytest.raises(TypeError, match="FunctionHook"):
        Double().add_hook(print)


def test_timer() -> None:
    class Old(Function):
        def forward(self, inputs):
            return inputs

    x = Variable(np.array([1.0]))
    with TimerHook() as hook:
        y = double(double(x))
        Old()(y)
        y.backward()
    assert [name for name, _ in hook.call_history][:3] == ["Double", "Double", "Old"]
    assert hook.summary()["Double"]["occurrence"] == 6
    # Functions that backwards apply are in the time of the backward.
    assert 0 < hook.total_time() < sum(s["elapsed_time"] for s in hook.summary().values())
    hook.call_history = [("Double", 0.0125), ("Old", 2e-5), ("Double", 0.0125)]
    for unit, expected in {
        "auto": "25.00ms", "sec": "0.03sec", "us": "25000.00us", "auto_foreach": "20.00us",
    }.items():  # fmt: skip
        out = io.StringIO()
        hook.print_report(unit, out)
        assert expected in out.getvalue()
        assert out.getvalue().split()[:3] == ["FunctionName", "ElapsedTime", "Occurrence"]
    with pytest.raises(ValueError, match="unit"):
        hook.print_report("years")


def test_print() -> None:
    out = io.StringIO()
    with PrintHook(file=out):
        y = double(Variable(np.array([1.0]), name="x"))
        y.backward()
    text = out.getvalue()
    assert text.startswith("function\tDouble\ninput data\n")
    assert "- statistics: mean=1.00000000, std=0.00000000\n- grad: None\n" in text
    assert "output gradient\n" in text
    assert "(removed)\n" in text
