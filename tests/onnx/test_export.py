"""Models exported: names, training mode, losses, static chains, determinism, files."""
from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from opsets import NEWEST, OPSETS

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari.onnx.versions import IR_VERSIONS


class Net(kusari.Chain):
    """A classifier with all that training and test do differently."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, 6)
            self.bn = L.BatchNormalization(6)
            self.l2 = L.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.l2(F.dropout(F.relu(self.bn(self.l1(x)))))


class Loss(kusari.Chain):
    """The loss and the accuracy of a static classifier, reported."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.net = Net()

    @kusari.static_graph
    def forward(self, x: Any, t: Any) -> Any:
        y = self.net(x)
        loss = F.softmax_cross_entropy(y, t)
        kusari.report({"loss": loss}, self)
        return {"loss": loss, "accuracy": F.accuracy(y, t)}


X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
T = np.array([0, 2, 1, 1, 0], np.int32)


def run(model: Any, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def inits(model: Any) -> dict[str, Any]:
    return {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}


def ops(model: Any) -> list[str]:
    return [n.op_type for n in model.graph.node]


def test_test_mode_uses_statistics_and_no_dropout() -> None:
    net = Net()
    made = kusari.onnx.export(net, X)
    assert ops(made) == ["Gemm", "BatchNormalization", "Relu", "Gemm"]
    assert set(inits(made)) == {
        "/l1/W", "/l1/b", "/l2/W", "/l2/b", "/bn/gamma", "/bn/beta", "/bn/avg_mean", "/bn/avg_var"}
    np.testing.assert_array_equal(inits(made)["/l1/W"], net.l1.W.array)
    with kusari.using_config("train", False):
        np.testing.assert_allclose(run(made, Input_0=X[::-1])[0], net(X[::-1]).array, atol=1e-5)


def test_training_mode_draws_and_leaves_the_model_alone() -> None:
    net = Net()
    net(X)
    mean, steps = net.bn.avg_mean.copy(), net.bn.N
    made = kusari.onnx.export(net, X, train=True)
    assert "Dropout" in ops(made) and "BatchNormalization" not in ops(made)
    np.testing.assert_array_equal(net.bn.avg_mean, mean)
    assert net.bn.N == steps


def test_batch_statistics_are_those_of_training() -> None:
    model = kusari.Sequential(L.Linear(4, 6), L.BatchNormalization(6))
    made = kusari.onnx.export(model, X, train=True)
    with kusari.using_config("train", True):
        np.testing.assert_allclose(run(made, Input_0=X * 3)[0], model(X * 3).array, atol=1e-5)


def test_a_static_loss_with_reports() -> None:
    made = kusari.onnx.export(Loss(), {"x": X, "t": T})
    assert [i.name for i in made.graph.input] == ["x", "t"]
    assert [o.name for o in made.graph.output] == ["loss", "accuracy"]
    assert "/net/l1/W" in inits(made)
    with kusari.Reporter() as reporter:
        kusari.onnx.export(Loss(), {"x": X, "t": T})
    assert not reporter.observation


def test_the_static_view_of_a_model() -> None:
    net = Loss()
    made = kusari.onnx.export(net.static, {"x": X, "t": T})
    assert "/net/l1/W" in inits(made)


def test_arrays_to_test_with() -> None:
    generator: Any = kusari.onnx.testing.input_generator
    np.testing.assert_array_equal(generator.increasing(2, 3), [[-1.5, -1, -0.5], [0, 0.5, 1]])
    np.testing.assert_array_equal(generator.increasing(3, dtype=np.int64), [-1, 0, 1])
    np.testing.assert_array_equal(generator.nonzero_increasing(2, bias=0.25), [-0.25, 0.25])
    np.testing.assert_array_equal(generator.positive_increasing(2, bias=0.25), [0.25, 0.75])
    assert generator.increasing(2, 3).dtype == generator.nonzero_increasing(2).dtype == np.float32
    with pytest.raises(ValueError, match="must be a floating-point type, got int32"):
        generator.nonzero_increasing(2, dtype=np.int32)


def test_a_train_step_with_its_gradients() -> None:
    net = kusari.Sequential(L.Linear(4, 6), F.tanh, L.Linear(6, 3))

    def step(x: Any, t: Any) -> Any:
        with kusari.using_config("enable_backprop", True):
            loss = F.softmax_cross_entropy(net(x), t)
            w, = kusari.grad([loss], [net[0].W])
        return loss, net[0].W - 0.1 * w
    made = kusari.onnx.export(step, [X, T])
    w = run(made, Input_0=X, Input_1=T)[1]
    net.cleargrads()
    F.softmax_cross_entropy(net(X), T).backward()
    np.testing.assert_allclose(w, net[0].W.array - 0.1 * net[0].W.grad, atol=1e-6)


def test_methods_and_functions_that_hold_links() -> None:
    net = Net()
    made = kusari.onnx.export(net.forward, X, train=True)
    assert "/l1/W" in inits(made)
    mean = net.bn.avg_mean.copy()
    made = kusari.onnx.export(lambda x: F.softmax(net(x)), X, output_names="Softmax_0", train=True)
    assert "/l2/W" in inits(made)
    np.testing.assert_array_equal(net.bn.avg_mean, mean)


def test_embeddings() -> None:
    made = kusari.onnx.export(L.EmbedID(5, 3), np.array([[0, 4], [2, 2]], np.int32))
    assert ops(made) == ["Gather"]
    kusari.onnx.export(L.EmbedID(5, 3, ignore_label=-1), np.array([[0, -1], [2, 2]], np.int32))


def test_a_parameter_used_twice_and_the_same_array_given_twice() -> None:
    link = L.Linear(4, 4)
    made = kusari.onnx.export(lambda x, y: link(x) - link(y), (X, X))
    assert [i.name for i in made.graph.input] == ["Input_0", "Input_1"]
    assert len(inits(made)) == 2
    np.testing.assert_allclose(run(made, Input_0=X, Input_1=X)[0], 0, atol=1e-6)


def test_outputs_that_are_inputs_parameters_or_one_value() -> None:
    link = L.Linear(4, 2)

    def model(x: Any) -> Any:
        y = link(x)
        return y, (x, link.b), y
    made = kusari.onnx.export(model, X)
    assert [o.name for o in made.graph.output] == [f"Output_{i}" for i in range(4)]
    a, b, c, d = run(made, Input_0=X)
    np.testing.assert_array_equal(a, d)
    np.testing.assert_array_equal(b, X)
    np.testing.assert_array_equal(c, link.b.array)


def test_names() -> None:
    made, inputs, outputs = kusari.onnx.export(
        lambda x, y: (x + y, x * y), (X, X), input_names=["left", "right"], output_names=["sum", "product"],
        return_named_inout=True)
    assert [i.name for i in made.graph.input] == list(inputs) == ["left", "right"]
    assert [o.name for o in made.graph.output] == list(outputs) == ["sum", "product"]
    np.testing.assert_array_equal(outputs["sum"].array, X + X)
    names = [n.name for n in made.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "function"), [
    ("dropout", F.dropout), ("zoneout", lambda x: F.zoneout(x, x * 2)), ("gaussian", lambda x: F.gaussian(x, x)),
    ("rrelu", F.rrelu), ("gumbel_softmax", F.gumbel_softmax),
    ("forget", lambda x: F.forget(lambda y: F.exp(y) * 2, x)),
], ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("train", [False, True], ids=["test", "train"])
def test_functions_that_draw(name: str, function: Any, train: bool) -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    kusari.onnx.export(function, X, train=train)
    drawn = (np.random.get_state()[1] != before).any() or np.random.get_state()[2] != 624  # type: ignore[index]
    assert drawn == (train and name != "forget" or name in ("gaussian", "gumbel_softmax"))  # the traced call, once


@pytest.mark.parametrize("function", [F.classification_summary, F.precision, F.recall, F.f1_score, F.accuracy])
def test_scores(function: Any) -> None:
    scores = np.eye(4, dtype=np.float32)[[0, 1, 1, 3, 0, 0]]
    kusari.onnx.export(function, (scores, np.array([0, 1, 2, 3, -1, 3], np.int32)))


def test_nodes_tell_their_line() -> None:
    made = kusari.onnx.export(kusari.Sequential(L.Linear(4, 2), lambda x: F.exp(x)), X)
    assert made.graph.node[1].doc_string.startswith("test_export.py:")


class Block(kusari.Chain):
    """A link in a link."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.net = Net()

    def forward(self, x: Any) -> Any:
        return F.exp(self.net(x))


@pytest.mark.parametrize("opset", [9, 18, NEWEST])
def test_nodes_tell_their_link(opset: int) -> None:
    def told(model: Any) -> list[tuple[str, ...]]:
        entries = [{p.key: p.value for p in n.metadata_props} for n in model.graph.node]
        return [(n.name, e.get("kusari.link", ""), e["kusari.function"])
                for n, e in zip(model.graph.node, entries, strict=True) if "kusari.function" in e]
    net = Block()
    made = kusari.onnx.export(net, X, opset_version=opset, dynamic_shapes={"Input_0": {0: "batch"}})
    assert told(made) == [
        ("/net/l1/Gemm_0", "/net/l1", "LinearFunction"), ("/net/bn/BatchNormalization_0", "/net/bn",
                                                          "FixedBatchNormalization"),
        ("/net/Relu_0", "/net", "ReLU"), ("/net/l2/Gemm_1", "/net/l2", "LinearFunction"), ("Exp_0", "/", "Exp")]
    made = kusari.onnx.export_gradient(net, X, opset_version=opset)
    assert {link for _, link, _ in told(made)} >= {"/net/l1", "/net/bn", "/net", "/net/l2", "/"}
    assert [link for _, link, _ in told(made) if link][-1] == "/net/l1"  # the gradient of the first comes last
    optimizer = kusari.optimizers.SGD().setup(net)
    made = kusari.onnx.export_train_step(net, lambda x: F.sum(net(x)), optimizer, X, opset_version=opset)
    assert [link for _, link, _ in told(made) if link][-1] == "/net/l1"
    assert made.graph.node[-1].doc_string == "optimizer"


def test_parameters_left_out_are_inputs() -> None:
    link = L.Linear(4, 2)
    made = kusari.onnx.export(link, X, export_params=False)
    assert [i.name for i in made.graph.input] == ["Input_0", "/W", "/b"]
    assert not made.graph.initializer
    y, = run(made, Input_0=X, **{"/W": link.W.array * 2, "/b": link.b.array})
    np.testing.assert_allclose(y, 2 * link(X).array, atol=1e-6)


@pytest.mark.parametrize("opset", OPSETS)
def test_opsets(opset: int) -> None:
    made = kusari.onnx.export(Net(), X, opset_version=opset)
    assert made.opset_import[0].version == opset and made.ir_version == IR_VERSIONS[opset]


def test_every_value_has_its_type() -> None:
    made = kusari.onnx.export(Net(), X, train=True)
    known = {v.name for v in [*made.graph.value_info, *made.graph.output]}
    assert {n for node in made.graph.node for n in node.output} <= known


def test_bytes_are_the_same_every_time(tmp_path: Path) -> None:
    net = Net()
    stream = io.BytesIO()
    kusari.onnx.export(net, X, tmp_path / "a.onnx", save_text=True)
    kusari.onnx.export(net, X, stream)
    kusari.onnx.export(net, X, os.fsencode(tmp_path / "a.onnx"))
    assert (tmp_path / "a.onnx").read_bytes() == stream.getvalue()
    assert "Gemm" in (tmp_path / "a.onnx.txt").read_text()
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "a.onnx.txt"]


@pytest.mark.parametrize("opset", [9, 18])
def test_arrays_without_elements(opset: int) -> None:
    x = np.zeros((2, 0), np.float32)
    made = kusari.onnx.export_gradient(lambda x: F.broadcast_to(F.sum(x, 1, keepdims=True), (2, 3)), x, inputs=True,
                                       opset_version=opset)
    assert run(made, Input_0=x)[1].shape == (2, 0)
    assert ops(kusari.onnx.export(F.squeeze, X, opset_version=opset)) == ["Identity"]
    kusari.onnx.export(lambda x: F.sum(x) + F.gaussian(F.sum(x), F.sum(x)), X, opset_version=opset)
    kusari.onnx.export_gradient(lambda x: F.sum(F.reshape(x[[]], (0, 1, 2))) + F.sum(F.diagonal(x, 5)), X[:, :2],
                                inputs=True, opset_version=opset)


def test_constants_from_outside_are_stored() -> None:
    shift = np.full((1, 4), 3, np.float32)
    made = kusari.onnx.export(lambda x: x + shift, X)
    np.testing.assert_array_equal(run(made, Input_0=X)[0], X + 3)


class Double(kusari.FunctionNode):
    """A user's function that says how it is exported."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def onnx(self, g: Any, x: str) -> Any:
        return g.Mul(x, g.const(np.array(2, g.type(x).dtype)))


def test_functions_of_the_user() -> None:
    made = kusari.onnx.export(lambda x: Double().apply((x,))[0], X)
    assert ops(made) == ["Mul"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions(dtype: Any) -> None:
    made = kusari.onnx.export(kusari.Sequential(F.softplus, F.softmax), X.astype(dtype))
    assert run(made, Input_0=X.astype(dtype))[0].dtype == dtype


INTS = np.array([-7, -1, 0, 3, 8], np.int64)
BY = np.array([2, -3, 5, -2, 3], np.int64)
BYTES = np.array([250, 3, 0, 128, 7], np.uint8)


@pytest.mark.parametrize(("name", "function", "arrays"), [
    ("floor of integers", lambda a, b: a // b, (INTS, BY)), ("modulo of integers", lambda a, b: a % b, (INTS, BY)),
    ("modulo of floats", lambda a, b: a % b, (INTS.astype("f"), BY.astype("f"))),
    ("small integers wrap", lambda a: a + a, (BYTES,)), ("integers divided", lambda a, b: a / b, (INTS, BY)),
    ("cast to int", lambda a: F.cast(a, "int32"), (INTS.astype("f"),)),
    ("cast to bool", lambda a: F.cast(a, "bool"), (INTS,)), ("powers", lambda a: a ** 3, (INTS,)),
], ids=lambda x: x if isinstance(x, str) else "")
def test_numpy_promotion(name: str, function: Any, arrays: Any) -> None:
    kusari.onnx.export(function, arrays)


class Masked(kusari.Chain):
    """Reads arrays of what it has computed, which have no gradient, and keeps one."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(4, 3, initial_bias=0.1)
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        h = F.tanh(self.fc(x))
        self.last = h.array * 2
        return F.sum(F.where(h.array > 0, h * h.array, h * np.ones_like(h.array)) * self.last)


@pytest.mark.parametrize("what", ["values", "batches", "gradients", "steps"])
def test_arrays_of_computed_variables(what: str) -> None:
    """They are values; verification compares them, and gradients, with define-by-run's."""
    model = Masked()
    if what == "values":
        made = kusari.onnx.export(model, X)
        np.testing.assert_allclose(run(made, Input_0=X[::-1])[0], model(X[::-1]).array, rtol=1e-4)
    elif what == "batches":
        kusari.onnx.export(model, X, dynamic_shapes={"Input_0": {0: "N"}})
    elif what == "gradients":
        kusari.onnx.export_gradient(model, X)
    else:
        kusari.onnx.export_train_step(model, model, kusari.optimizers.SGD().setup(model), (X,))
    assert type(model.last) is np.ndarray


def filled(x: Any) -> Any:
    h = F.exp(x)
    block = np.zeros((3, *h.shape[1:]), "f")
    block[1:] = h.array[:2]
    mask = np.ones_like(block)
    mask[block > 0.9] = 2
    mask *= block
    return mask, h[:3] * mask


@pytest.mark.parametrize("change", [None, "element", "outside"])
def test_arrays_that_are_filled(change: str | None) -> None:
    """They are values; computed elements of other arrays are refused."""
    table = np.ones((3, 4), "f")

    def model(x: Any) -> Any:
        if change == "outside":
            table[0] = F.exp(x).array[0]
            return F.exp(x) * table[:1]
        mask, y = filled(x)
        if change == "element":
            mask[0, 0] = np.exp(mask[0, 1])
        return y + mask
    if change is None:
        made = kusari.onnx.export(model, X)
        np.testing.assert_allclose(run(made, Input_0=X[::-1])[0], model(X[::-1]).array, rtol=1e-4)
        return
    with pytest.raises(kusari.onnx.ExportError, match="test_export.py"):
        kusari.onnx.export(model, X, verify=False)
