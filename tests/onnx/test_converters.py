"""Converters of one's own, with the API of ONNX-Chainer's; functions that count as one."""
from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def run(model: Any, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def ops(model: Any) -> list[str]:
    return [n.op_type for n in model.graph.node]


def test_external_converters() -> None:
    def convert(param: Any) -> Any:
        return onnx.helper.make_node("MyRelu", param.input_names, param.output_names, domain="my"),
    made = kusari.onnx.export(F.relu, X, external_converters={"ReLU": convert}, external_opset_imports={"my": 1})
    assert ops(made) == ["MyRelu"] and made.graph.node[0].domain == "my"
    assert {(i.domain, i.version) for i in made.opset_import} == {("", 18), ("my", 1)}


def test_converters_with_constants() -> None:
    def convert(param: Any) -> Any:
        two = param.context.add_const(np.array(2, np.float32), "two")
        return [onnx.helper.make_node("Mul", [param.input_names[0], two], ["half"]),
                onnx.helper.make_node("Neg", ["half"], param.output_names)]
    made = kusari.onnx.export(lambda x: F.exp(F.relu(x)), X, external_converters={"ReLU": convert}, verify=False)
    assert ops(made) == ["Mul", "Neg", "Exp"]
    np.testing.assert_allclose(run(made, Input_0=X)[0], np.exp(-2 * X), rtol=1e-5)


def test_functions_faked_as_one() -> None:
    @kusari.onnx.replace_func.as_funcnode("Scaled", rename_attributes=[(1, "scale")])
    def scaled(x: Any, a: float, shift: int = 0) -> Any:
        return F.tanh(x) * a + float(F.sum(x).array) * shift

    def convert(param: Any) -> Any:
        assert param.func.shift == 0
        scale = param.func.scale
        return onnx.helper.make_node("Scaled", param.input_names, param.output_names, domain="my", scale=scale)
    made = kusari.onnx.export(lambda x: F.relu(scaled(x, 2.0, shift=0)), X, external_converters={"Scaled": convert},
                              external_opset_imports={"my": 1})
    assert ops(made) == ["Scaled", "Relu"] and made.graph.node[0].attribute[0].f == 2
    np.testing.assert_allclose(scaled(X, 2.0).array, 2 * np.tanh(X), atol=1e-6)
    with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match="Scaled"):
        kusari.onnx.export(lambda x: scaled(x, 2.0), X)


