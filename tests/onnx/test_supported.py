"""Every function of the manual's list, in every opset: exported, checked, run, equal to define-by-run.

The manual says that there are 82 functions; its list has 84 names.
"""
from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from functions.table import draw, ints
from opsets import NEWEST, OLDEST, OPSETS

import kusari
import kusari.functions as F
import kusari.onnx
from kusari.static.trees import flatten


@dataclass(frozen=True)
class Case:
    """``call(*inputs)`` applies the function."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    train: bool = False

    def __str__(self) -> str:
        return self.name


X, Y = draw(3, 4), draw(3, 4, seed=7)
POSITIVE = draw(3, 4, low=0.2, high=3)
CUBE, IMAGE = draw(2, 3, 4), draw(2, 4, 6, 6)
VECTOR = draw(4)
LABELS = np.array([1, 0, 3], np.int32)
CONDITION = X > 0.3


@kusari.onnx.replace_func.as_funcnode("Shape")
def shape(x: Any) -> Any:
    """Chainer has no function for it; the manual's footnote has it through ``as_funcnode``."""
    return kusari.Variable(np.array(x.shape, np.int64))


CASES = [
    # Activation
    Case("ClippedReLU", lambda x: F.clipped_relu(x, 1.0), (X,)), Case("ELU", F.elu, (X,)),
    Case("HardSigmoid", F.hard_sigmoid, (X,)), Case("LeakyReLU", F.leaky_relu, (X,)),
    Case("LogSoftmax", F.log_softmax, (X,)), Case("PReLUFunction", F.prelu, (IMAGE, VECTOR)),
    Case("ReLU", F.relu, (X,)), Case("Sigmoid", F.sigmoid, (X,)), Case("Softmax", lambda x: F.softmax(x, 1), (CUBE,)),
    Case("Softplus", F.softplus, (X,)), Case("Tanh", F.tanh, (X,)),
    # Array
    Case("Cast", lambda x: F.cast(x, "float64"), (X,)), Case("Concat", lambda x, y: F.concat((x, y)), (X, Y)),
    Case("Copy", lambda x: F.copy(x, -1) * 1, (X,)), Case("Depth2Space", lambda x: F.depth2space(x, 2), (IMAGE,)),
    Case("Dstack", lambda x, y: F.dstack((x, y)), (X, Y)), Case("ExpandDims", lambda x: F.expand_dims(x, 1), (X,)),
    Case("GetItem", lambda x: (x[1:, 2], x[..., None, 1:3], x[[0, 2]]), (X,)),
    Case("Hstack", lambda x, y: F.hstack((x, y)), (X, Y)),
    Case("Permutate", lambda x: F.permutate(x, np.array([2, 0, 1], "i")), (X,)),
    Case("Repeat", lambda x: F.repeat(x, 2, 1), (X,)), Case("Reshape", lambda x: F.reshape(x, (2, -1)), (X,)),
    Case("ResizeImages", lambda x: F.resize_images(x, (9, 5)), (IMAGE,)),
    Case("Separate", lambda x: F.separate(x, 1), (X,)), Case("Shape", shape, (CUBE,)),
    Case("Space2Depth", lambda x: F.space2depth(x, 2), (IMAGE,)),
    Case("SplitAxis", lambda x: F.split_axis(x, (1, 3), 1), (X,)),
    Case("Squeeze", lambda x: F.squeeze(x, 1), (draw(3, 1, 2),)),
    Case("Stack", lambda x, y: F.stack((x, y), 1), (X, Y)),
    Case("Swapaxes", lambda x: F.swapaxes(x, 0, 2), (CUBE,)), Case("Tile", lambda x: F.tile(x, (2, 3)), (X,)),
    Case("Transpose", lambda x: F.transpose(x, (2, 0, 1)), (CUBE,)),
    Case("Vstack", lambda x, y: F.vstack((x, y)), (X, Y)),
    Case("Where", F.where, (CONDITION, X, Y)),
    # Connection
    Case("Convolution2DFunction", lambda x, w, b: F.convolution_2d(x, w, b, 2, 1), (IMAGE, draw(5, 4, 3, 3), draw(5))),
    Case("ConvolutionND", lambda x, w: F.convolution_nd(x, w), (draw(2, 3, 4, 4, 4), draw(2, 3, 2, 2, 2))),
    Case("Deconvolution2DFunction", lambda x, w, b: F.deconvolution_2d(x, w, b, 2), (IMAGE, draw(4, 2, 3, 3), draw(2))),
    Case("DeconvolutionND", lambda x, w: F.deconvolution_nd(x, w), (draw(2, 3, 3, 3, 3), draw(3, 2, 2, 2, 2))),
    Case("EmbedIDFunction", F.embed_id, (ints(5, 3, 2), draw(5, 4))),
    Case("LinearFunction", F.linear, (X, draw(5, 4), draw(5))),
    # Loss
    Case("SoftmaxCrossEntropy", F.softmax_cross_entropy, (X, LABELS)),
    # Math
    Case("Absolute", abs, (X,)), Case("Add", lambda x, y: x + y, (X, Y)), Case("AddConstant", lambda x: x + 2, (X,)),
    Case("ArgMax", lambda x: F.argmax(x, 1), (X,)), Case("ArgMin", lambda x: F.argmin(x, 0), (X,)),
    Case("BroadcastTo", lambda x: F.broadcast_to(x, (3, 4)), (VECTOR,)),
    Case("Clip", lambda x: F.clip(x, -1.0, 1.0), (X,)),
    Case("Div", lambda x, y: x / y, (X, POSITIVE)), Case("DivFromConstant", lambda x: 2 / x, (POSITIVE,)),
    Case("Exp", F.exp, (X,)), Case("Identity", lambda x: F.identity(x) * 1, (X,)),
    Case("LinearInterpolate", F.linear_interpolate, (POSITIVE, X, Y)),
    Case("LogSumExp", lambda x: F.logsumexp(x, 1), (X,)), Case("MatMul", F.matmul, (CUBE, draw(2, 4, 5))),
    Case("Max", lambda x: F.max(x, 1), (X,)), Case("Maximum", F.maximum, (X, Y)),
    Case("Mean", lambda x: F.mean(x, 1, keepdims=True), (X,)), Case("Min", lambda x: F.min(x, 1), (X,)),
    Case("Minimum", F.minimum, (X, Y)), Case("Mul", lambda x, y: x * y, (X, Y)),
    Case("MulConstant", lambda x: x * 3, (X,)),
    Case("Neg", lambda x: -x, (X,)), Case("PowConstVar", lambda x: 2 ** x, (X,)),
    Case("PowVarConst", lambda x: x ** 3, (X,)), Case("PowVarVar", lambda x, y: x ** y, (POSITIVE, Y)),
    Case("Prod", lambda x: F.prod(x, 1), (X,)), Case("RsqrtGPU", F.rsqrt, (POSITIVE,)),
    Case("Sqrt", F.sqrt, (POSITIVE,)), Case("Square", F.square, (X,)), Case("Sub", lambda x, y: x - y, (X, Y)),
    Case("SubFromConstant", lambda x: 2 - x, (X,)), Case("Sum", lambda x: F.sum(x, 0), (X,)),
    # Noise
    Case("Dropout", F.dropout, (X,), train=True),
    # Normalization
    Case("BatchNormalization", F.batch_normalization, (X, VECTOR, VECTOR + 1), train=True),
    Case("FixedBatchNormalization", F.fixed_batch_normalization, (IMAGE, VECTOR, VECTOR, VECTOR, abs(VECTOR) + 1)),
    Case("LocalResponseNormalization", F.local_response_normalization, (IMAGE,)),
    Case("NormalizeL2", F.normalize, (X,)),
    # Pooling
    Case("AveragePooling2D", lambda x: F.average_pooling_2d(x, 3, 2, 1), (IMAGE,)),
    Case("AveragePoolingND", lambda x: F.average_pooling_nd(x, 2), (draw(1, 2, 4, 4, 4),)),
    Case("MaxPooling2D", lambda x: F.max_pooling_2d(x, 3, 2, 1), (IMAGE,)),
    Case("MaxPoolingND", lambda x: F.max_pooling_nd(x, 2), (draw(1, 2, 4, 4, 4),)),
    Case("ROIPooling2D", lambda x, r: F.roi_pooling_2d(x, r, 3, 2, 0.5),
         (IMAGE, np.array([[0, 1, 1, 9, 8], [1, 0, 2, 6, 11]], np.float32))),
    Case("Unpooling2D", lambda x: F.unpooling_2d(x, 2, cover_all=False), (IMAGE,)),
]


