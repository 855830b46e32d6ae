"""Operators that newer opsets have, and what older ones say instead; parameters in half the bytes."""
from __future__ import annotations

import io
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from functions.table import draw
from opsets import OPSETS

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = draw(2, 6, 4, 4)
Q, K, V = draw(2, 3, 4, 8), draw(2, 3, 7, 8, seed=1), draw(2, 3, 7, 5, seed=2)
MASK = np.where(draw(4, 7) > 0, 0, -1e9).astype(np.float32)
GAMMA, BETA = draw(6), draw(6, seed=1)


def attention(q: Any, k: Any, v: Any, *mask: Any) -> Any:
    scores = F.matmul(q, k, transb=True) / q.shape[-1] ** 0.5
    for m in mask:
        scores = scores + F.broadcast_to(m, scores.shape) if len(m.shape) < 4 else scores + m
    return F.matmul(F.softmax(scores, axis=3), v)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1.0 + F.erf(x / math.sqrt(2)))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


# What, arguments, the operator, the first opset with it. The export itself compares with define-by-run.
CASES: dict[str, tuple[Any, tuple[Any, ...], str, int]] = {
    "layer normalization": (F.layer_normalization, (X[:, :, 0, 0], GAMMA, BETA), "LayerNormalization", 17),
    "gelu": (gelu, (X,), "Gelu", 20),
    "gelu, other order": (lambda x: 0.5 * (x * (F.erf(x * 0.5 ** 0.5) + 1)), (X,), "Gelu", 20),
    "gelu by tanh": (gelu_tanh, (X,), "Gelu", 20),
    "group normalization": (lambda x, a, b: F.group_normalization(x, 3, a, b), (X, GAMMA, BETA),
                            "GroupNormalization", 21),
    "attention": (attention, (Q, K, V), "Attention", 23),
    "attention with a mask": (attention, (Q, K, V, MASK), "Attention", 23),
    "attention with a mask for all": (attention, (Q, K, V, MASK[None, None] * np.ones((2, 1, 1, 1), "f")),
                                      "Attention", 23),
    "local response normalization": (F.local_response_normalization, (X,), "LRN", 9),
    "softplus": (lambda x: F.softplus(x, 2.0), (X,), "Softplus", 9),
    "clip": (lambda x: F.clip(x, -1.0, 0.5), (X,), "Clip", 9),
}


def ops(model: Any) -> list[str]:
    return [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("name", CASES)
def test_one_operator_from_its_opset_on(name: str) -> None:
    call, arrays, operator, since = CASES[name]
    for opset in sorted({9, max(since - 1, 9), since, 26} & {*OPSETS}):
        found = ops(kusari.onnx.export(call, list(arrays), opset_version=opset))
        assert found.count(operator) == (opset >= since), (opset, found)
        assert opset < since or "Softmax" not in found and "Erf" not in found and "Tanh" not in found


@pytest.mark.parametrize("call", [
    lambda x: x * 0.5 * (1.0 + F.erf(x / 1.5)), lambda x: x * 0.4 * (1.0 + F.erf(x / math.sqrt(2))),
    lambda x: F.exp(x) * 0.5 * (1.0 + F.erf(x / math.sqrt(2))),
    lambda x: 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * (x + 0.05 * x ** 3))),
])
def test_what_is_nearly_gelu_is_none(call: Any) -> None:
    assert "Gelu" not in ops(kusari.onnx.export(call, X, opset_version=20))


@pytest.mark.parametrize("call", [
    lambda q, k, v: F.matmul(F.softmax(F.matmul(q, k, transb=True), axis=2), v),  # over queries
    lambda q, k, v: F.matmul(F.softmax(F.exp(F.matmul(q, k, transb=True)), axis=3), v),
])
def test_what_is_nearly_attention_is_none(call: Any) -> None:
    assert "Attention" not in ops(kusari.onnx.export(call, [Q, K, V], opset_version=23))


def test_what_is_read_elsewhere_stays() -> None:
    def both(x: Any) -> Any:
        curve = F.erf(x / math.sqrt(2))
        return x * 0.5 * (1.0 + curve), curve
    assert sorted(ops(kusari.onnx.export(both, X, opset_version=20))) == ["Div", "Erf", "Gelu"]


def test_gradients_keep_to_what_they_are_made_of() -> None:
    made = kusari.onnx.export_gradient(lambda x: F.sum(gelu(F.group_normalization(x, 3, GAMMA, BETA))), X, inputs=True,
                                       opset_version=23)
    assert "GroupNormalization" not in ops(made)


def run(model: Any, x: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"Input_0": x})[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", np.float16, ml_dtypes.bfloat16])
def test_parameters_in_half_the_bytes(dtype: Any) -> None:
    net = kusari.Sequential(L.Linear(16, 64), F.relu, L.BatchNormalization(64), L.Linear(64, 3))
    before = [p.array.copy() for p in net.params()]
    x = draw(4, 16)
    plain = kusari.onnx.export(net, x)
    made = kusari.onnx.export(net, x, param_dtype=dtype, dynamic_shapes={"Input_0": {0: "batch"}}, opset_version=18)
    for p, array in zip(net.params(), before, strict=True):
        np.testing.assert_array_equal(p.array, array)
    stored = {t.name: t for t in made.graph.initializer}
    assert len(stored["/0/W"].raw_data) == 2 * 64 * 16 and len(stored["/2/avg_mean"].raw_data) == 4 * 64
    assert made.ByteSize() < 0.7 * plain.ByteSize()
    np.testing.assert_allclose(run(made, x[:3]), run(plain, x)[:3], atol=0.05)
    names = {i.name: i.type.tensor_type.elem_type for i in [*made.graph.input, *made.graph.output]}
    assert set(names.values()) == {onnx.TensorProto.FLOAT}
    stream = io.BytesIO()
    kusari.onnx.export(net, x, stream, param_dtype=dtype)
    onnx.checker.check_model(stream.getvalue(), full_check=True)


def test_parameters_that_do_not_fit() -> None:
    link = L.Linear(2, 2, initial_bias=1e6)
    with pytest.raises(kusari.onnx.ExportError, match=r"/b has values up to 1e\+06, too great for float16"):
        kusari.onnx.export(link, draw(1, 2), param_dtype="float16")
    kusari.onnx.export(link, draw(1, 2), param_dtype="bfloat16")
    with pytest.raises(kusari.onnx.ExportError, match="param_dtype must be 'float16' or 'bfloat16', got 'int8'"):
        kusari.onnx.export(link, draw(1, 2), param_dtype="int8")
    with pytest.raises(kusari.onnx.OpsetError, match="bfloat16 can be cast from opset 13 on, got 12"):
        kusari.onnx.export(link, draw(1, 2), param_dtype="bfloat16", opset_version=12)


class Tied(kusari.Chain):
    """One matrix for reading and writing words."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(10, 4)
            self.out = L.Linear(4, 10, nobias=True)
            self.out.W = self.embed.W

    def forward(self, words: Any) -> Any:
        return self.out(self.embed(words))


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_tied_parameters_are_one_array(dtype: Any) -> None:
    made = kusari.onnx.export(Tied(), np.array([1, 9], np.int32), param_dtype=dtype)
    assert [t.name for t in made.graph.initializer] == ["/embed/W"]
