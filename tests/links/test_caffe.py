"""Caffe's files: layers that are read, models that are written, and what the two and Chainer make of each other's."""

from __future__ import annotations

import functools
import operator
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.exporters import caffe
from kusari.links.caffe import caffe_function, schema

protobuf = pytest.importorskip("google.protobuf.text_format")
ORACLE = os.environ.get("KUSARI_ORACLE", "")
X = np.sin(np.arange(2 * 4 * 8 * 8)).reshape(2, 4, 8, 8).astype(np.float32)


def written(path: Path, *layers: dict[str, Any], field: str = "layer") -> Any:
    """The function of a file with layers, whose ``blobs`` are arrays."""
    net = schema.messages().NetParameter()
    for layer in layers:
        blobs = [np.asarray(blob) for blob in layer.pop("blobs", ())]
        message = getattr(net, field).add(bottom=layer.pop("bottom", ["x"]), top=layer.pop("top", ["y"]))
        for name, value in layer.items():
            if isinstance(value, dict):
                getattr(message, name).CopyFrom(type(getattr(message, name))(**value))
            else:
                setattr(message, name, value)
        for blob in blobs:
            schema.fill(message.blobs.add(), blob)
    path.write_bytes(net.SerializeToString())
    return L.caffe.CaffeFunction(path)


def weights(*shape: int) -> np.ndarray:
    return np.cos(np.arange(np.prod(shape))).reshape(shape).astype(np.float32)


LAYERS = [
    ("Convolution", {"blobs": (weights(6, 2, 3, 3), weights(6)), "convolution_param": {
        "kernel_size": [3], "pad": [1], "stride": [2], "group": 2}},
     lambda x: F.convolution_2d(x, weights(6, 2, 3, 3), weights(6), 2, 1, groups=2)),
    ("Convolution", {"blobs": (weights(3, 4, 2, 3),), "convolution_param": {
        "kernel_h": 2, "kernel_w": 3, "bias_term": False, "dilation": [2]}},
     lambda x: F.convolution_2d(x, weights(3, 4, 2, 3), dilate=2)),
    ("Deconvolution", {"blobs": (weights(4, 3, 2, 2), weights(6)), "convolution_param": {
        "kernel_size": [2], "stride": [2], "group": 2}},
     lambda x: F.deconvolution_2d(x, weights(4, 3, 2, 2), weights(6), 2, groups=2)),
    ("InnerProduct", {"blobs": (weights(5, 256), weights(5))}, lambda x: F.linear(x, weights(5, 256), weights(5))),
    ("BatchNorm", {"blobs": (weights(4) * 2, weights(4) ** 2 * 2, np.array([2.0])), "batch_norm_param": {
        "use_global_stats": True, "eps": 1e-3}},
     lambda x: F.fixed_batch_normalization(x, np.ones(4, "f"), np.zeros(4, "f"), weights(4), weights(4) ** 2, 1e-3)),
    ("Scale", {"blobs": (weights(4), weights(4) + 1), "scale_param": {"bias_term": True}},
     lambda x: F.bias(F.scale(x, weights(4)), weights(4) + 1)),
    ("Eltwise", {"bottom": ["x", "x"], "eltwise_param": {"coeff": [2, -0.5]}}, lambda x: x * 2 - x * 0.5),
    ("Eltwise", {"bottom": ["x", "x", "x"], "eltwise_param": {"operation": 0}}, lambda x: x * x * x),
    ("Concat", {"bottom": ["x", "x"], "concat_param": {"concat_dim": 2}}, lambda x: F.concat((x, x), 2)),
    ("Reshape", {"reshape_param": {"shape": {"dim": [0, -1]}}}, lambda x: F.reshape(x, (2, 256))),
    ("Pooling", {"pooling_param": {"pool": 1, "global_pooling": True}}, lambda x: F.average_pooling_2d(x, 8)),
    ("Pooling", {"pooling_param": {"kernel_size": 3, "stride": 2}}, lambda x: F.max_pooling_2d(x, 3, 2)),
    ("LRN", {"lrn_param": {"local_size": 3, "alpha": 0.3, "k": 2.0}},
     lambda x: F.local_response_normalization(x, 3, 2, 0.1, 0.75)),
    ("ReLU", {"relu_param": {"negative_slope": 0.25}}, lambda x: F.leaky_relu(x, 0.25)),
]


