"""Convolutions of compiled calls by cuDNN: the stand-in's, which refuses what the frontend refuses."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy_kernels
import numpy as np
import pytest
from cards.machines import SWEEP, Machine
from cards.test_compiled import check_training, step_report
from cublaslt_double import cublaslt
from cudnn_double import Cudnn, cudnn

import kusari
import kusari.functions as F
from kusari.ir import Windows
from kusari.runtime.card.cudnn import PLAN_WORKSPACE_BYTES, Geometry, Library, paddings
from kusari.runtime.card.launches import Refused

rng = np.random.default_rng(5)


@pytest.fixture
def dnn(card: Machine) -> Iterator[Cudnn]:
    """The library beside the stand-in for CuPy."""
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    with cudnn() as found:
        yield found


def normal(*shape: int, dtype: str = "f") -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


def check(card: Machine, function: Callable[..., Any], arrays: Any, rounds: int = 4) -> Any:
    """Results and gradients of some calls are define-by-run's; returns the static function."""
    static = kusari.static_graph(lambda *given: function(*given))
    found: list[list[Any]] = []
    for call in (static, function):
        with kusari.using_config("use_static_graph", call is static):
            for _ in range(rounds if call is static else 1):
                given = [kusari.Variable(card.xp.asarray(a)) for a in arrays]
                y = call(*given)
                y.grad = card.xp.asarray(np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype))
                y.backward()
        found.append([card.host(a).copy() for a in (y.array, *[v.grad for v in given])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1, float(np.abs(b).max())))
    return static


