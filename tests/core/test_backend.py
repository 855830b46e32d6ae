"""Devices and array modules on a machine that need not have a GPU."""

from __future__ import annotations

import io

import numpy as np
import pytest
from cupy_double import cupy

import kusari
from kusari import backend
from kusari.backends import cuda, intel64
from kusari.errors import DeviceError, DeviceSpecifierError
from kusari.function_hooks import CupyMemoryProfileHook

A = np.ones(2, np.float32)
no_gpu = pytest.mark.skipif(cuda.available, reason="there is a GPU")


@pytest.mark.parametrize("spec", [-1, "@numpy", "-1", backend.CpuDevice()])
def test_cpu(spec: object) -> None:
    device = kusari.get_device(spec)
    assert repr(device) == "<CpuDevice (numpy)>"
    assert (str(device), device.name, device.xp) == ("@numpy", "@numpy", np)
    assert device.supported_array_types == (np.ndarray,)
    assert device == backend.CpuDevice()
    assert len({device, backend.CpuDevice()}) == 1


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("foo", DeviceSpecifierError, "'@numpy', '@cupy', '@cupy:<number>' or a number"),
        ("@cupy:x", DeviceSpecifierError, "not understood"),
        ("native:x", DeviceError, "'native:x'"),
        ((0,), TypeError, "<class 'tuple'>"),
        (np, TypeError, "<class 'module'>"),
        ("@numpy:", DeviceSpecifierError, "not understood"),
        (cuda.DummyDevice, TypeError, "DummyDevice"),
        (True, TypeError, "<class 'bool'>"),
    ],
)
def test_wrong_specifier(spec: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        kusari.get_device(spec)
    assert message in str(caught.value)


def test_classes_of_cupy_and_ideep_have_names() -> None:
    names = ("ndarray", "Device", "Event", "Stream")
    assert len({getattr(cuda, name) for name in names}) == 4
    assert cuda.available or not isinstance(cuda.Stream(), (cuda.Device, cuda.Event, cuda.ndarray))
    assert not intel64.inputs_all_ready((A,)) and not isinstance(A, intel64.mdarray)
    assert not intel64.should_use_ideep(">=auto")
    with pytest.raises(ValueError, match="use level"):
        intel64.should_use_ideep("auto")


def test_layouts_and_compute_modes_change_nothing() -> None:
    x = kusari.Variable(A)
    assert x.as_layout("CUDNN_CHANNEL_LAST_X") is x and kusari.get_compute_mode() is None
    with kusari.using_config("compute_mode", "cudnn_fast"):
        assert kusari.get_compute_mode() == "cudnn_fast"
    with kusari.using_config("compute_mode", "fast"), pytest.raises(ValueError, match="'fast'"):
        kusari.get_compute_mode()


def test_copies_on_cards() -> None:
    with cupy() as card:
        x = card.asarray(A)
        out = card.empty_like(x)
        assert cuda.copy(x, out) is out and cuda.copy(x) is not x
        assert cuda.copy(x, out_device=0).get().tolist() == out.get().tolist() == A.tolist()


def test_memory_of_functions_is_shown_in_units(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([0, 0, 3 * 2**20, 3 * 2**20 + 512])

    def now(self: CupyMemoryProfileHook) -> tuple[int, int]:
        return (value := next(used)), 2 * value
    monkeypatch.setattr(cuda, "check_cuda_available", lambda: None)
    monkeypatch.setattr(CupyMemoryProfileHook, "_now", now)
    hook = CupyMemoryProfileHook()
    hook.forward_preprocess(outer := kusari.FunctionNode(), ())
    hook.forward_preprocess(outer, ())
    hook.forward_postprocess(outer, ())
    hook.forward_postprocess(outer, ())
    assert [depth for *_, depth in hook.call_history] == [1, 0]
    assert hook.total_used_bytes() == 3 * 2**20 + 512 and hook.total_acquired_bytes() == 6 * 2**20 + 1024
    for unit, shown in (("auto", "6.00MB"), ("auto_foreach", "6.00MB"), ("KB", "6144.50KB")):
        out = io.StringIO()
        hook.print_report(unit, out)
        assert shown in out.getvalue()


@no_gpu
@pytest.mark.parametrize(
    "use",
    [
        lambda: kusari.get_device(0),
        lambda: kusari.get_device("@cupy:0"),
        lambda: cuda.to_gpu(A),
        lambda: cuda.copy(A),
        lambda: cuda.get_device_from_id(0),
        lambda: cuda.check_cuda_available(),
        lambda: cuda.cupy.zeros,
        lambda: cuda.elementwise("T x", "T y", "y = x", "copy"),
    ],
)
def test_without_cupy(use) -> None:
    with pytest.raises(DeviceError, match=r"pip install 'kusari\[gpu\]'"):
        use()


@no_gpu
def test_stand_ins_without_cupy() -> None:
    assert not isinstance(A, cuda.ndarray)
    with cuda.get_device_from_array(A) as device:
        assert int(device) == -1
    assert cuda.get_device_from_id(None) is cuda.DummyDevice
    assert kusari.get_cpu_array_types() == (np.ndarray,)
    assert kusari.get_array_types() == (np.ndarray, kusari.chainerx.ndarray)


def test_module_and_device_of_arrays() -> None:
    x = kusari.Variable(A)
    assert backend.get_array_module(x, A, 3, None) is cuda.get_array_module(x) is np
    assert backend.get_device_from_array(x, A) == backend.CpuDevice()
    assert kusari.is_arrays_compatible([A, None])
    assert not kusari.is_arrays_compatible([A, 3])


def test_send() -> None:
    device = kusari.get_device("@numpy")
    assert device.send(A) is A
    sent = device.send({"a": [A, None], "b": (A,), "c": 3})
    assert sent["a"][0] is A
    assert sent["a"][1] is None
    assert type(sent["b"]) is tuple
    assert isinstance(sent["c"], np.ndarray)
    with pytest.raises(TypeError, match="not str"):
        device.send("x")


def test_to_cpu() -> None:
    assert cuda.to_cpu(A) is A
    assert cuda.to_cpu((A, None))[1] is None
    assert cuda.to_cpu(3).shape == ()


def test_using_device() -> None:
    with kusari.using_device("@numpy") as device:
        assert device.xp is np


def test_copyto() -> None:
    target = np.zeros((2, 2))
    backend.copyto(target, A)
    assert target.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(TypeError, match="not list"):
        backend.copyto([0], A)


def test_memoize() -> None:
    calls: list[int] = []

    @cuda.memoize()
    def double(x):
        calls.append(x)
        return 2 * x

    assert double(2) == double(2) == 4
    assert calls == [2]
    cuda.clear_memo()
    double(2)
    assert calls == [2, 2]


def test_old_module_name() -> None:
    import kusari.cuda

    assert kusari.cuda is cuda


def test_absent_backends() -> None:
    from kusari.backends import intel64

    assert not intel64.is_ideep_available()
    for use in (intel64.Intel64Device, kusari.Variable(A).to_intel64):
        with pytest.raises(DeviceError, match="is not available"):
            use()


def test_experimental() -> None:
    with pytest.warns(FutureWarning, match="foo is experimental") as caught:
        kusari.utils.experimental("foo")
    assert len(caught) == 1


def test_runtime_info(capsys: pytest.CaptureFixture[str]) -> None:
    kusari.print_runtime_info()
    assert f"kusari: {kusari.__version__}\nAPI of Chainer: 7.8.1\nnumpy: {np.__version__}\n" in capsys.readouterr().out