def run(model: Any, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if model.opset_import[0].version >= 22 and any(n.op_type == "MaxRoiPool" for n in model.graph.node):
        # Nothing has the operator of opset 22, which is that of opset 1 for one more dtype.
        model = copy.deepcopy(model)
        model.opset_import[0].version = 21
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def other(x: Any) -> Any:
    """Other data of the same kind: what was traced must not be in the file."""
    return np.flip(x, -1).copy() if x.dtype.kind == "f" and x.shape[-1] != 5 else x


def verified(case: Case, opset: int) -> None:
    made: Any = kusari.onnx.export(case.call, list(case.inputs), opset_version=opset, train=case.train, verify=False)
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == opset and {node.domain for node in made.graph.node} == {""}
    inputs = [other(x) for x in case.inputs]
    expected: list[Any] = []
    with kusari.using_config("train", case.train):
        flatten(case.call(*[kusari.Variable(x, requires_grad=False) for x in inputs]), expected)
    actual = run(made, {f"Input_{i}": x for i, x in enumerate(inputs)})
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        if case.name == "Dropout":
            assert ((a == 0) | np.isclose(a, 2 * inputs[0])).all()
        else:
            np.testing.assert_allclose(a, e.array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_oldest_and_newest_opset(case: Case) -> None:
    verified(case, OLDEST)
    verified(case, NEWEST)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_opsets_between(case: Case) -> None:
    for opset in OPSETS[1:-1]:
        verified(case, opset)
