"""Networks for images: what Chainer 7.8.1 computes from the same seed, preparation of images, files of parameters."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.links as L
from kusari.links.model.vision import googlenet, pretrained, resnet, vgg

BLOCKS = dict(resnet._BLOCKS)
PIXELS = np.zeros((4, 5, 3), np.uint8) + np.array([10, 20, 30], np.uint8)


def waves(n: int) -> np.ndarray:
    return np.sin(np.arange(3 * n * n)).reshape(1, 3, n, n).astype(np.float32) * 50


@pytest.mark.slow
def test_googlenet_gives_what_chainer_gives() -> None:
    np.random.seed(3)
    net = L.GoogLeNet(None)
    layers = {"pool1": (64, 56, 56), "inception_3a": (256, 28, 28), "pool5": (1024, 1, 1), "loss1_fc2": (1000,),
              "loss2_fc2": (1000,), "prob": (1000,)}
    sums = (6895395.8807, 1197776.7132, 101.9802, 1576.2369, 256.6972, 1)
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        found = net(waves(224), layers=list(layers))
    assert {name: y.shape[1:] for name, y in found.items()} == layers
    for name, expected in zip(layers, sums, strict=True):
        assert abs(found[name].array).sum(dtype="d") == pytest.approx(expected, 1e-4)
    assert len(net.available_layers) == 21 and net.count_params() == 13378280


@pytest.mark.parametrize(("downsample_fb", "total", "gradient"), [(False, 264.0743, 125.8665),
                                                                  (True, 272.309, 96.7515)])
def test_blocks_give_what_chainer_gives(downsample_fb: bool, total: float, gradient: float) -> None:
    np.random.seed(3)
    block = resnet.BuildingBlock(3, 4, 3, 8, 2, kusari.initializers.HeNormal(scale=1.0), downsample_fb)
    block.cleargrads()
    y = block(np.sin(np.arange(512) ** 1.5).reshape(2, 4, 8, 8).astype(np.float32))
    y.grad = np.cos(np.arange(y.size)).reshape(y.shape).astype(np.float32)
    y.backward()
    assert y.shape == (2, 8, 4, 4) and y.array.sum() == pytest.approx(total, 1e-4)
    assert abs(block.a.conv1.W.grad).sum() == pytest.approx(gradient, 1e-3)


def test_blocks_take_the_older_word_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="use `n_layers`"):
        block = resnet.BuildingBlock(n_layer=3, in_channels=4, mid_channels=2, out_channels=4, stride=(1, 1))
    assert [name for name, _ in block.namedlinks() if name.count("/") == 1 and name != "/"] == ["/a", "/b1", "/b2"]
    with pytest.raises(TypeError, match="needs n_layers, in_channels"):
        resnet.BuildingBlock(in_channels=4, mid_channels=2, out_channels=4)


@pytest.mark.parametrize(("module", "expected"), [
    (vgg, (-73.939, -96.779, -113.68)), (googlenet, (-74, -97, -113)), (resnet, (-73.063, -95.903, -113.152))])
def test_images_are_prepared(module: Any, expected: Any) -> None:
    image = pytest.importorskip("PIL.Image").fromarray(PIXELS)
    for form in (PIXELS, PIXELS.transpose(2, 0, 1).astype("f"), image):
        y = module.prepare(form, size=None)
        assert y.shape == (3, 4, 5) and y.dtype == np.float32
        np.testing.assert_allclose(y[:, 1, 1], expected, rtol=1e-5)
    assert module.prepare(PIXELS[..., 0], size=(6, 7)).shape == (3, 7, 6)
    np.testing.assert_allclose(module.prepare(PIXELS[None, ..., 2], size=None)[0], expected[0], rtol=1e-5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks with few parameters."""
    monkeypatch.setattr(resnet, "_BLOCKS", {n: (1, 1, 1, 1) for n in (50, 101, 152)})
    monkeypatch.setattr(resnet, "BuildingBlock", lambda n, *a: L.Convolution2D(None, 2, 1))
    monkeypatch.setattr(resnet, "Linear", lambda *a, **k: L.Linear(2, 1000))
    monkeypatch.setattr(vgg, "_CHANNELS", (2,) * 5)
    monkeypatch.setattr(vgg, "Linear", lambda *a, **k: L.Linear(None, 2))


