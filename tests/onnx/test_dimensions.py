"""Symbolic dimensions: one file for all extents."""
from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
T = np.array([1, 0], np.int32)


def head(x: Any) -> Any:
    """Sizes of all sorts: shapes, counts, products, factors, slices."""
    n, m, k = x.shape
    y = F.reshape(x, (n * m, k)) * (1 / n)
    y = F.concat([y, F.broadcast_to(F.mean(y, axis=0, keepdims=True), (n * m, k))])
    y = F.reshape(y, (2, n, m, k))[:, : n - 1]
    return F.sum(y, axis=(0, 1)) + F.tile(x[0, :, :1], (1, k)) * m


MODELS: dict[str, Any] = {
    "mlp": (kusari.Sequential(L.Linear(12, 5), F.relu, L.Linear(5, 3)), [X], [("N", 3, 4)], ["N", 3]),
    "sizes": (head, [X], [("N", "M", 4)], ["M", 4]),
    "loss": (lambda x, t: F.softmax_cross_entropy(x, t), [X[:, 0], T], [("N", 4), ("N",)], []),
    "mean": (lambda x, t: F.mean_squared_error(x, x * 2), [X[:, 0], T], [("N", 4), ("N",)], []),
    "labels": (lambda x, t: F.select_item(x, t), [X[:, 0], T], [("N", 4), ("N",)], ["N"]),
    "columns": (lambda x: F.transpose(F.softmax(x), (0, 2, 1)), [X], [("N", 3, "K")], ["N", "K", 3]),
    "anonymous": (lambda x: F.flatten(x), [X], [(None, 3, 4)], ["unk__0"]),
}


IMAGES = np.linspace(-1, 1, 96, dtype=np.float32).reshape(2, 3, 4, 4)


def again(x: Any) -> Any:
    """Back to the places that max pooling took."""
    y, places = F.max_pooling_2d(x, 2, 2, return_indices=True)
    return F.upsampling_2d(y, places, 2, 2, outsize=x.shape[2:])


# Of which the oldest opsets say extents in attributes, or have to say them as inputs.
BATCHES: dict[str, Any] = {
    "unpooling": (lambda x: F.unpooling_2d(x, (2, 1), (3, 2), cover_all=False), IMAGES), "upsampling": (again, IMAGES),
    "strided gradient": (lambda x: F.deconvolution_2d(x, np.ones((3, 2, 1, 2), "f"), stride=2), IMAGES),
    "lrn": (lambda x: F.local_response_normalization(F.sum(x, 1)), IMAGES),
    "slice": (lambda x: x[:, 1:, ::-2], IMAGES), "whole": (lambda x: F.exp(x[:]), IMAGES),
    "sampler": (lambda x: F.spatial_transformer_sampler(x, F.tanh(x[:, :2])), IMAGES),
    "draws": (lambda x: F.gaussian(x, x), IMAGES), "uniform": (lambda x: F.gumbel_softmax(x), IMAGES),
}


@pytest.mark.parametrize("opset", [9, 21])
@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_any_size(name: str, opset: int) -> None:
    function, x = BATCHES[name]
    made = kusari.onnx.export(function, x, dynamic_shapes={"Input_0": {0: "N"}}, opset_version=opset)
    assert made.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"


@pytest.mark.parametrize("name", MODELS)
def test_other_extents(name: str) -> None:
    model, args, shapes, out = MODELS[name]
    made = kusari.onnx.export(model, args, input_shapes=shapes)
    dims = made.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value if d.HasField("dim_value") else d.dim_param for d in dims] == out
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    run = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run
    for n, m, k in ((7, 5, 6), (3, 11, 13)):
        size = {"N": n, "M": m, "K": k, None: n}
        data = [np.resize(x, [size.get(e, e) for e in shape]) for x, shape in zip(args, shapes, strict=True)]
        y, = run(None, {f"Input_{i}": x for i, x in enumerate(data)})
        with kusari.using_config("train", False):
            np.testing.assert_allclose(y, model(*data).array, atol=1e-5)


def test_batch_normalization_in_training() -> None:
    model = kusari.Sequential(L.BatchNormalization(4))
    kusari.onnx.export(model, X[:, 0], train=True, input_shapes=("N", 4))


