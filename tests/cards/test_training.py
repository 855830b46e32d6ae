"""Models that train define-by-run on a card as they do on the CPU; snapshots of one resume on the other."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizer_hooks, optimizers, serializers, training
from kusari.dataset import concat_examples
from kusari.iterators import SerialIterator
from kusari.training import extensions

R = np.random.RandomState(0)
IMAGES, DIGITS = R.rand(24, 1, 8, 8).astype("f"), R.randint(0, 3, 24).astype("i")
WORDS = R.randint(0, 7, (12, 6)).astype("i")


class MLP(kusari.Chain):
    """Two hidden layers, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2, self.l3 = L.Linear(None, 12), L.Linear(None, 10), L.Linear(None, 3)

    def forward(self, x: Any, t: Any) -> Any:
        h = F.dropout(F.relu(self.l1(x)), 0.3)
        return F.softmax_cross_entropy(self.l3(F.relu(self.l2(h))), t)


class CNN(kusari.Chain):
    """Convolutions with batch normalization and pooling, and no biases whose gradients are nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.c1, self.b1 = L.Convolution2D(None, 4, 3, pad=1, nobias=True), L.BatchNormalization(4)
            self.c2, self.b2 = L.Convolution2D(None, 6, 3, stride=2, nobias=True), L.BatchNormalization(6)
            self.out = L.Linear(None, 3)

    def forward(self, x: Any, t: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.b1(self.c1(x))), 2)
        h = F.average_pooling_2d(F.leaky_relu(self.b2(self.c2(h))), 1)
        return F.softmax_cross_entropy(self.out(h), t)


class LanguageModel(kusari.Chain):
    """An embedding, an LSTM and a projection; truncated backpropagation is one sentence."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed, self.lstm, self.out = L.EmbedID(7, 5), L.LSTM(5, 8), L.Linear(8, 7)

    def forward(self, words: Any, t: Any = None) -> Any:
        self.lstm.reset_state()
        return sum([F.softmax_cross_entropy(self.out(self.lstm(self.embed(words[:, i]))), words[:, i + 1])
                    for i in range(words.shape[1] - 1)])


MODELS = {"mlp": (MLP, list(zip(IMAGES.reshape(24, 64), DIGITS, strict=True))),
          "cnn": (CNN, list(zip(IMAGES, DIGITS, strict=True))), "lm": (LanguageModel, [(w,) for w in WORDS])}


def trained(name: str, device: Any, xp: Any, steps: int = 6) -> list[Any]:
    """The losses, and at the end parameters, running statistics and states of Adam."""
    kind, data = MODELS[name]
    np.random.seed(0)
    net = kind()
    with kusari.using_config("train", False):
        net(*concat_examples(data[:2]))
    net.to_device(device)
    optimizer = optimizers.Adam(0.01).setup(net)
    optimizer.add_hook(optimizer_hooks.GradientClipping(1.0))
    xp.random.seed(1)
    found: list[Any] = []
    for i in range(steps):
        batch = concat_examples([data[(4 * i + k) % len(data)] for k in range(4)], device)
        loss = net(*batch)
        net.cleargrads()
        loss.backward()
        optimizer.update()
        found.append(loss.array)
    found += [p.array for _, p in sorted(net.namedparams())]
    found += [p.update_rule.state[k] for _, p in sorted(net.namedparams()) for k in ("m", "v")]
    return found + [getattr(k, n) for _, k in sorted(net.namedlinks()) for n in sorted(k._persistent)]


@pytest.mark.parametrize("name", MODELS)
def test_adam_on_the_card_is_adam_on_the_cpu(name: str, card: Machine) -> None:
    if name == "mlp" and not card.simulated:
        pytest.skip("CuPy draws other numbers than NumPy")
    expected = trained(name, "@numpy", np)
    found = trained(name, "@cupy:0", card.xp)
    assert not card.waits
    for y, e in zip(found, expected, strict=True):
        if isinstance(e, np.ndarray):
            np.testing.assert_allclose(card.host(y), e, rtol=2e-3, atol=2e-5)
        else:
            assert y == e


def trainer(device: Any, folder: Path, epochs: int) -> Any:
    """A trainer that evaluates, logs and takes a snapshot after each epoch."""
    kind, data = MODELS["cnn"]
    np.random.seed(0)
    net = kind()
    with kusari.using_config("train", False):
        net(*concat_examples(data[:2]))
    net.to_device(device)
    model = kusari.Chain(net=net)
    optimizer = optimizers.Adam(0.01).setup(model)

    def loss(x: Any, t: Any) -> Any:
        found = net(x, t)
        kusari.report({"loss": found}, model)
        return found
    updater = training.updaters.StandardUpdater(SerialIterator(data, 8, shuffle=False), optimizer, device=device,
                                                loss_func=loss)
    made = training.Trainer(updater, (epochs, "epoch"), str(folder))
    made.extend(extensions.LogReport())
    made.extend(extensions.Evaluator(SerialIterator(data, 8, repeat=False), model, device=device, eval_func=loss))
    made.extend(extensions.snapshot(filename="snapshot"), trigger=(1, "epoch"))
    return made


def state_of(made: Any) -> list[Any]:
    """Parameters, statistics and states, on the host."""
    from kusari.backends.cuda import to_cpu
    net = made.updater.get_optimizer("main").target.net
    arrays = [p.array for _, p in sorted(net.namedparams())]
    arrays += [p.update_rule.state[k] for _, p in sorted(net.namedparams()) for k in ("m", "v")]
    return [to_cpu(v) for v in (*arrays, net.b1.avg_mean, net.b2.avg_var)]


@pytest.mark.parametrize("devices", [("@cupy:0", "@cupy:0"), ("@cupy:0", "@numpy"), ("@numpy", "@cupy:0")])
def test_snapshots_resume_on_any_device(devices: tuple[str, str], card: Machine, tmp_path: Path) -> None:
    whole = trainer("@numpy", tmp_path / "whole", 4)
    whole.run()
    first = trainer(devices[0], tmp_path / "first", 2)
    first.run()
    rest = trainer(devices[1], tmp_path / "rest", 4)
    serializers.load_npz(tmp_path / "first/snapshot", rest)
    rest.run()
    for x, y in zip(state_of(whole), state_of(rest), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-5)
    for key in ("loss", "validation/main/loss"):
        log = [made.get_extension("LogReport").log[-1] for made in (whole, rest)]
        name = next(k for k in log[0] if k.endswith(key))
        np.testing.assert_allclose(log[0][name], log[1][name], rtol=1e-3)


@pytest.mark.parametrize("form", ["npz", "hdf5"])
def test_files_hold_what_is_on_the_card(form: str, card: Machine, tmp_path: Path) -> None:
    if form == "hdf5":
        pytest.importorskip("h5py")
    link = CNN()
    link(*concat_examples(MODELS["cnn"][1][:4]))
    link.to_device("@cupy:0")
    getattr(serializers, f"save_{form}")(tmp_path / "file", link)
    for device in ("@numpy", "@cupy:0"):
        other = CNN().to_device(device)
        getattr(serializers, f"load_{form}")(tmp_path / "file", other)
        assert other.device.name == device and str(other.c1.W.device) == device
        for x, y in zip(link.params(), other.params(), strict=True):
            y.to_cpu()
            np.testing.assert_array_equal(card.host(x.array), y.array)