x, W, b = normal(2, 4, 7, 6), normal(6, 4, 3, 3), normal(6)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "plain": (lambda x, W: F.convolution_2d(x, W), (x, W)),
    "bias and relu": (lambda x, W, b: F.relu(F.convolution_2d(x, W, b, pad=1)), (x, W, b)),
    "strides and zeros": (lambda x, W: F.convolution_2d(x, W, stride=(2, 3), pad=(1, 2)), (x, W)),
    "an image that goes on": (lambda x, W: F.convolution_2d(x, W, stride=2, pad=1), (normal(2, 4, 8, 8), W)),
    "windows beyond": (lambda x, W: F.convolution_2d(x, W, stride=2, cover_all=True), (normal(2, 4, 8, 8), W)),
    "dilated": (lambda x, W: F.convolution_2d(x, W, pad=2, dilate=2), (x, W)),
    "groups": (lambda x, W, b: F.tanh(F.convolution_2d(x, W, b, groups=2)), (x, normal(6, 2, 3, 3), b)),
    "each channel alone": (lambda x, W: F.convolution_2d(x, W, groups=4), (x, normal(4, 1, 3, 3))),
    "one axis": (lambda x, W: F.convolution_1d(x, W, pad=1, stride=2), (normal(2, 4, 9), normal(5, 4, 3))),
    "three axes": (lambda x, W: F.convolution_3d(x, W, pad=1), (normal(2, 3, 4, 5, 3), normal(2, 3, 3, 2, 3))),
    "transposed": (lambda x, W, b: F.relu(F.deconvolution_2d(x, W, b, stride=2, pad=1)),
                   (normal(2, 4, 4, 5), normal(4, 6, 3, 3), b)),
    "of one element": (lambda x, W: F.convolution_2d(x, W), (x, normal(6, 4, 1, 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_and_their_gradients(card: Machine, dnn: Cudnn, name: str) -> None:
    function, arrays = CASES[name]
    static = check(card, function, arrays)
    assert {call["kind"] for call in dnn.made} == {"fprop", "dgrad", "wgrad"}
    assert all({"NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "TENSOR_CORE"} <= call["notes"] for call in dnn.made)
    report = str(static.static.explain())
    assert "calls of cuDNN 9.24.0 on card 0" in report and "convolutions by kernels" not in report


def test_without_the_library(card: Machine) -> None:
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    static = check(card, *CASES["plain"])
    found = str(static.static.explain())
    assert "convolutions by kernels of Kusari's own: cuDNN's frontend was not found" in found
    assert "(pip install 'kusari[cudnn]')" in found


@pytest.mark.parametrize("name", ["bias and relu", "groups"])
def test_what_has_no_plan_is_ours(card: Machine, dnn: Cudnn, name: str) -> None:
    dnn.refuses = lambda kind, shapes: kind != "wgrad"
    static = check(card, *CASES[name])
    assert {call["kind"] for call in dnn.made} == {"wgrad"}
    assert "1 convolutions by kernels of Kusari's own: cuDNN: No valid engine configs" in str(static.static.explain())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("direction", ["conv", "conv_input", "conv_weight"])
@pytest.mark.parametrize("channels", [3, 64])
def test_workspaces_have_room_for_copies_of_all_arrays(card: Machine, dnn: Cudnn, direction: Any, channels: int,
                                                       dtype: str) -> None:
    """Nothing is allocated here: of these arrays each is larger than what any plan may have."""
    windows = Windows(size=(224,) * 2, kernel=(3,) * 2, stride=(1,) * 2, pad=(1,) * 2, dilate=(1,) * 2, out=(224,) * 2)
    work = Geometry(direction, (256, channels, 224, 224), (64, channels, 3, 3), (256, 64, 224, 224), windows,
                    np.dtype(dtype), tf32=True)
    plan = Library(dnn).convolution(0, work)
    assert plan.workspace_bytes > 256 * 64 * 224 * 224 * work.dtype.itemsize > PLAN_WORKSPACE_BYTES


def test_doubles_are_ours(card: Machine, dnn: Cudnn) -> None:
    static = check(card, lambda x, W: F.convolution_2d(x, W), (x.astype("d"), W.astype("d")))
    assert not dnn.made and "convolutions of float64 and float64" in str(static.static.explain())


@pytest.mark.parametrize("graphs", ["1", "0"])
@pytest.mark.parametrize("late", [1, 3, 5])
def test_a_call_that_fails_is_made_good_at_once(card: Machine, dnn: Cudnn, late: int, graphs: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", graphs)
    count = [0]

    def fails() -> bool:
        count[0] += 1
        return count[0] == late
    dnn.fails = fails
    static = check(card, *CASES["bias and relu"], 6)
    assert count[0] >= late and "cuDNN: CUDNN_STATUS_EXECUTION_FAILED" in str(static.static.explain("plan"))


def test_another_module_of_that_name(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    from kusari.runtime.card import cudnn

    def broken() -> Any:
        raise RuntimeError("libcudnn.so.9: cannot open shared object file")
    monkeypatch.setattr(cudnn, "module", broken)
    static = check(card, *CASES["plain"])
    assert "cuDNN cannot be loaded: RuntimeError: libcudnn.so.9: cannot" in str(static.static.explain())


@pytest.mark.parametrize("value", ["never", "auto"])
def test_use_cudnn_is_asked(card: Machine, dnn: Cudnn, value: str) -> None:
    with kusari.using_config("use_cudnn", value):
        check(card, *CASES["plain"])
    assert bool(dnn.made) == (value == "auto")


@pytest.mark.parametrize("compute_type", [6, 7])
def test_tf32_lets_tensor_cores_compute(card: Machine, dnn: Cudnn, compute_type: int) -> None:
    """So does bfloat16, to which cuDNN has no engine that rounds: TF32 is nearer."""
    card.xp._core.set_compute_type(np.dtype("f"), compute_type)
    check(card, *CASES["plain"])
    assert dnn.made and not any("TENSOR_CORE" in call["notes"] for call in dnn.made)


def test_streams_of_the_caller(card: Machine, dnn: Cudnn) -> None:
    function = kusari.static_graph(lambda x, W: F.relu(F.convolution_2d(x, W)))
    sent = card.xp.asarray(x), card.xp.asarray(W)
    with kusari.no_backprop_mode():
        expected = card.host(F.relu(F.convolution_2d(*sent)).array)
        for _ in range(5):
            with card.xp.cuda.Stream(non_blocking=True) as stream:
                y = function(*sent)
            stream.synchronize()
            np.testing.assert_allclose(card.host(y.array), expected, rtol=1e-4, atol=1e-5)
    assert len(dnn.made) >= 2


def test_each_card_has_its_handle_and_plans(two_cards: Machine) -> None:
    if not two_cards.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    with cudnn() as dnn:
        function = kusari.static_graph(lambda x, W: F.convolution_2d(x, W))
        for device in (0, 1, 0, 1):
            with two_cards.xp.cuda.Device(device), kusari.no_backprop_mode():
                sent = two_cards.xp.asarray(x), two_cards.xp.asarray(W)
                expected = F.convolution_2d(*sent).array
                for _ in range(3):
                    y = function(*sent)
            np.testing.assert_allclose(two_cards.host(y.array), two_cards.host(expected), rtol=1e-4, atol=1e-5)
        assert sorted(dnn.devices.values()) == [0, 1]


def test_arrays_that_cudnn_cannot_read(card: Machine, dnn: Cudnn) -> None:
    """Parameters lie anywhere: those that are not aligned are read by kernels of ours."""
    class Filter(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.W = kusari.Parameter(W.copy())

        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return F.convolution_2d(x, self.W)

    model = Filter()
    model.to_device("@cupy:0")
    memory = card.xp.zeros(W.size + 80, "f")
    start = -(memory.data.ptr // 4) % 64 + 1
    memory[start:start + W.size] = card.xp.asarray(W.ravel())
    model.W.array = memory[start:start + W.size].reshape(W.shape)
    given = card.xp.asarray(x)
    with kusari.no_backprop_mode():
        for _ in range(4):
            y = model.forward(given)
        with kusari.using_config("use_static_graph", False):
            expected = card.host(model.forward(given).array)
    np.testing.assert_allclose(card.host(y.array), expected, rtol=1e-4, atol=1e-5)
    assert not dnn.made and "an array is not aligned to 16 bytes" in str(model.static.explain())


def test_zeros_behind_an_axis() -> None:
    def of(size: int, out: int, kernel: int, stride: int, pad: int, dilate: int = 1) -> Any:
        return paddings(Windows((size,), (out,), (kernel,), (stride,), (pad,), (dilate,)))
    assert of(8, 8, 3, 1, 1) == [(1, 1)] and of(8, 4, 3, 2, 1) == [(1, 1)] and of(8, 4, 3, 2, 0) == [(0, 1)]
    assert of(9, 3, 2, 3, 0) == [(0, 0)] and of(7, 4, 2, 3, 0) == [(0, 4)]
    with pytest.raises(Refused):
        of(9, 3, 3, 1, 0)


# Launches of a whole step with both libraries, kernels among them that differ, calls, and bytes of a frame.
CALLED = {"lenet_cnn": (24, 13, 11, 25344), "vgg_cifar": (53, 27, 23, 21760), "resnet18": (126, 44, 62, 235264)}


@pytest.mark.parametrize("name, kind", [
    pytest.param(name, kind, marks=pytest.mark.slow if (name, kind) == ("lenet_cnn", "whole") else SWEEP)
    for name in CALLED for kind in ("whole", "parts")])
def test_models_train_through_both_libraries(card: Machine, dnn: Cudnn, name: str, kind: str) -> None:
    with cublaslt() as blas:
        check_training(card, name, kind)
        assert blas.made and dnn.made and cupy_kernels.launches["calls"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLED)
def test_launches_calls_and_bytes(card: Machine, dnn: Cudnn, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_kernels.RawKernel, "_run", lambda *_: None)
    with cublaslt():
        report = step_report(card, name)
    assert (report.launches, report.kernels, report.calls.total(), report.frame_bytes) == CALLED[name]
    assert not report.refused and not report.python_instructions