@pytest.mark.parametrize(("kind", "layer", "expected"), LAYERS, ids=[f"{i}-{row[0]}" for i, row in enumerate(LAYERS)])
def test_layers_are_read(tmp_path: Path, kind: str, layer: dict[str, Any], expected: Any) -> None:
    net = written(tmp_path / "x.caffemodel", {"name": "l", "type": kind, **layer})
    y, = net(inputs={"x": X}, outputs=["y"])
    np.testing.assert_allclose(y.array, expected(kusari.Variable(X)).array, 1e-5, 1e-5)


def test_old_files_and_layers_that_are_passed_over(tmp_path: Path) -> None:
    kinds = {name: number for number, name in schema.LAYER_TYPES.items()}
    with pytest.warns(UserWarning, match="'c'.*type Tanh"):
        net = written(
            tmp_path / "x", {"name": "data", "type": kinds["DATA"]}, {"name": "c", "type": kinds["TANH"]},
            {"name": "split", "type": kinds["SPLIT"], "top": ["a", "b"]},
            {"name": "a/1", "type": kinds["INNER_PRODUCT"], "bottom": ["a"], "blobs": (weights(3, 256), weights(3))},
            {"name": "unknown", "type": kinds["RELU"], "bottom": ["nowhere"], "top": ["z"]},
            {"name": "r", "type": kinds["RELU"], "bottom": ["y"]}, field="layers")
    y, x = net(inputs={"x": X}, outputs=["y", "b"])
    assert x is not y and (y.array >= 0).all() and [name for name, _ in net.namedparams()] == ["/a/1/W", "/a/1/b"]
    assert (net(inputs={"x": X}, outputs=["y"], disable=["r"])[0].array < 0).any()
    copied = net.copy("copy")
    copied["a/1"].W.array[...] = 0
    assert abs(copied(inputs={"x": X}, outputs=["y"])[0].array - y.array).max() > 0


