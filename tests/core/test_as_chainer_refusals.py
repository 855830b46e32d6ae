"""What Chainer 7.8.1 refuses or warns of, by the kind of error or warning that programs catch."""
from __future__ import annotations

import io
import operator
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.links as L
from kusari import Variable, backend, datasets, link_hooks, optimizers, reporter, serializers, training
from kusari.errors import InvalidType
from kusari.testing import get_trainer_with_mock_updater
from kusari.training import extensions, triggers

A = np.arange(6, dtype="f").reshape(2, 3)


class WrongGradient(kusari.Function):
    """A function of the old style that returns whatever it is given as its gradient."""

    def __init__(self, gradient: Any) -> None:
        self.gradient = gradient

    @property
    def label(self) -> str:
        return "wrong"

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (np.asarray(inputs[0].sum()),)

    def backward(self, inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        return (self.gradient,)


class WrongGradients(kusari.FunctionNode):
    """A function that returns an array in place of a tuple of gradients."""

    @property
    def label(self) -> str:
        return "wrong"

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (np.asarray(inputs[0].sum()),)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> Any:
        return A


def override(name: str) -> type:
    return type("Own", (kusari.Link,), {name: lambda self: self})


def closed_text() -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("one\n")
        file.flush()
        lines = datasets.TextDataset(file.name)
        lines.close()
        return lines[0]


ERRORS: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "bilinear": (AssertionError, lambda: L.Bilinear(2, 3, 4, initialW=np.ones((2, 3, 5), "f"))),
    "bias": (AssertionError, lambda: L.Bias(1, (3,))(A, A[0])),
    "scale": (AssertionError, lambda: L.Scale(1)(A)),
    "maxout": (ValueError, lambda: L.Maxout(2, 3, 4, initialW=np.ones((3, 4, 2, 1), "f"))),
    "spectral": (ValueError, lambda: L.Linear(3, 0).add_hook(link_hooks.SpectralNormalization())),
    "loss scale": (ValueError, lambda: optimizers.SGD().setup(L.Linear(1, 1)).loss_scaling(scale=-1)),
    "weight": (ValueError, lambda: reporter.DictSummary().add({"a": (1.0, np.ones(1))})),
    "graph": (TypeError, lambda: kusari.computational_graph.build_computational_graph(A)),
    "gradient's dtype": (TypeError, lambda: WrongGradient(A.astype("d"))(Variable(A)).backward()),
    "gradient's dtype, as a wrong value": (ValueError, lambda: WrongGradient(A.astype("d"))(Variable(A)).backward()),
    "gradients' type": (ValueError, lambda: WrongGradients().apply((Variable(A),))[0].backward()),
    "gradient's type": (TypeError, lambda: WrongGradient(1)(Variable(A)).backward()),
    "to_device": (TypeError, lambda: override("to_device")),
    "make_extension": (ValueError, lambda: training.make_extension(invoke_before_training=True)),
    "make_extension's arguments": (TypeError, lambda: training.make_extension(foo=1)),
    "MLPConvolution2D": (ValueError, lambda: L.MLPConvolution2D(None, (2,), 3, wscale=1)),
    "batch normalization": (TypeError, lambda: L.BatchNormalization(3)(A, True)),
    "GRU": (ValueError, lambda: L.GRU(3, 2)(A, A)),
    "closed text": (ValueError, closed_text),
    "dtype": (RuntimeError, lambda: kusari.Parameter(lambda array: None).dtype),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    error, call = ERRORS[name]
    with pytest.raises(error, match="wrong" if name.startswith("gradient") else None):
        call()


def old(target: Any) -> None:
    """Load a file that has none of the entries, as very old versions of Chainer wrote them."""
    serializers.NpzDeserializer({"dummy": np.zeros(())}).load(target)


WARNINGS: dict[str, tuple[type[Warning], Callable[[], Any]]] = {
    "interval": (UserWarning, lambda: old(triggers.IntervalTrigger(1, "epoch"))),
    "manual": (UserWarning, lambda: old(triggers.ManualScheduleTrigger(1, "epoch"))),
    "once": (UserWarning, lambda: old(triggers.OnceTrigger())),
    "summary": (UserWarning, lambda: old(reporter.Summary())),
    "summaries": (UserWarning, lambda: old(reporter.DictSummary())),
    "to_intel64": (DeprecationWarning, lambda: L.Linear(1, 1).to_intel64()),
    "to_cpu": (DeprecationWarning, lambda: override("to_cpu")),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name: str) -> None:
    kind, call = WARNINGS[name]
    with pytest.warns(kind):
        call()


def test_statistics_of_an_old_file_begin_anew() -> None:
    summary = reporter.DictSummary()
    summary.add({"a": 3.0})
    with pytest.warns(UserWarning):
        old(summary)
    summary.add({"a": 9.0})
    assert summary.compute_mean() == {"a": 9.0}


def test_old_statistics_of_decorrelated_batch_normalization_become_those_of_all_groups() -> None:
    saved = {"avg_mean": np.arange(2.0), "avg_projection": np.arange(4.0).reshape(2, 2), "N": np.array(3)}
    link = L.DecorrelatedBatchNormalization(6, groups=3, dtype=np.float64)
    with pytest.warns(UserWarning, match="the same for all groups"):
        serializers.NpzDeserializer(saved).load(link)
    assert link.avg_mean.tolist() == [[0, 1]] * 3 and link.N == 3
    assert link.avg_projection.tolist() == [[[0, 1], [2, 3]]] * 3


def test_a_report_goes_to_a_stream_that_cannot_flush() -> None:
    class Stream:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

        def isatty(self) -> bool:
            return False

    trainer = get_trainer_with_mock_updater((1, "iteration"))
    out: Any = Stream()
    trainer.extend(extensions.LogReport(trigger=(1, "iteration")))
    trainer.extend(extensions.PrintReport(["iteration"], out=out), trigger=(1, "iteration"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.run()
    assert "iteration" in out.text


def test_devices_of_a_user_are_not_given_uninitialized_parameters() -> None:
    class Copying(backend.CpuDevice):
        def send_array(self, array: Any) -> Any:
            return array.copy()

    link = L.Linear(None, 2).to_device(Copying())
    assert not link.W.is_initialized and isinstance(link.device, Copying)
    assert isinstance(link.b.device, Copying)


def test_dictionaries_are_saved() -> None:
    file = io.BytesIO()
    serializers.save_npz(file, {"a": A})
    file.seek(0)
    assert np.load(file)["a"].tolist() == A.tolist()
    assert list(serializers.npz.serialize(L.Linear(2, 3))) == ["W", "b"]
    assert not kusari.should_use_cudnn(">=auto")


def test_a_model_whose_links_are_lost_is_named() -> None:
    class Lost(kusari.Chain):
        def __init__(self, many: bool) -> None:
            super().__init__()
            self.body = [L.Linear(2, 3)] if many else L.Linear(2, 3)

    for many in (False, True):
        how = "a plain list of links: use kusari.ChainList" if many else r"\(Linear\), assigned outside init_scope\(\)"
        with pytest.warns(UserWarning, match=f"Lost has no parameters to update; not a child, .*: self.body,? {how}"):
            kusari.optimizers.SGD().setup(Lost(many))


def test_parameters_are_no_hyperparameter() -> None:
    model = L.Linear(2, 3)
    with pytest.raises(TypeError, match="'alpha' of Adam is of <class 'generator'>: a model is given to setup"):
        kusari.optimizers.Adam(model.params()).setup(model)  # pyright: ignore[reportArgumentType]


def test_a_layer_of_the_last_axis_is_named() -> None:
    with pytest.raises(kusari.utils.type_check.InvalidType, match="n_batch_axes=2 applies the layer to the last one"):
        L.Linear(4, 3)(np.ones((2, 5, 4), np.float32))


@pytest.mark.parametrize("dtypes", ["ef", "fe", "fd", "df", "di", "fl"])
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow])
def test_arithmetic_takes_arrays_in_the_variables_dtype_and_no_variables_of_two(op: Any, dtypes: str) -> None:
    x, other = Variable(np.full(2, 3, dtypes[0])), np.full(2, 2, dtypes[1])
    for y, expected in ((op(x, other), op(3.0, 2.0)), (op(other, x), op(2.0, 3.0))):
        assert y.dtype == x.dtype
        np.testing.assert_allclose(y.array, expected, rtol=1e-3)
    with pytest.raises(InvalidType):
        op(x, Variable(other))