class Mine(kusari.FunctionNode):
    """A user's function."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * self.scale,


def test_converters_that_build_several_nodes() -> None:
    def convert(param: Any) -> Any:
        builder = kusari.onnx.onnx_helper.GraphBuilder()
        scale = param.context.add_const(np.array(param.func.scale, np.float32), "scale")
        parts = builder.op("Split", param.input_names, 2, axis=1)
        whole = builder.op("Concat", list(parts), axis=1)
        assert builder.op_output_named("Neg", whole, "mine") == "mine"
        builder.op("Neg", ["mine"])
        builder.op("Mul", [builder.op("Identity", "mine"), scale])
        builder.op("Neg", [builder.nodes()[-1].output[0]])
        return builder.nodes(output_names=param.output_names)

    def model(x: Any) -> Any:
        return Mine(2.0).apply((Mine(3.0).apply((x,))[0],))[0]
    made = [kusari.onnx.export(model, X, external_converters={"Mine": convert}, opset_version=13) for _ in range(2)]
    assert made[0] == made[1]
    np.testing.assert_allclose(run(made[0], Input_0=X)[0], 6 * X, rtol=1e-6)
    with pytest.raises(ValueError, match="must have 2 outputs"):
        kusari.onnx.onnx_helper.GraphBuilder().nodes(["a", "b"])


@pytest.mark.parametrize(("call", "name", "value", "inputs"), [
    (lambda x: x + 2, "AddConstant", 2, 1), (lambda x: x - 2, "AddConstant", -2, 1),
    (lambda x: x * 2, "MulConstant", 2, 1), (lambda x: 2 - x, "SubFromConstant", 2, 1),
    (lambda x: x / 2, "MulConstant", 0.5, 1),
    (lambda x: 2 / x, "DivFromConstant", 2, 1), (lambda x: x ** 3, "PowVarConst", 3, 1),
    (lambda x: 2 ** x, "PowConstVar", 2, 1), (lambda x: x + x, "Add", None, 2), (lambda x: x / x, "Div", None, 2),
    (lambda x: -x, "Neg", None, 1), (abs, "Absolute", None, 1), (F.rsqrt, "RsqrtGPU", None, 1),
    (lambda x: F.max_pooling_2d(F.reshape(x, (1, 1, 5, 4)), 2), "MaxPooling2D", None, 1),
])
def test_functions_have_the_names_of_chainers_classes(call: Any, name: str, value: Any, inputs: int) -> None:
    seen: list[Any] = []

    def convert(param: Any) -> Any:
        seen.append(getattr(param.func, "value", None))
        assert len(param.input_names) == inputs
        return kusari.onnx.onnx_helper.make_node("Seen", param.input_names, param.output_names, domain="my"),
    made = kusari.onnx.export(call, abs(X) + 1, external_converters={name: convert}, external_opset_imports={"my": 1})
    assert "Seen" in ops(made) and seen == [value]


def test_what_the_context_knows() -> None:
    net = kusari.Sequential(L.Linear(4, 3), F.relu)
    told: dict[str, Any] = {}

    def convert(param: Any) -> Any:
        told.update(name=param.context.get_name(net[0].W), link=param.context.get_link(net[0].b),
                    none=param.context.get_link(kusari.Parameter()),
                    param=param.context.add_param(np.ones(3, "f"), "p"),
                    tensor=kusari.onnx.convert_parameter(net[0].W, param.context))
        with pytest.raises(kusari.onnx.ExportError, match="knows parameters of the model"):
            param.context.get_name(kusari.Variable(X))
        return kusari.onnx.functions.convert_ReLU(
            param.func, param.opset_version, param.input_names, param.output_names, param.context)
    made = kusari.onnx.export(net, X, external_converters={"ReLU": convert})
    assert ops(made)[:2] == ["Gemm", "Relu"]
    assert told["name"] == told["tensor"].name == "/0/W" and told["none"] is None and told["param"].startswith("const")
    assert told["link"] == ("/0", net[0])
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(told["tensor"]), net[0].W.array)


def test_converters_that_hand_over() -> None:
    def convert(param: Any) -> Any:
        return kusari.onnx.functions.convert_LogSoftmax(
            param.func, param.opset_version, param.input_names, param.output_names, param.context)
    for opset in (9, 18):  # written with several operators in the older one
        kusari.onnx.export(lambda x: F.log_softmax(x, axis=0), X, external_converters={"LogSoftmax": convert},
                           opset_version=opset)
    with pytest.raises(kusari.onnx.ExportError, match="Mine cannot be converted: it is a function of your own"):
        kusari.onnx.export(lambda x: Mine(2.0).apply((x,))[0], X, external_converters={"Mine": convert})
    with pytest.raises(AttributeError, match="has no attribute 'relu'"):
        assert kusari.onnx.functions.relu


@pytest.mark.parametrize("call", [
    lambda x: x + 1, lambda x: [x + 1, x + 2], lambda x: (x + 1,), lambda x: {"a": x + 1, "b": (x, x.array)}])
def test_functions_that_count_as_one_return_what_they_return(call: Any) -> None:
    kinds: list[Any] = []

    def model(x: Any) -> Any:
        tree = kusari.onnx.fake_as_funcnode(call, "Mine")(x)
        kinds.append(tree)
        return tree
    kusari.onnx.export(model, X, external_opset_imports={"my": 1}, external_converters={
        "Mine": lambda param: onnx.helper.make_node("Mine", param.input_names, param.output_names, domain="my")})
    outside = call(kusari.Variable(X))
    assert type(kinds[0]) is type(outside)
    if isinstance(outside, dict):
        assert kinds[0].keys() == outside.keys() and isinstance(kinds[0]["b"][1], kusari.Variable)


def test_defaults_are_attributes() -> None:
    @kusari.onnx.as_funcnode("Mine", rename_attributes=[(1, "value"), ("c", "y")])
    def mine(x: Any, a: Any, b: Any, c: Any = 1, d: Any = "array", *, e: Any = None) -> Any:
        return x * a + b

    def convert(param: Any) -> Any:
        seen.append({k: v for k, v in vars(param.func).items() if k in ("value", "arg2", "b", "y", "d", "e")})
        return onnx.helper.make_node("Mine", param.input_names, param.output_names, domain="my")
    seen: list[Any] = []
    for call in (lambda x: mine(x, 2.0, 3.0), lambda x: mine(x, 2.0, b=3.0, c=5), lambda x: mine(x, 2.0, 3.0, 4, d=6)):
        kusari.onnx.export(call, X, external_converters={"Mine": convert}, external_opset_imports={"my": 1})
    assert seen == [{"value": 2.0, "arg2": 3.0, "y": 1, "d": "array", "e": None},
                    {"value": 2.0, "b": 3.0, "y": 5, "d": "array", "e": None},
                    {"value": 2.0, "arg2": 3.0, "d": 6, "e": None}]


def test_own_operators_without_a_domain_only_warn() -> None:
    def convert(param: Any) -> Any:
        return onnx.helper.make_node("MyRelu", param.input_names, param.output_names),
    with pytest.warns(UserWarning, match="not valid ONNX"):
        made = kusari.onnx.export(F.relu, X, external_converters={"ReLU": convert})
    assert ops(made) == ["MyRelu"] and kusari.onnx.onnx_helper.is_support_non_standard_domain()


@pytest.mark.parametrize("shapes", [{"x": ("b", 3)}, [(1, 2)] * 3, ("b",) * 9])
def test_wrong_input_shapes_are_value_errors(shapes: Any) -> None:
    with pytest.raises(ValueError, match="input_shapes"):
        kusari.onnx.export(F.relu, X, input_shapes=shapes)
