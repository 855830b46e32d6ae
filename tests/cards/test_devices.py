"""Copies, streams and several cards: the interface of ``kusari.backends.cuda`` and of devices."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine, machine

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import backend, optimizer_hooks, optimizers, training
from kusari.backends import cuda
from kusari.dataset import ConcatWithAsyncTransfer, concat_examples
from kusari.errors import ArrayTypeError, DeviceError
from kusari.iterators import SerialIterator
from kusari.training.updaters import ParallelUpdater, StandardUpdater

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_copies_between_host_and_card(card: Machine) -> None:
    x = cuda.to_gpu(A)
    assert card.host(x).tolist() == A.tolist() and cuda.to_gpu(x) is x
    assert type(cuda.to_cpu(x)) is np.ndarray and cuda.to_cpu(A) is A
    many = cuda.to_gpu([A, (A, None)], device=0)
    assert card.host(many[1][0]).tolist() == A.tolist() and many[1][1] is None
    stream = cuda.Stream(non_blocking=True)
    later = cuda.to_gpu(A, stream=stream)
    stream.synchronize()
    assert cuda.to_cpu(later, stream=stream).tolist() == A.tolist()
    assert kusari.get_device("@cupy:0").send({"a": [A]})["a"][0].device == cuda.Device(0)
    chx = backend.to_chx(x)
    assert backend.from_chx(chx) is x and chx.device.name == "cuda:0"
    with pytest.raises(ArrayTypeError, match="str"):
        cuda.to_gpu("x")


def test_devices_of_arrays(two_cards: Machine) -> None:
    x, y = cuda.to_gpu(A, device=0), cuda.to_gpu(A, device=1)
    assert cuda.get_device_from_id(1) == y.device == cuda.get_device_from_array(A, y)
    assert cuda.get_device_from_id(-1) is cuda.DummyDevice is cuda.get_device_from_array(A)
    assert backend.get_device_from_array(y).name == "@cupy:1" and repr(backend.get_device_from_array(x)).endswith(":0>")
    assert backend.get_device_from_array(kusari.Variable(y)) == kusari.get_device(1) == kusari.get_device("@cupy:1")
    with kusari.using_device("@cupy:1") as device:
        assert device.xp.zeros(2).device == y.device == cuda.Device()
    assert cuda.Device().id == 0
    with cuda.get_device_from_id(1):
        assert two_cards.xp.zeros(2).device.id == 1
    kusari.get_device("@cupy:1").use()
    assert two_cards.xp.zeros(2).device.id == 1
    cuda.Device(0).use()
    moved = cuda.copy(x, out_device=1)
    assert moved.device.id == 1 and cuda.to_cpu(moved).tolist() == A.tolist()
    target = two_cards.xp.zeros_like(x)
    backend.copyto(target, A)
    assert cuda.to_cpu(target).tolist() == A.tolist()


def test_kernels_and_memos(two_cards: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    for name in ("ElementwiseKernel", "ReductionKernel", "RawKernel"):
        monkeypatch.setattr(two_cards.xp, name, lambda *args, **kwargs: made.append((args, kwargs)) or len(made),
                            raising=False)
    square = "T x", "T y", "y = x * x", "square"
    assert cuda.elementwise(*square) == cuda.elementwise(*square) == 1 and made[0][0] == square
    with cuda.get_device_from_id(1):
        assert cuda.elementwise(*square) == 2  # once for each card
    assert cuda.reduce("T x", "T y", "x", "a + b", "y = a", "0", "total") == 3
    assert cuda.raw("text", "name", options=("-O3",)) == 4
    cuda.clear_memo()
    assert cuda.elementwise(*square) == 5


def test_functions_run_where_their_inputs_are(two_cards: Machine) -> None:
    """Also where another card is the current one: forward, backward, sums of gradients, twice."""
    def second(x: Any) -> list[Any]:
        y = F.sum(F.tanh(x) * x + F.dropout(F.max(x, 1, keepdims=True) * x, 0.0) + x[:, ::-1])
        gx, = kusari.grad([y], [x], enable_double_backprop=True)
        F.sum(gx * gx).backward()
        return [y.array, gx.array, x.grad]
    expected = second(kusari.Variable(A))
    x = kusari.Variable(cuda.to_gpu(A, device=1))
    found = second(x)
    for y, e in zip(found, expected, strict=True):
        assert y.device.id == 1
        np.testing.assert_allclose(two_cards.host(y), e, rtol=1e-5)
    assert cuda.Device().id == 0


def test_a_model_on_two_cards(two_cards: Machine) -> None:
    """``F.copy`` moves to the other card, gradients come back, hooks and optimizers work on both."""
    def losses(devices: list[Any]) -> list[Any]:
        np.random.seed(0)
        net = kusari.Chain(a=L.Linear(3, 4), b=L.Linear(4, 2))
        if devices:
            net.a.to_device(devices[0])
            net.b.to_device(devices[1])
        optimizer = optimizers.Adam(0.1).setup(net)
        optimizer.add_hook(optimizer_hooks.GradientClipping(0.01))
        found: list[Any] = []
        for _ in range(3):
            h = F.tanh(net.a(kusari.get_device(devices[0]).send(A) if devices else A))
            y = net.b(F.copy(h, devices[1]) if devices else h)
            loss = F.sum(y * y)
            net.cleargrads()
            loss.backward()
            optimizer.update()
            found.append(cuda.to_cpu(loss.array))
        if devices:
            assert [p.array.device.id for p in net.params()] == [p.grad.device.id for p in net.params()] == [0, 0, 1, 1]
        return found
    np.testing.assert_allclose(losses(["@cupy:0", "@cupy:1"]), losses([]), rtol=1e-5)


def test_inputs_on_two_cards_are_refused(two_cards: Machine) -> None:
    if not two_cards.simulated:
        pytest.skip("cards that reach each other's memory compute")
    with pytest.raises(ValueError, match="Array device must be same"):
        F.add(cuda.to_gpu(A, device=0), cuda.to_gpu(A, device=1))


def test_parallel_updater(two_cards: Machine) -> None:
    data = [(A[i % 2] * (i + 1) / 8, np.int32(i % 3)) for i in range(8)]
    found: list[Any] = []
    for devices in (["@numpy", "@numpy"], ["@cupy:0", "@cupy:1"]):
        np.random.seed(0)
        model = L.Classifier(L.Linear(3, 3))
        optimizer = optimizers.MomentumSGD(0.1).setup(model)
        updater = ParallelUpdater(SerialIterator(data, 4, shuffle=False), optimizer, devices=devices)
        for _ in range(3):
            updater.update()
        found.append([cuda.to_cpu(p.array) for p in model.params()])
        assert {str(kusari.backend.get_device_from_array(p.array)) for m in updater._models.values()
                for p in m.params()} == set(devices)
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


@pytest.mark.parametrize("padding", [None, 0])
def test_batches_are_sent(padding: Any, card: Machine) -> None:
    batch = [(np.arange(3 if padding is None else i + 1, dtype=np.float32), i, {"k": A}) for i in range(3)]
    plain = [{"x": x, "t": t} for x, t, _ in batch]
    expected = concat_examples(plain, None, padding)
    for convert in (concat_examples, ConcatWithAsyncTransfer(), ConcatWithAsyncTransfer(cuda.Stream())):
        for device in (0, "@cupy:0", kusari.get_device("@cupy:0")):
            found = convert(plain, device, padding)
            assert {k: card.host(v).tolist() for k, v in found.items()} == {k: v.tolist() for k, v in expected.items()}
        assert convert(plain, -1, padding)["x"].tolist() == expected["x"].tolist()
    on_card = [card.xp.asarray(x) for x, _, _ in batch]
    assert card.host(concat_examples(on_card, 0, padding)).tolist() == expected["x"].tolist()


def test_transfers_overlap_and_never_overwrite(card: Machine) -> None:
    """Batches that were begun are right when they are used, also when they are kept; none is waited for."""
    stream, compute = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
    convert = ConcatWithAsyncTransfer(stream, compute)
    batches = [[(A + 10 * i + k, np.int32(k)) for k in range(2 + i % 3)] for i in range(7)]
    kept = [convert(batch, "@cupy:0") for batch in batches]
    assert not card.waits
    compute.synchronize()
    for batch, sent in zip(batches, kept, strict=True):
        for x, e in zip(sent, concat_examples(batch), strict=True):
            assert card.host(x).tolist() == e.tolist()


def test_variables_links_and_pickles_keep_their_device(two_cards: Machine) -> None:
    x = kusari.Variable(A)
    x.grad = A * 2
    x.to_gpu(1)
    assert x.array.device.id == x.grad.device.id == 1 and x.device.name == "@cupy:1" and x.xp is two_cards.xp
    x.to_cpu()
    assert type(x.array) is type(x.grad) is np.ndarray
    link = L.BatchNormalization(3).to_device("@cupy:1")
    with pytest.warns(DeprecationWarning):
        assert link.to_gpu(0).avg_mean.device.id == 0
    link.to_device("@cupy:1")
    for again in (copy.deepcopy(link), link.copy(mode="copy")):
        assert again.gamma.array.device.id == again.avg_mean.device.id == 1
    link.cleargrads()
    F.sum(link(cuda.to_gpu(A, device=1))).backward()
    assert link.gamma.grad.device.id == 1
    other = pickle.loads(pickle.dumps(link))
    assert two_cards.host(other.avg_mean).tolist() == two_cards.host(link.avg_mean).tolist()
    link.to_chx()
    assert link.gamma.array.device.name == "cuda:1"
    assert link.from_chx().gamma.array.device.id == 1


def test_an_updater_sends_to_its_device(card: Machine) -> None:
    model = L.Classifier(L.Linear(3, 3))
    updater = StandardUpdater(SerialIterator([(A[0], np.int32(1))] * 4, 2), optimizers.SGD().setup(model), device=0)
    updater.update()
    assert card.host(model.predictor.W.array).shape == (3, 3)
    evaluator = training.extensions.Evaluator(
        SerialIterator([(A[0], np.int32(1))] * 4, 2, repeat=False), model, device=0)
    assert np.isfinite(evaluator()["main/loss"])


def test_errors_of_a_card_name_the_line(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels fail later; in debug mode each function waits for its own, forward and backward."""
    if not card.simulated:
        pytest.skip("makes a card fail, which only a simulated one survives")
    def fail(self: Any) -> None:
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    x = kusari.Variable(card.xp.asarray(A))
    y = F.sum(F.exp(x))
    with kusari.using_config("debug", True):
        z = F.sum(F.exp(x))
        monkeypatch.setattr(cuda.Device, "synchronize", fail)
        with pytest.raises(DeviceError, match=r"(?s)exp failed on the card: RuntimeError: cudaErrorIllegal.*test_dev"):
            F.exp(x)
        with pytest.raises(RuntimeError, match=r"(?s)cudaErrorIllegal.*z = F.sum\(F.exp\(x\)\)"):
            z.backward()
    y.backward()


def test_more_cards_than_there_are(card: Machine) -> None:
    count = card.xp.cuda.runtime.getDeviceCount()
    with pytest.raises(DeviceError, match=rf"no card {count}: .*there (is|are) {count} card"):
        kusari.get_device(f"@cupy:{count}")


def test_the_machine_is_as_before() -> None:
    with machine("stand-in"):
        assert cuda.available
    assert cuda.cupy.__class__.__name__ == "_MissingCupy" or cuda.available