@pytest.mark.parametrize(("make", "usual", "layers"), [
    pytest.param(L.ResNet50Layers, "pool5", "conv1 pool1 res2 res3 res4 res5 pool5 fc6 prob", marks=pytest.mark.slow),
    (L.VGG16Layers, "fc7", "conv1_1 conv1_2 pool1 conv2_1 conv2_2 pool2 conv3_1 conv3_2 conv3_3 pool3 "
                           "conv4_1 conv4_2 conv4_3 pool4 conv5_1 conv5_2 conv5_3 pool5 fc6 fc7 fc8 prob")])
def test_features_and_probabilities(small: None, make: Any, usual: str, layers: str) -> None:
    pytest.importorskip("PIL")
    net = make(None)
    assert net.available_layers == layers.split()
    assert list(net.extract([PIXELS])) == [usual]
    assert net.extract([PIXELS, PIXELS], ["pool1"], size=(64, 48))["pool1"].shape[0] == 2
    for oversample in (True, False):
        y = net.predict([PIXELS], oversample)
        assert y.creator is None and y.shape[0] == 1 and y.array.sum() == pytest.approx(1, 1e-5)
    with pytest.raises(ValueError, match="using_config"):
        net(waves(32), test=True)


@pytest.mark.parametrize("make", [pytest.param(L.ResNet50Layers, marks=pytest.mark.slow), L.VGG16Layers])
def test_networks_are_exported(small: None, make: Any) -> None:
    pytest.importorskip("onnxruntime")
    import kusari.onnx
    net = make(None)
    with kusari.using_config("train", False):
        made = kusari.onnx.export(lambda x: net(x, layers=["prob"])["prob"], waves(224))  # verified in ONNX Runtime
    assert "Softmax" in {n.op_type for n in made.graph.node}


def test_the_larger_networks(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(resnet, "BuildingBlock", lambda n, *a: counts.append(n) or L.Convolution2D(None, 2, 1))
    monkeypatch.setattr(resnet, "_BLOCKS", BLOCKS)
    L.ResNet101Layers(None), L.ResNet152Layers(None)
    assert counts == [3, 4, 23, 3, 3, 8, 36, 3]
    assert [name for name in L.VGG19Layers(None).available_layers if name.endswith("_4")] == ["conv3_4", "conv4_4",
                                                                                              "conv5_4"]


def test_ten_parts_of_an_image() -> None:
    x = np.arange(2 * 6 * 8).reshape(1, 2, 6, 8)
    found = pretrained.crops(x, 4, 4)
    assert found.shape == (10, 2, 4, 4)
    np.testing.assert_array_equal(found[:5, 0, 0, 0], [0, 4, 16, 20, 10])
    np.testing.assert_array_equal(found[5:], found[:5, :, :, ::-1])


def test_files_of_parameters(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusari.dataset, "get_dataset_directory", lambda name, create_directory: str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="ResNet-50-model.npz"):
        L.ResNet50Layers()
    folder = tmp_path / "pfnet" / "chainer" / "models"
    folder.mkdir(parents=True)
    net = L.ResNet50Layers(None)
    net(waves(64))
    kusari.serializers.save_npz(folder / "ResNet-50-model.npz", net)
    for which in ("auto", folder / "ResNet-50-model.npz"):
        other = L.ResNet50Layers(which)
        np.testing.assert_array_equal(other.conv1.W.array, net.conv1.W.array)
        np.testing.assert_array_equal(other.res2.W.array, net.res2.W.array)
    with pytest.raises(FileNotFoundError):
        L.ResNet50Layers(str(tmp_path / "x.caffemodel"))
    with pytest.raises(ValueError, match="50, 101, or 152"):
        resnet.ResNetLayers(None, 18)
    with pytest.raises(ValueError, match="16 or 19"):
        vgg.VGGLayers(None, 11)