class Model(kusari.Chain):
    """All layers that are written."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(4, 6, 3, 2, 1, groups=2)
            self.bn = L.BatchNormalization(6)
            self.deconv = L.Deconvolution2D(6, 5, 2)
            self.fc = L.Linear(None, 3)

    def forward(self, x: Any) -> Any:
        """Return probabilities."""
        h = F.local_response_normalization(F.relu(self.bn(self.conv(x))), 3, 1, 2e-3, 0.6)
        h = F.leaky_relu(self.deconv(F.max_pooling_2d(h, 2)), 0.3)
        h = F.concat((F.dropout(h), F.sigmoid(h) * h))
        h = F.average_pooling_2d(F.maximum(h, h + h), 2, 1)
        return F.softmax(self.fc(h))


def trained() -> Model:
    np.random.seed(0)
    model = Model()
    model(X)
    return model


def evaluated(net: Any) -> np.ndarray:
    with kusari.using_config("train", False):
        return net(inputs={"data": X}, outputs=[net.layers[-1][0]])[0].array


def test_models_are_written_and_read(tmp_path: Path) -> None:
    model = trained()
    message = caffe.export(model, [X], tmp_path, graph_name="all")
    text = (tmp_path / "chainer_model.prototxt").read_text()
    assert protobuf.Parse(text, type(message)()).layer[1].convolution_param.group == 2 and "blobs" not in text
    net = L.caffe.CaffeFunction(tmp_path / "chainer_model.caffemodel")
    with kusari.using_config("train", False):
        np.testing.assert_allclose(evaluated(net), model(X).array, 1e-5)
    caffe.export(model, [X], tmp_path / "bare", export_params=False)
    assert [path.name for path in (tmp_path / "bare").iterdir()] == ["chainer_model.prototxt"]


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: F.exp(x), "no layer for exp"), (lambda x: F.average_pooling_2d(x, 3, 2), "leave 1 of"),
    (lambda x: x + np.ones((1, 4, 8, 8), "f"), "operands of one shape"), (lambda x: x + np.ones_like(X), "neither an"),
    (lambda x: F.max_pooling_2d(x, 3, 2, cover_all=False), "covers all")])
def test_what_caffe_does_not_have_is_refused(function: Any, message: str) -> None:
    with pytest.raises((NotImplementedError, ValueError), match=message):
        caffe.export(function, [X])


@pytest.mark.parametrize(("kind", "params", "blobs", "message"), [
    ("Pooling", {"pooling_param": {"pool": 2}}, (), "stochastic"), ("Softmax", {"softmax_param": {"axis": 2}}, (), "1"),
    ("LRN", {"lrn_param": {"norm_region": 1}}, (), "within channels"),
    ("InnerProduct", {"inner_product_param": {"axis": 2}}, (), "along axis 2"),
    ("InnerProduct", {}, (weights(1, 2, 3),), "2 or 4 axes, not 3")])
def test_unsupported_settings_are_refused(tmp_path: Path, kind: str, params: Any, blobs: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        written(tmp_path / "x", {"name": "l", "type": kind, "blobs": blobs, **params})


def published(net: Any, path: Path) -> None:
    """Write a network for images under the names of the published model."""
    message = schema.messages().NetParameter()
    for place, names in net.caffe_names.items():
        link = functools.reduce(operator.getitem, place.split("/"), net)
        if len(names) == 2:
            parts = [("BatchNorm", [link.avg_mean, link.avg_var, np.ones(1)], {}),
                     ("Scale", [link.gamma.array, link.beta.array], {"scale_param": {"bias_term": True}})]
        else:
            params = {"kernel_size": [link.W.shape[2]], "bias_term": link.b is not None} if link.W.ndim == 4 else None
            parts = [("Convolution" if params else "InnerProduct", [p.array for p in (link.W, link.b) if p is not None],
                      {"convolution_param": params} if params else {})]
        for name, (kind, blobs, fields) in zip(names, parts, strict=True):
            layer = message.layer.add(name=name, type=kind, bottom=["x"], top=[name])
            for field, values in fields.items():
                getattr(layer, field).CopyFrom(type(getattr(layer, field))(**values))
            for blob in blobs:
                schema.fill(layer.blobs.add(), np.asarray(blob))
    path.write_bytes(message.SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("link", [L.GoogLeNet, L.ResNet50Layers])
def test_published_models_are_loaded(link: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_DATASET_ROOT", str(tmp_path))
    folder = tmp_path / "pfnet" / "chainer" / "models"
    folder.mkdir(parents=True)
    net = link(None)
    for parameter in net.params():
        parameter.array[...] = weights(*parameter.shape)
    name = "bvlc_googlenet" if link is L.GoogLeNet else "ResNet-50-model"
    published(net, folder / f"{name}.caffemodel")
    expected = dict(net.namedparams())
    for which in (folder / f"{name}.caffemodel", "auto", folder / f"{name}.npz"):  # "auto" writes the third
        found = dict(link(which).namedparams())
        assert found.keys() == expected.keys()
        assert all((found[key].array == value.array).all() for key, value in expected.items())


@pytest.mark.parametrize(("link", "settings", "some"), [
    (L.ResNet50Layers, {"n_layers": 50}, "conv1 scale_conv1 res2a_branch1 bn3d_branch2c res4f_branch2a fc1000"),
    (L.ResNet152Layers, {"n_layers": 152}, "bn_conv1 res2c_branch2a res3b7_branch2c scale4b35_branch2a res5c_branch2b"),
    (L.GoogLeNet, {}, "conv1/7x7_s2 conv2/3x3 inception_3a/5x5_reduce inception_5b/pool_proj loss3/classifier"),
])
def test_names_are_those_of_the_published_models(link: Any, settings: dict[str, int], some: str) -> None:
    names = link.caffe_names.fget(types.SimpleNamespace(**settings)).values()
    assert {*some.split()} <= {name for each in names for name in each}


@pytest.mark.slow
def test_without_protobuf_the_extra_is_named() -> None:
    program = ("import sys; sys.modules['google.protobuf'] = None\nimport kusari\n"
               "try: kusari.links.caffe.CaffeFunction('x')\nexcept ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "kusari[caffe]"' in done.stdout
    assert caffe_function.caffe_pb is schema.messages()


def test_theano_says_what_is_there_instead() -> None:
    with pytest.raises(NotImplementedError, match="kusari.onnx.load"):
        L.TheanoFunction([], [])


READS = """
import sys
import numpy as np, chainer
from chainer.links.caffe import CaffeFunction
net = CaffeFunction(sys.argv[1])
with chainer.using_config("train", False):
    np.save(sys.argv[3], net(inputs={"data": np.load(sys.argv[2])}, outputs=[net.layers[-1][0]])[0].array)
"""


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE does not name a Python with Chainer")
def test_chainer_reads_what_is_written(tmp_path: Path) -> None:
    model = trained()
    caffe.export(model, [X], tmp_path)
    np.save(tmp_path / "x.npy", X)
    subprocess.run([ORACLE, "-W", "ignore", "-c", READS, tmp_path / "chainer_model.caffemodel", tmp_path / "x.npy",
                    tmp_path / "y.npy"], check=True)
    with kusari.using_config("train", False):
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(X).array, 1e-4)
