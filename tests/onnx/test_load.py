"""Models that are read from ONNX: they compute, train, compile and export as they did before."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from narrow_models import NARROW, data_of, models
from onnx import helper
from opsets import NEWEST

import kusari
import kusari.functions as F
import kusari.onnx
from kusari import Variable, gradient_check
from kusari.errors import KusariError
from kusari.static.trees import flatten


def exported(chain: Any, x: Any, opset: int = 18) -> bytes:
    file = io.BytesIO()
    with kusari.using_config("train", False):
        chain(x)
        kusari.onnx.export(chain, x, filename=file, opset_version=opset)
    return file.getvalue()


def one_node(operator: str, inputs: list[Any], outputs: int = 1, opset: int = 23, **attributes: Any) -> Any:
    """A model of one node; inputs that are None are left out, arrays of integers are constants."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for n, x in zip(names, inputs, strict=True) if x is not None and x.dtype.kind == "f"]
    constants = [onnx.numpy_helper.from_array(x, n) for n, x in zip(names, inputs, strict=True)
                 if x is not None and x.dtype.kind != "f"]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph([node], "one", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def outputs(y: Any) -> list[Any]:
    found: list[Any] = []
    flatten(y, found)
    return found


def assert_equal(expected: Any, found: Any) -> None:
    for y, z in zip(outputs(expected), outputs(found), strict=True):
        np.testing.assert_allclose(z.array, y.array, rtol=1e-4, atol=1e-5)


class Static(kusari.onnx.OnnxModel):
    forward = kusari.static_graph(kusari.onnx.OnnxModel.forward)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [9, 18, NEWEST])
