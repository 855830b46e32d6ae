"""Exports in ONNX-Chainer's dialect: names, what the file has besides, and the package ``onnx_chainer``."""
from __future__ import annotations

import importlib
import inspect
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari.onnx import compat, onnx_helper, replace_func
from kusari.onnx.compat import export
from kusari.onnx.compat.export import RetainInputHook
from kusari.onnx.compat.export_testcase import export_testcase
from kusari.onnx.functions.converter import FunctionConverter
from kusari.onnx.functions.opset_version import support
from kusari.onnx.testing.get_test_data_set import gen_test_data_set
from kusari.onnx.testing.test_onnxruntime import check_model_expect

pytestmark = pytest.mark.filterwarnings("ignore:.* is experimental:FutureWarning")

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
CUBE = np.linspace(0.1, 1, 24, dtype=np.float32).reshape(2, 3, 4)


class Net(kusari.Chain):
    """A model whose ``call`` is given; ``unused`` has parameters that nothing reads."""

    def __init__(self, call: Any = None) -> None:
        super().__init__()
        self.call = call or (lambda net, x: net.l2(F.relu(net.l1(x))))
        with self.init_scope():
            self.l1, self.l2, self.bn = L.Linear(4, 4), L.Linear(4, 3), L.BatchNormalization(4)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self, *args, **kwargs)


def made(call: Any, *args: Any, **options: Any) -> Any:
    return export(kusari.Sequential(call), args, **options)


def names(protos: Any) -> list[str]:
    return [proto.name for proto in protos]


def outputs(model: Any) -> list[list[str]]:
    """The names of what nodes make, constants apart."""
    return [list(node.output) for node in model.graph.node if node.op_type != "Constant"]


def loaded(model: Any) -> Any:
    return kusari.onnx.load(model.SerializeToString())


@pytest.fixture(name="_installed")
def installed() -> Iterator[None]:
    kusari.compat.install()
    yield
    kusari.compat.uninstall()


def test_parameters_functions_and_outputs() -> None:
    model = export(Net(), X)
    assert outputs(model) == [["LinearFunction_0"], ["ReLU_0"], ["LinearFunction_1"]]
    assert names(model.graph.node) == ["LinearFunction_0", "ReLU_0", "LinearFunction_1"]
    assert list(model.graph.node[0].input) == ["Input_0", "param_l1_W", "param_l1_b"]
    assert names(model.graph.output) == ["LinearFunction_1"] and model.opset_import[0].version == 11
    # Parameters that nothing reads are there, too.
    assert {"param_bn_gamma", "param_bn_beta"} <= set(names(model.graph.initializer))
    assert names(kusari.onnx.export(Net(), X).graph.output) == ["Output_0"]
    without = export(Net(), X, export_params=False).graph
    assert not without.initializer and "param_bn_gamma" in names(without.input)


@pytest.mark.parametrize(("call", "expected"), [
    (lambda x: F.sigmoid(x) + F.sigmoid(F.relu(x)), "Sigmoid_0 ReLU_0 Sigmoid_1 Add_0"),
    # Chainer goes back from the result, and numbers what it finds from the end.
    (lambda x: (x + 1) * 2 / (x - 3) ** 2, "AddConstant_1 MulConstant_0 AddConstant_0 PowVarConst_0 Div_0"),
    (lambda x: F.split_axis(x, 2, 1), "SplitAxis_0_0 SplitAxis_0_1"),
    (lambda x: F.reshape(F.swapaxes(x, 0, 1), (8,)), "Swapaxes_0 Reshape_0"),
    (lambda x: x[:, [0, 1]], "GetItem_0"), (lambda x: F.vstack([x, x]), "Vstack_0"),
    (lambda x: F.transpose_sequence([x, x]), "TransposeSequence_0_0 TransposeSequence_0_1"),
    (lambda x: F.tile(x, 2), "Tile_0"), (lambda x: F.relu(F.tile(x, 1)), "Tile_0 ReLU_0"),
    (lambda x: F.normalize(x), "NormalizeL2_0"), (lambda x: F.prelu(x, np.ones(4, "f")), "PReLUFunction_0"),
    (lambda x: F.relu(F.copy(x, -1)), "Copy_0 ReLU_0"),
    (lambda x: F.max_pooling_nd(F.reshape(x, (1, 1, 8)), 2), "Reshape_0 MaxPoolingND_0"),
])
def test_functions_are_numbered_by_class(call: Any, expected: str) -> None:
    assert [name for each in outputs(made(call, X)) for name in each if "_tmp" not in name] == expected.split()