@pytest.mark.parametrize(("model", "message"), [
    (lambda x: x * float(x.shape[0] ** 2), r"test_\w+\.py:\d+: _ \* _, as Mul, depends on the extent 'N'"),
    (lambda x: F.exp(x) if x.shape[0] > 7 else F.sin(x),
     r"test_\w+\.py:\d+: other functions are applied when 'N' is 8 instead of 6: Exp in test_\w+\.py:\d+ in "
     r"place of Sin in test_\w+\.py:\d+; give"),
    (lambda x: F.exp(F.exp(x) if x.shape[0] > 7 else x), r"test_\w+\.py:\d+: other functions .*: Exp .* of none"),
    (lambda x: F.sum(x, axis=x.shape[0] % 3), "Sum, as ReduceSum, depends on the extent 'N'"),
    (lambda x: x * (3.0 if x.shape[0] != 4 else 2.0), r"_ \* _, as Mul, depends on the extent 'N'"),
    (lambda x: F.separate(x)[0], r"Separate, as Split, depends on the extent 'N'"),
    (lambda x: (lambda a, b: (a, b, F.exp((a, b)[x.shape[0] // 2 % 2])))(F.sin(x), F.tanh(x)),
     r"test_\w+\.py:\d+: Exp, as Exp, depends on the extent 'N'"),
    (lambda x: F.exp(x)[:5 - x.shape[0] if x.shape[0] < 4 else 1],
     r"GetItem, as Slice 'Slice_0': float32\[1, 3, 4\] instead of float32\[2, 3, 4\]; it is written for other extents"),
    (lambda x: x + 1 if x.shape[0] > 3 else F.exp(x), r"test_\w+\.py:\d+: Exp, as Exp 'Exp_0', in place of Add"),
    (lambda x: F.exp(x)[[3 if x.shape[0] > 3 else 0]],
     r"test_\w+\.py:\d+: GetItemAdvanced, as Gather 'Gather_0', cannot be computed"),
])
def test_what_does_not_follow_the_extent(model: Any, message: str) -> None:
    with pytest.raises(kusari.onnx.ExportError, match=message):
        kusari.onnx.export(model, X, input_shapes=("N", 3, 4))


@pytest.mark.parametrize(("shapes", "message"), [
    ([("N", 3, 4), ("M",)], None), ([("N", 3, 4), ("N",)], None), ([(5, 3, 4), (2,)], "is 2 in args, not 5"),
    ([("N", "N", 4), (2,)], "'N' must be one extent"), ([("N", 3), (2,)], "has 3 axes"), ([("N", 3, 4)], "expected 2"),
])
def test_shapes_that_do_not_fit(shapes: Any, message: str | None) -> None:
    def model(x: Any, t: Any) -> Any:
        return F.relu(x), t
    if message is None:
        kusari.onnx.export(model, (X, T), input_shapes=shapes)
        return
    with pytest.raises(kusari.onnx.ExportError, match=message):
        kusari.onnx.export(model, (X, T), input_shapes=shapes)


def test_dynamic_shapes_name_axes() -> None:
    made = kusari.onnx.export(lambda x, t: F.softmax_cross_entropy(x, t), {"x": X[:, 0], "t": T},
                              dynamic_shapes={"x": {0: "batch", -1: "classes"}, "t": {0: "batch"}})
    assert [[d.dim_param for d in i.type.tensor_type.shape.dim] for i in made.graph.input] == [
        ["batch", "classes"], ["batch"]]


@pytest.mark.parametrize(("options", "message"), [
    ({"dynamic_shapes": {"y": {0: "N"}}}, "there is no input 'y'; there are Input_0"),
    ({"dynamic_shapes": {"Input_0": {3: "N"}}}, "'Input_0' has 3 axes and no axis 3"),
    ({"dynamic_shapes": {"Input_0": {0: 5}}}, "axis 0 of 'Input_0' needs a name, got 5"),
    ({"dynamic_shapes": {"Input_0": ["N"]}}, "expected a dict like"),
    ({"dynamic_shapes": {}, "input_shapes": ("N", 3, 4)}, "not both"),
])
def test_dynamic_shapes_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(kusari.onnx.ExportError, match=message):
        kusari.onnx.export(F.relu, X, **options)