@pytest.mark.parametrize("name", NARROW)
def test_a_model_comes_back(name: str, opset: int) -> None:
    np.random.seed(0)
    model, x = models.MODELS[name][0](**NARROW[name][0]), data_of(name, 2)
    with kusari.using_config("train", False):
        expected = model(x)
        loaded = kusari.onnx.load(exported(model, x, opset))
        assert_equal(expected, loaded(x))
        assert_equal(expected, kusari.onnx.load(exported(loaded, x))(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_a_loaded_model_compiles_and_trains(name: str) -> None:
    np.random.seed(0)
    model, x = models.MODELS[name][0](**NARROW[name][0]), data_of(name, 2)
    data = exported(model, x)
    loaded, static = kusari.onnx.load(data), Static(onnx.load_model_from_string(data))
    with kusari.using_config("train", False), warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing runs define-by-run
        for _ in range(3):
            for chain in (loaded, static):
                chain.cleargrads()
                sum(F.sum(y ** 2) for y in outputs(chain(x)) if y.dtype.kind == "f").backward()
            assert_equal(loaded(x), static(x))
    trained = 0
    for (path, p), (_, q) in zip(sorted(loaded.namedparams()), sorted(static.namedparams()), strict=True):
        assert (p.grad is None) == (q.grad is None), path
        if p.grad is not None:
            trained += 1
            scale = np.abs(p.grad).max()
            np.testing.assert_allclose(q.grad, p.grad, rtol=1e-3, atol=1e-4 * scale, err_msg=path)
    assert trained


def rand(*shape: int) -> Any:
    return np.random.RandomState(sum(shape)).uniform(-1, 1, shape)


def far(*shape: int) -> Any:
    """Numbers that are apart from each other, from -1, -0.5, 0, 0.5 and 1."""
    size = int(np.prod(shape))
    return ((np.random.RandomState(size).permutation(size) + 0.5) / size * 4 - 2.013).reshape(shape)


POSITIVE = abs(rand(2, 3, 4)) + 0.5
INT = np.int64
# The gradients of operators that are put together here, of float64: operator, inputs, attributes.
GRADIENTS: list[tuple[str, list[Any], dict[str, Any]]] = [
    *[(name, [far(3, 4)], {}) for name in (
        "Celu", "HardSigmoid", "HardSwish", "Softsign", "Swish", "Mish", "Gelu", "ThresholdedRelu", "LeakyRelu", "Elu",
        "Selu", "Softplus", "Erf", "Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Exp", "Cosh", "Identity")],
    ("Celu", [far(3, 4)], {"alpha": 2.0}), ("Gelu", [far(3, 4)], {"approximate": "tanh"}),
    ("Shrink", [far(3, 4)], {"bias": 0.3, "lambd": 0.55}),
    ("Reciprocal", [POSITIVE], {}), ("Log", [POSITIVE], {}), ("Sqrt", [POSITIVE], {}),
    ("PRelu", [far(2, 3, 4), rand(3, 1)], {}), ("Max", [far(3, 4), far(4) * 0.7, rand(3, 1)], {}),
    ("Pow", [POSITIVE, rand(3, 4)], {}), ("Pow", [rand(3, 4), np.array([3], INT)], {}),
    ("Div", [rand(3, 4), POSITIVE], {}), ("Sub", [rand(4), rand(3, 1)], {}), ("Mean", [rand(3, 4), rand(4)], {}),
    ("Where", [np.array([[True], [False]]), rand(2, 3), rand(3)], {}),
    ("MatMul", [rand(2, 1, 3, 4), rand(5, 4, 2)], {}), ("MatMul", [rand(2, 3, 4), rand(4, 5)], {}),
    ("MatMul", [rand(4), rand(2, 4, 3)], {}), ("MatMul", [rand(2, 3, 4), rand(4)], {}),
    ("Gemm", [rand(4, 3), rand(4, 5), rand(5)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [rand(3, 4), rand(5, 4), rand(5)], {"transB": 1}),
    ("Attention", [rand(2, 3, 4, 5), rand(2, 3, 6, 5), rand(2, 3, 6, 2), rand(4, 6)], {"scale": 0.7}),
    ("Attention", [rand(2, 4, 6), rand(2, 4, 6), rand(2, 4, 6)], {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}),
    ("Einsum", [rand(2, 3), rand(3, 4)], {"equation": "ij,jk->ki"}),
    ("Conv", [rand(1, 2, 5, 6), rand(4, 1, 3, 2), rand(4)], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", [rand(1, 2, 5), rand(3, 2, 3)], {"auto_pad": "SAME_LOWER", "dilations": [2]}),
    ("ConvTranspose", [rand(1, 2, 3, 3), rand(2, 2, 3, 3), rand(2)],
     {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
    ("ConvTranspose", [rand(1, 2, 3), rand(2, 1, 3)], {"strides": [2], "auto_pad": "SAME_UPPER"}),
    ("MaxPool", [far(1, 2, 6, 5)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 0, 1]}),
    ("AveragePool", [rand(1, 2, 6, 5)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1,
                                         "pads": [1, 0, 0, 1]}),
    ("AveragePool", [rand(1, 2, 6)], {"kernel_shape": [3], "pads": [1, 0], "count_include_pad": 1}),
    ("GlobalAveragePool", [rand(2, 3, 4)], {}), ("GlobalMaxPool", [far(2, 3, 4, 1)], {}),
    ("BatchNormalization", [rand(2, 3, 4), rand(3), rand(3), rand(3), POSITIVE[0, :, 0]], {}),
    ("InstanceNormalization", [rand(2, 3, 4), rand(3), rand(3)], {}),
    ("GroupNormalization", [rand(2, 4, 3), rand(4), rand(4)], {"num_groups": 2}),
    ("LayerNormalization", [rand(2, 3, 4), rand(3, 4), rand(3, 4)], {"axis": 1}),
    ("RMSNormalization", [rand(2, 3, 4), rand(4)], {}), ("LpNormalization", [POSITIVE], {"p": 1}),
    ("LpNormalization", [rand(3, 4)], {"axis": 0}),
    ("LRN", [rand(5, 5, 3, 1)], {"size": 3}), ("Softmax", [rand(2, 3, 4)], {"axis": 1}),
    *[(name, [POSITIVE, np.array([0, -1], INT)], {}) for name in (
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax")],
    ("ReduceMean", [POSITIVE], {"keepdims": 0}),
    ("CumSum", [rand(3, 4), np.array(1, INT)], {"reverse": 1}),
    ("Clip", [far(3, 4), np.array(-0.5), np.array(0.7)], {}),
    ("Gather", [rand(3, 4), np.array([[0, -1], [2, 0]], INT)], {"axis": 1}),
    ("GatherElements", [rand(3, 4), np.array([[0, -1, 2, 0]], INT)], {"axis": 0}),
    ("GatherND", [rand(3, 4), np.array([[0, -1], [2, 0]], INT)], {}),
    ("DepthToSpace", [rand(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [rand(1, 2, 4, 6)], {"blocksize": 2}), ("Trilu", [rand(2, 3, 4), np.array(1, INT)], {"upper": 0}),
    ("Pad", [rand(3, 4), np.array([1, 2, 0, 1], INT)], {}), ("Tile", [rand(2, 3), np.array([2, 3], INT)], {}),
    ("Slice", [rand(5, 6), np.array([-1, 4], INT), np.array([-9, 1], INT), np.array([1, 0], INT),
               np.array([-2, -1], INT)], {}),
    ("Expand", [rand(3, 1), np.array([2, 1, 4], INT)], {}), ("Concat", [rand(2, 3), rand(2, 1)], {"axis": -1}),
    ("Transpose", [rand(2, 3, 4)], {"perm": [1, 2, 0]}), ("Unsqueeze", [rand(3), np.array([0, -1], INT)], {}),
    ("RNN", [rand(4, 2, 3), rand(2, 5, 3), rand(2, 5, 5), rand(2, 10)],
     {"hidden_size": 5, "direction": "bidirectional"}),
    ("GRU", [rand(4, 2, 3), rand(1, 15, 3), rand(1, 15, 5)], {"hidden_size": 5, "linear_before_reset": 1}),
    ("GRU", [rand(4, 2, 3), rand(1, 15, 3), rand(1, 15, 5), rand(1, 30)], {"hidden_size": 5, "direction": "reverse"}),
    ("LSTM", [rand(4, 2, 3), rand(1, 20, 3), rand(1, 20, 5), rand(1, 40), None, rand(1, 2, 5), rand(1, 2, 5),
              rand(1, 15)], {"hidden_size": 5}),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes"), GRADIENTS, ids=[
    f"{i}-{name}" for i, (name, _, _) in enumerate(GRADIENTS)])
def test_values_and_gradients(operator: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    proto = one_node(operator, inputs, **attributes)
    model = kusari.onnx.load(proto)
    arrays = tuple([x for x in inputs if x is not None and x.dtype.kind == "f"])
    expected = onnx.reference.ReferenceEvaluator(proto).run(
        None, {v.name: x for v, x in zip(proto.graph.input, arrays, strict=True)})[0]
    y = model(*arrays)
    np.testing.assert_allclose(y.array, expected, rtol=1e-6, atol=1e-7)
    gy = np.random.RandomState(0).uniform(-1, 1, y.shape)
    gradient_check.check_backward(lambda *xs: model(*xs) + 0, arrays, gy, dtype=np.float64, rtol=1e-4, atol=1e-5)


def control(kind: str) -> Any:
    """Models of 2 x 3 numbers: the branch of a condition, three rounds of a loop, running sums by a scan."""
    def tensor(name: str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None)

    def flag(name: str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, ())
    node, graph = helper.make_node, helper.make_graph
    constants = [onnx.numpy_helper.from_array(np.array(x), name) for name, x in (("yes", True), ("three", 3))]
    if kind == "If":
        yes, no = (graph([node(op, ["x"], ["z"])], op, [], [tensor("z")]) for op in ("Tanh", "Exp"))
        nodes = [node("If", ["yes"], ["y"], then_branch=yes, else_branch=no)]
    elif kind == "Loop":
        body = graph([node("Mul", ["s", "x"], ["s2"]), node("Identity", ["go"], ["go2"])], "body",
                     [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ()), flag("go"), tensor("s")],
                     [flag("go2"), tensor("s2")])
        nodes = [node("Loop", ["three", "yes", "x"], ["y"], body=body)]
    else:
        body = graph([node("Add", ["s", "row"], ["s2"]), node("Tanh", ["s2"], ["t"])], "body",
                     [tensor("s"), tensor("row")], [tensor("s2"), tensor("t")])
        nodes = [node("ReduceMean", ["x"], ["zero"], keepdims=0),
                 node("Scan", ["zero", "x"], ["end", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                      scan_input_directions=[1])]
    return helper.make_model(graph(nodes, kind, [tensor("x")], [tensor("y")], constants),
                             opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_control_flow(kind: str) -> None:
    model, x = kusari.onnx.load(control(kind)), rand(2, 3)
    sums = np.cumsum(x[:, ::-1], 1).T + x.mean()
    expected = {"If": np.tanh(x), "Loop": x ** 4, "Scan": np.tanh(sums)}[kind]
    np.testing.assert_allclose(model(x).array, expected)
    gradient_check.check_backward(model, (x,), rand(*expected.shape), dtype=np.float64, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("operator", "shape", "attributes"), [
    ("Gather", (2,), {"axis": 0}), ("Gather", (2,), {"axis": 1}), ("GatherElements", (2, 4), {"axis": 0}),
    ("GatherND", (2, 1), {})])
def test_indices_change_between_calls(operator: str, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, (3, 4)),
             helper.make_tensor_value_info("i", onnx.TensorProto.INT64, shape)]
    proto = helper.make_model(helper.make_graph(
        [helper.make_node(operator, ["x", "i"], ["y"], **attributes)], "g", given,
        [helper.make_empty_tensor_value_info("y")]), opset_imports=[helper.make_opsetid("", 17)])
    eager, static, random = kusari.onnx.load(proto), Static(proto), np.random.RandomState(0)
    for _ in range(4):
        x, indices = random.rand(3, 4), random.randint(-3, 3, shape)
        np.testing.assert_array_equal(static(x, indices).array, eager(x, indices).array)


def test_a_power_without_end() -> None:
    model = kusari.onnx.load(one_node("Pow", [POSITIVE, np.array(np.inf)]))
    np.testing.assert_array_equal(model(POSITIVE, np.array(np.inf)).array, POSITIVE ** np.inf)


def test_names_statistics_and_constants() -> None:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("n", 2))
    arrays = {"/l.1/W": np.ones((2, 2), "f"), "class": np.zeros(2, "f"), "mean": np.zeros(2, "f"),
              "var": np.ones(2, "f"), "2nd": np.array([1, 2], "i")}
    nodes = [helper.make_node("MatMul", ["x", "/l.1/W"], ["h"]),
             helper.make_node("BatchNormalization", ["h", "class", "class", "mean", "var"], ["y"]),
             helper.make_node("Identity", ["2nd"], ["z"])]
    model = kusari.onnx.load(helper.make_model(helper.make_graph(
        nodes, "g", [given], [helper.make_empty_tensor_value_info(n) for n in "yz"],
        [onnx.numpy_helper.from_array(a, n) for n, a in arrays.items()])))
    assert model.names == {"l_1_W": "/l.1/W", "pclass": "class", "mean": "mean", "var": "var"}
    assert sorted(name for name, _ in model.namedparams()) == ["/l_1_W", "/pclass"]
    y, z = model(x=np.ones((3, 2), "f"))
    assert y.shape == (3, 2) and z.tolist() == [1, 2]
    copy = kusari.onnx.load(helper.make_model(helper.make_graph(
        nodes, "g", [given], [helper.make_empty_tensor_value_info(n) for n in "yz"],
        [onnx.numpy_helper.from_array(a + 1, n) for n, a in arrays.items()])))
    file = io.BytesIO()
    kusari.serializers.save_npz(file, model)
    file.seek(0)
    kusari.serializers.load_npz(file, copy)
    assert copy.mean.tolist() == [0, 0] and copy.l_1_W.array.tolist() == [[1, 1], [1, 1]]


def test_functions_of_the_model() -> None:
    inner = helper.make_function("mine", "Twice", ["a"], ["b"], [
        helper.make_node("Constant", [], ["c"], value_float=2.0), helper.make_node("Mul", ["a", "c"], ["b"])],
        [helper.make_opsetid("", 17)])
    outer = helper.make_function("mine", "Slope", ["a"], ["b"], [
        helper.make_node("Twice", ["a"], ["c"], domain="mine"),
        _referring(helper.make_node("LeakyRelu", ["c"], ["b"]))],
        [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], ["slope"])
    nodes = [helper.make_node("Slope", ["x"], ["h"], domain="mine", slope=0.5),
             helper.make_node("Slope", ["h"], ["y"], domain="mine", slope=0.25)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3,))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")]), functions=[inner, outer],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)])
    assert kusari.onnx.load(model)(np.array([-1, 0, 1], "f")).array.tolist() == [-0.5, 0, 4]


def _referring(node: Any) -> Any:
    node.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    return node


def test_operators_of_the_reference_compute_and_have_no_gradient() -> None:
    model = kusari.onnx.load(one_node("Det", [rand(2, 3, 3)]))
    x = Variable(rand(2, 3, 3))
    y = model(x)
    np.testing.assert_allclose(y.array, np.linalg.det(x.array))
    with pytest.raises(NotImplementedError, match=r"Det has no gradient here.*replace the operator"):
        F.sum(y).backward()


IMAGE = np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)


@pytest.mark.parametrize(("operator", "inputs", "results", "attributes"), [
    ("Hardmax", [IMAGE], 1, {"axis": 1}), ("TopK", [IMAGE, np.array([3])], 2, {"axis": 1}),
    ("Resize", [IMAGE, None, None, np.array([1, 3, 8, 8])], 1, {"mode": "cubic"}),
])
def test_operators_of_the_reference_export_as_they_were(
        operator: str, inputs: list[Any], results: int, attributes: dict[str, Any]) -> None:
    model = kusari.onnx.load(one_node(operator, inputs, results, 18, **attributes))
    again = onnx.load_model_from_string(exported(model, inputs[0]))
    node = again.graph.node[0]
    assert node.op_type == operator and {a.name for a in node.attribute} == set(attributes)
    assert [bool(name) for name in node.input] == [x is not None for x in inputs]
    assert_equal(model(inputs[0]), kusari.onnx.load(again)(inputs[0]))
    if operator == "Resize":
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match="another Resize than opset 18"):
            exported(model, inputs[0], 19)


def test_a_path_a_file_and_bytes(tmp_path: Path) -> None:
    proto, x = one_node("Tanh", [rand(2, 3)]), rand(2, 3)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), proto):
        np.testing.assert_allclose(kusari.onnx.load(source)(x).array, np.tanh(x))


@pytest.mark.parametrize("source", [b"no model", b"", "tests/onnx/test_load.py"])
def test_what_is_no_model_is_refused(source: Any) -> None:
    with pytest.raises(KusariError, match="this is no ONNX model"):
        kusari.onnx.load(source)


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((), {}, r"takes 1 inputs \(x0\), got 0; missing: x0"),
    ((rand(2), rand(2)), {}, r"got 2"),
    ((rand(2),), {"x0": rand(2)}, r"got 1 and x0"),
    ((), {"z": rand(2)}, r"missing: x0"),
    ((rand(2).astype("f"),), {}, r"input 'x0' of the model is of float64, got an array of float32"),
])
def test_wrong_inputs(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        kusari.onnx.load(one_node("Tanh", [rand(2)]))(*args, **kwargs)


GRADIENTS = """
<ir_version: 8, opset_import: ["": 15, "ai.onnx.preview.training": 1]>
graph (float[3] x, float[3] w) => (float[3] by_w, float[3] twice, float[3] by_h) {
    h = Mul (x, w)
    s = Sin (h)
    y = ReduceSum <keepdims = 0> (s)
    by_w = ai.onnx.preview.training.Gradient <xs = ["w"], zs = ["x"], y = "y"> (w, x)
    twice = ai.onnx.preview.training.Gradient <xs = ["w"], zs = ["x"], y = "by_w"> (w, x)
    by_h = ai.onnx.preview.training.Gradient <xs = ["h"], y = "y"> (x)
}
"""


@pytest.mark.parametrize("static", [False, True])
def test_gradients_that_a_model_computes(static: bool) -> None:
    model = kusari.onnx.load(onnx.parser.parse_model(GRADIENTS))
    call = kusari.static_graph(lambda x, w: model(x, w)) if static else model
    x, data = np.array([1, 2, 3], "f"), np.array([0.5, 0.2, 0.1], "f")
    for _ in range(3):
        w = Variable(data)
        by_w, twice, by_h = call(x, w)
        for found, expected in ((by_w, x * np.cos(x * data)), (twice, -x * x * np.sin(x * data)), (by_h, np.cos(x))):
            np.testing.assert_allclose(found.array, expected, rtol=1e-5, atol=1e-6)
        F.sum(by_w).backward()
        np.testing.assert_allclose(w.grad, -x * x * np.sin(x * data), rtol=1e-5)
    with kusari.no_backprop_mode():
        np.testing.assert_allclose(model(x, data)[0].array, x * np.cos(x * data), rtol=1e-5)