def test_constants_are_nodes_and_arrays_are_initializers() -> None:
    graph = made(lambda x: F.reshape(x, (8,)) + np.ones(8, "f"), X).graph
    assert [node.op_type for node in graph.node] == ["Constant", "Reshape", "Add"]
    assert list(graph.node[0].output) == ["Reshape_0_const_0"] and names(graph.node)[:2] == ["Reshape_0", "Reshape_0"]
    assert names(graph.initializer) == ["v_0"]


@pytest.mark.parametrize(("call", "expected"), [
    (lambda x: x, ["Identity_0"]), (lambda x: (F.relu(x), x), ["ReLU_0", "Identity_0"]),
    (lambda x: {"b": F.relu(x), "a": F.tanh(x)}, ["ReLU_0", "Tanh_0"]),
])
def test_outputs_are_called_as_what_makes_them(call: Any, expected: list[str]) -> None:
    assert names(made(call, X).graph.output) == expected
    assert names(export(Net(lambda net, x: F.relu(x)), {"x": X}).graph.input)[0] == "Input_0"
    wished = made(call, X, output_names=[f"y{i}" for i in range(len(expected))])
    assert names(wished.graph.output) == [f"y{i}" for i in range(len(expected))]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_gamma": False}, {"use_beta": False}])
def test_statistics_of_batch_normalization(train: bool, options: dict[str, Any]) -> None:
    model = export(kusari.Sequential(L.BatchNormalization(4, **options)), X, train=train)
    assert len(model.graph.initializer) == 4
    assert {"param_0_avg_mean", "param_0_avg_var"} <= set(names(model.graph.initializer))
    assert names(model.graph.output) == ["BatchNormalization_0" if train else "FixedBatchNormalization_0"]


def test_statistics_that_no_link_has() -> None:
    ones, zeros = np.ones(4, "f"), np.zeros(4, "f")
    model = made(lambda x: F.batch_normalization(x, ones, zeros), X)
    found = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    np.testing.assert_allclose(found["BatchNormalization_0_param_avg_mean"], X.mean(0), rtol=1e-6)
    model = made(lambda x: F.fixed_batch_normalization(x, ones, zeros, ones * 3, ones * 2), X)
    assert "FixedBatchNormalization_0_param_avg_var" in names(model.graph.initializer)


def test_data_that_are_read_are_constants() -> None:
    def call(x: Any) -> Any:
        return F.relu(x) * float(x.array.var())
    with pytest.warns(UserWarning, match="constants in the file, as these arguments make them"):
        model = made(call, X)
    np.testing.assert_allclose(loaded(model)(-X).array, F.relu(-X).array * X.var(), rtol=1e-5)
    with pytest.raises(kusari.onnx.ExportError, match="takes data out|reads elements"):
        kusari.onnx.export(call, X)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda x: x.array, RuntimeError, "Unexpected output type"), (lambda x: (x, x.array), ValueError, "Variable"),
    (lambda x: ([x],), ValueError, "must be Chainer Variable"),
    (lambda x: x[:, [0, 1], [0, 1]], ValueError, "must come first"),
    (lambda x: x[[0, 1], 0, [0, 1]], ValueError, "must come first"),
])
def test_what_it_refuses(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(call, CUBE)


@pytest.mark.parametrize("call", [lambda x: x[0, [0, 1], [0, 1]], lambda x: x[[0, 1], [0, 1], ::2],
                                  lambda x: F.permutate(x, np.array([1, 0], "i"), inv=True)])
def test_indices_that_it_takes(call: Any) -> None:
    np.testing.assert_allclose(loaded(made(call, CUBE))(CUBE).array, call(kusari.Variable(CUBE)).array)


@pytest.mark.parametrize("opset", [9, 11, 18])
def test_inverses_of_permutations_that_are_arguments(opset: int) -> None:
    order = np.array([2, 0, 1], np.int32)
    model = made(lambda x, t: F.permutate(x, t, axis=1, inv=True), CUBE, order, opset_version=opset)
    assert model.graph.output[0].name == "Permutate_0"


def test_names_that_differ_in_extent() -> None:
    model = export(Net(lambda net, x, y: F.vstack([x, y])), (X, X[:1]), input_shapes=[("b", 4), ("b", 4)])
    assert [i.type.tensor_type.shape.dim[0].dim_param for i in model.graph.input] == ["b", "b"]
    with pytest.raises(kusari.onnx.InputShapesError, match="must be one extent"):
        kusari.onnx.export(lambda x, y: F.vstack([x, y]), (X, X[:1]), input_shapes=[("b", 4), ("b", 4)])


def test_converters_see_names_of_functions() -> None:
    told: dict[str, Any] = {}

    def convert(param: Any) -> Any:
        context, builder = param.context, onnx_helper.GraphBuilder()
        told[onnx_helper.get_func_name()] = param.output_names
        two = context.add_const(np.array(2, "f"), "two")
        told["data"] = context.add_param(np.array(3, "f"), "three"), context.add_param(X, "mine", True)
        own = np.zeros(3)
        context.set_name(own, "free")
        context.set_name(own, "fixed", pinned=True)
        told["pinned"] = context.get_name(own), context.is_pinned(own), context.is_pinned(X)
        with pytest.raises(kusari.onnx.ExportError, match="pinned"):
            context.set_name(own, "other")
        return builder.nodes() if builder.op_output_named(
            "Add", [builder.op("Mul", [param.input_names[0], two]), told["data"][0]], param.output_names) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(lambda x: F.relu(F.relu(x)), X, external_converters={"ReLU": convert})
    assert told["ReLU_0"] == ["ReLU_0"] and told["ReLU_1"] == ["ReLU_1"] and told["pinned"] == ("fixed", True, False)
    assert told["data"] == ("ReLU_1_param_three", "mine")
    assert outputs(model) == [["ReLU_0_tmp_0"], ["ReLU_0"], ["ReLU_1_tmp_0"], ["ReLU_1"]]
    assert [n.name for n in model.graph.node if n.op_type == "Constant"] == ["ReLU_0", "ReLU_1"]
    assert {"ReLU_0_param_three", "ReLU_1_param_three"} <= set(names(model.graph.initializer))


def test_converters_for_some_opsets() -> None:
    @support((6, 9))
    def convert(func: Any, opset_version: int, inputs: Any, outputs: Any, context: Any) -> Any:
        return onnx_helper.make_node({6: "Tanh", 9: "Relu"}[opset_version], inputs, outputs),
    model = made(F.relu, X, external_converters={"ReLU": FunctionConverter(convert)})
    assert [node.op_type for node in model.graph.node] == ["Relu"]
    with pytest.raises(kusari.onnx.ExportError, match="only from 12 on"):
        made(F.relu, X, external_converters={"ReLU": FunctionConverter(support((12,))(convert))})


def test_converters_of_functions_that_are_composed_here() -> None:
    seen: list[Any] = []

    def convert(param: Any) -> Any:
        seen.append((param.func.axis, param.func.inv, param.func.indices.tolist(), param.input_names,
                     param.context.get_name(param.func.indices)))
        return onnx_helper.make_node("Identity", param.input_names, param.output_names),
    with pytest.warns(UserWarning, match="differs from define-by-run"):
        made(lambda x, t: F.permutate(x, t), X, np.array([1, 0], "i"), external_converters={"Permutate": convert})
    assert seen[0] == (0, False, [1, 0], ["Input_0"], "Input_1")


@pytest.mark.parametrize(("name", "function", "arguments", "operators"), [
    ("Add", lambda x, y: x.array + y.array, (X, X), ["Add"]),
    ("AddConstant", lambda x, value=0.5, name="n", label=1: x.array + value, (X,), ["Constant", "Add"]),
    ("Transpose", lambda x, axes=(1, 0): x.array.T, (X,), ["Transpose"]),
    ("Reshape", lambda x, shape: F.reshape(x, tuple(shape.array)), (X, np.array([4, 2])), ["Reshape"]),
])
def test_faked_functions_are_those_of_their_names(
        name: str, function: Any, arguments: Any, operators: list[str]) -> None:
    faked = replace_func.fake_as_funcnode(function, name)
    model = made(faked, *arguments)
    assert [node.op_type for node in model.graph.node] == operators and names(model.graph.output) == [f"{name}_0"]


def test_structures_of_results() -> None:
    @replace_func.as_funcnode("xF")
    def several(x: Any) -> Any:
        return {"a": (x, x + 1), "b": [x + 2, x + 3]}

    def convert(param: Any) -> Any:
        return onnx_helper.make_node("xF", param.input_names, param.output_names, domain="d"),
    model = made(lambda x: (lambda y: y["a"][0] + y["b"][1])(several(x)), X, external_converters={"xF": convert},
                 external_opset_imports={"d": 1})
    assert outputs(model) == [[f"xF_0_{i}" for i in range(4)], ["Add_0"]] and model.graph.node[0].name == "xF_0"


@pytest.mark.parametrize(("name", "call"), [
    ("external_converters", lambda: made(F.relu, X, external_converters={"Tanh": lambda param: ()})),
    ("external_opset_imports", lambda: made(F.relu, X, external_opset_imports={"d": 1})),
    ("return_named_inout", lambda: made(F.relu, X, return_named_inout=True)),
    ("as_funcnode", lambda: compat.replace_func.as_funcnode("Mine")(F.relu)),
])
def test_what_is_experimental(name: str, call: Any) -> None:
    with pytest.warns(FutureWarning, match=f"{name} is experimental"):
        call()


@pytest.mark.parametrize(("call", "message"), [
    (lambda net, x: F.resize_images(x, (4, 4)), "corners aligned"),
    (lambda net, x: F.roi_pooling_2d(x, np.array([[0, 0, 0, 1, 1]], "f"), 1, 1, 1.0), "MaxRoiPool"),
    (lambda net, x: F.relu(x), "/late/W"),
])
def test_what_it_warns_of(call: Any, message: str) -> None:
    net = Net(call)
    if "/late" in message:
        with net.init_scope():
            net.late = L.Linear(None, 2)
    with pytest.warns(UserWarning, match=message):
        export(net, np.ones((1, 1, 2, 2), "f"))


def test_test_cases_with_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = gen_test_data_set(Net(), X, "net", 11, output_grad=True)
    check_model_expect(path, ["Input_0"])
    folder = Path(path) / "test_data_set_0"
    found = {onnx.load_tensor(os.fspath(f)).name for f in folder.glob("gradient_*.pb")}
    assert found == {"param_l1_W", "param_l1_b", "param_l2_W", "param_l2_b"}
    onnx_helper.write_tensor_pb(folder / "output_0.pb", "", np.zeros((2, 3), "f"))
    with pytest.raises(AssertionError, match="LinearFunction_1"):
        check_model_expect(path)
    with pytest.raises(AssertionError, match="inputs are"):
        check_model_expect(path, ["x"])


def test_a_file_of_the_dialect_is_read_and_exported_again() -> None:
    net = Net(lambda net, x: F.reshape(net.l2(net.bn(net.l1(x))), (6,)) * 2)
    model = loaded(export(net, X))
    with kusari.using_config("train", False):
        np.testing.assert_allclose(model(X).array, net(X).array, atol=1e-5)
        assert "param_l1_W" in model.names.values()
        again = loaded(export(model, X))
        np.testing.assert_allclose(again(X).array, net(X).array, atol=1e-5)


@pytest.mark.parametrize(("kind", "expected"), [("argument", 0), ("variable", 1), ("twice", 1), ("array", 1)])
def test_retained_inputs(kind: str, expected: int) -> None:
    def call(net: Any, x: Any) -> Any:
        inner = {"argument": x, "array": np.ones((2, 4), "f")}.get(kind, kusari.Variable(np.ones((2, 4), "f")))
        return x + inner + inner if kind == "twice" else F.relu(x) * inner
    with RetainInputHook() as hook:
        Net(call)(kusari.Variable(X))
    assert len(hook.retain_inputs) == expected
    assert kusari.FunctionNode.apply.__qualname__ == "FunctionNode.apply"


def test_exporting_without_a_test_case_is_deprecated(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="export_testcase"):
        export(Net(), X, tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(Net(), X, tmp_path / "model.onnx", no_testcase=True)


@pytest.mark.usefixtures("_installed")
def test_modules_that_are_functions() -> None:
    module = importlib.import_module("onnx_chainer")
    assert module.MINIMUM_OPSET_VERSION == 9 and module.MAXIMUM_OPSET_VERSION == 11
    for name in ("export", "export_testcase"):
        inner = importlib.import_module(f"onnx_chainer.{name}")
        assert getattr(module, name) is inner and callable(inner) and callable(getattr(inner, name))
    assert "external_converters" in inspect.signature(module.export).parameters
    assert importlib.import_module("onnx_chainer.export").RetainInputHook is RetainInputHook
    assert importlib.import_module("onnx_chainer.replace_func").as_funcnode is compat.replace_func.as_funcnode
    assert importlib.import_module("onnx_chainer.testing.input_generator").increasing(1) == 0
    assert compat.onnx_helper.cleanse_param_name("/l1/W") == "param_l1_W" and callable(export_testcase)
