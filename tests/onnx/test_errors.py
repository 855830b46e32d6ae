"""What goes wrong says what, where, and what to do; and leaves nothing behind."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari.onnx import verify, versions

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class Secret(kusari.FunctionNode):
    """A user's function of which nothing is known."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,


class Wrong(kusari.FunctionNode):
    """A user's function whose ONNX form is another function."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def onnx(self, g: Any, x: str) -> Any:
        return g.Relu(x)


class Nearly(kusari.FunctionNode):
    """A user's function whose ONNX form is right to seven digits."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def onnx(self, g: Any, x: str) -> Any:
        return g.Mul(x, g.const(np.array(2.000001)))


@pytest.mark.parametrize("args", [X.tolist() * 50, {"x": X.tolist() * 50}, (["x"] * 50,)])
def test_arguments_without_an_array_are_shown_in_short(args: Any) -> None:
    with pytest.raises(kusari.onnx.ExportError, match=r"at least one array or Variable, got .*\.\.\.") as caught:
        kusari.onnx.export(L.Linear(4, 2), args)
    assert len(str(caught.value)) < 250


def test_arguments_of_pytorchs_export_are_named() -> None:
    with pytest.raises(TypeError, match="'dynamic_axes', which is PyTorch's; here: dynamic_shapes$"):
        kusari.onnx.export(F.relu, X, dynamic_axes={})  # pyright: ignore[reportCallIssue]


def test_all_unsupported_functions_are_listed() -> None:
    def model(x: Any) -> Any:
        y = Secret().apply((x,))[0]
        return F.relu(Secret().apply((y,))[0])
    with pytest.raises(kusari.onnx.UnsupportedFunctionsError) as caught:
        kusari.onnx.export(model, X)
    assert [label for label, _, _ in caught.value.functions] == ["Secret", "Secret"]
    for _, where, _ in caught.value.functions:
        assert where.startswith("test_errors.py:") and where in str(caught.value)
    assert "onnx(self, g, *inputs)" in str(caught.value)


def test_functions_that_no_output_needs_do_not_matter() -> None:
    def model(x: Any) -> Any:
        Secret().apply((x,))
        return F.relu(x)
    kusari.onnx.export(model, X)


def test_a_model_that_reads_data() -> None:
    def model(x: Any) -> Any:
        return x * float(F.sum(x).array)
    with pytest.raises(kusari.onnx.ExportError, match=r"test_errors\.py:\d+.*takes data out of the traced computation"):
        kusari.onnx.export(model, X)


def test_mismatch_names_the_output_and_the_error(tmp_path: Path) -> None:
    with pytest.raises(kusari.onnx.MismatchError, match="output 'Output_0' differs .* by up to 2 on"):
        kusari.onnx.export(lambda x: Wrong().apply((x,))[0], X, tmp_path / "x.onnx")
    assert os.listdir(tmp_path) == []
    kusari.onnx.export(lambda x: Wrong().apply((x,))[0], X, tmp_path / "x.onnx", verify=False)


def test_mismatch_names_the_nodes_that_differ() -> None:
    def model(x: Any) -> Any:
        y = F.tanh(x)
        y = Wrong().apply((y,))[0]  # here
        return F.exp(y), F.relu(x)
    lines = Path(__file__).read_text().splitlines()
    here = next(i for i, line in enumerate(lines, 1) if line.endswith("# here"))
    with pytest.raises(kusari.onnx.MismatchError) as caught:
        kusari.onnx.export(model, X)
    first, *lines = str(caught.value).splitlines()
    assert "output 'Output_0' differs" in first and first.endswith("the nodes that differ, in order:")
    assert [line.rpartition(":")[0] for line in lines] == [
        f"  test_errors.py:{here}: Wrong, as Relu 'Relu_0'", f"  test_errors.py:{here + 1}: Exp, as Exp 'Exp_0'"]
    assert lines[0].endswith(f"off by up to {2 * np.tanh(1):.3g}")


def test_mismatch_at_another_extent_in_training() -> None:
    net = kusari.Sequential(L.BatchNormalization(4), lambda x: Wrong().apply((x,))[0])
    with pytest.raises(kusari.onnx.MismatchError, match=r"in order:\n  test_errors.py:\d+: Wrong, as Relu"):
        kusari.onnx.export(net, X, train=True, input_shapes=("N", 4))


def test_random_data_find_what_the_given_miss() -> None:
    with pytest.raises(kusari.onnx.MismatchError, match="random data"):
        kusari.onnx.export(lambda x: Wrong().apply((x,))[0], X * 0)


@pytest.mark.parametrize("opset", [8, 27, "18", True, 18.0])
def test_unknown_opset(opset: Any) -> None:
    with pytest.raises(kusari.onnx.OpsetError, match="between 9 and 26"):
        kusari.onnx.export(F.relu, X, opset_version=opset)


class Gram(kusari.FunctionNode):
    """Products of all pairs of rows, with an operator that older opsets do not have and no other form."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] @ inputs[0].T,

    def onnx(self, g: Any, x: str) -> str:
        return g.Einsum(x, x, equation="ij,kj->ik")


def test_operator_that_is_newer_than_the_opset() -> None:
    with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match="opset 10 has no operator Einsum"):
        kusari.onnx.export(lambda x: Gram().apply((x,))[0], X, opset_version=10)


def test_unwritable_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "x.onnx", tmp_path):
        with pytest.raises(kusari.onnx.ExportFileError, match="^cannot write the ONNX file: .*: '.*'$") as caught:
            kusari.onnx.export(F.relu, X, path)
        assert caught.value.filename == str(path) and caught.value.errno
    assert os.listdir(tmp_path) == []
    with pytest.raises(kusari.onnx.ExportFileError, match="^filename must be a path or a binary file object, got int$"):
        kusari.onnx.export(F.relu, X, 3)


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(kusari.onnx.MissingExtraError, match=r"pip install kusari\[onnx\]"):
        kusari.onnx.export(F.relu, X)


def test_importing_needs_nothing() -> None:
    code = ("import sys; sys.modules['onnx'] = sys.modules['onnxruntime'] = None; import kusari.onnx\n"
            "assert kusari.onnx.export")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_onnxruntime_the_reference_evaluator_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "optional_runtime", lambda: None)
    kusari.onnx.export(L.Linear(4, 2), X)
    with pytest.raises(kusari.onnx.MismatchError):
        kusari.onnx.export(lambda x: Wrong().apply((x,))[0], X)


def test_what_onnxruntime_has_no_kernel_for() -> None:
    with pytest.warns(kusari.onnx.OnnxRuntimeWarning, match="Tan"):
        kusari.onnx.export(F.tan, X.astype(np.float64))
    with kusari.using_config("dtype", np.float64):
        layer = L.NStepGRU(1, 3, 2, 0.0)
    with pytest.warns(kusari.onnx.OnnxRuntimeWarning, match="GRU operator does not support double"):
        kusari.onnx.export(lambda x: layer(None, [x, x + 1])[1][0], np.ones((4, 3)))


def test_a_transposed_number_is_itself() -> None:
    kusari.onnx.export(lambda x: F.transpose(F.sum(x)) * 2, X)


def test_what_the_reference_evaluator_fails_on() -> None:
    x, w = np.ones((1, 4, 3, 3)), np.ones((4, 2, 2, 2))  # it takes no groups, and ONNX Runtime no float64
    with pytest.warns(kusari.onnx.OnnxRuntimeWarning, match="ConvTranspose|the reference evaluator fails"):
        kusari.onnx.export(lambda x, w: F.deconvolution_2d(x, w, groups=2), (x, w))


@pytest.mark.parametrize("opset", [9, 14])
def test_the_reference_evaluator_normalizes_batches(opset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "optional_runtime", lambda: None)
    kusari.onnx.export(L.BatchNormalization(4, initial_avg_mean=0.5), X, opset_version=opset)


def test_rounding_inside_counts() -> None:
    x = np.random.RandomState(0).randn(50, 40)
    kusari.onnx.export(lambda x: F.cast(F.sum(F.cast(x, np.float32) * 1e3), np.float64), x)
    with pytest.raises(kusari.onnx.MismatchError, match="where 2e-07 is allowed"):
        kusari.onnx.export(lambda x: Nearly().apply((x,))[0], X.astype(np.float64))


@pytest.mark.parametrize(("options", "message"), [
    ({"input_names": ["a", "b"]}, "input_names: expected 1 names, got 2"),
    ({"input_names": {"a": "b"}}, "input_names: a dict"),
    ({"output_names": []}, "output_names: expected 1 names"),
    ({"output_names": "/W"}, "'/W' is taken"),
    ({"input_names": "/W"}, "'/W' is the name of a parameter"),
    ({"output_names": "Input_0"}, "'Input_0' is taken"),
    ({"input_shapes": ("N",)}, "Input_0 has 2 axes"),
    ({"input_shapes": [(2, 4), (2, 4)]}, "expected 1 shapes, got 2"),
])
def test_names_and_shapes_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(kusari.onnx.ExportError, match=message):
        kusari.onnx.export(L.Linear(4, 2), X, **options)


@pytest.mark.parametrize("dtype", ["complex64", "longdouble", "object", "U1", "datetime64[s]", "bfloat16"])
def test_dtypes_that_cannot_be_exported(dtype: Any, tmp_path: Path) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.zeros((2, 2), kind)
    with pytest.raises(kusari.onnx.ExportError, match=r"argument 'Input_0' is of dtype .* cannot be exported; convert"):
        kusari.onnx.export(lambda x: x * 2, x, tmp_path / "x.onnx")
    assert os.listdir(tmp_path) == []


def test_a_cast_to_what_cannot_be_exported() -> None:
    with pytest.raises(kusari.onnx.ExportError, match=r"test_errors\.py:\d+.*array of dtype bfloat16"):
        kusari.onnx.export(lambda x: F.cast(x, ml_dtypes.bfloat16), X)


@pytest.mark.parametrize("model", [None, 3, kusari.Link(), "net"])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(kusari.onnx.ExportError, match="model must be a link with a forward, or another callable"):
        kusari.onnx.export(model, X)


def test_an_exception_of_the_model_leaves_nothing_behind(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        raise RuntimeError("mine")
    with pytest.raises(RuntimeError, match="mine"):
        kusari.onnx.export(model, X, tmp_path / "x.onnx")
    for options in ({"opset_version": 8}, {"param_dtype": "int4"}):
        with pytest.raises(kusari.onnx.ExportError):
            kusari.onnx.export(F.relu, X, tmp_path / "x.onnx", **options)
    assert os.listdir(tmp_path) == []
    kusari.onnx.export(L.Linear(4, 2), X, tmp_path / "x.onnx")  # nor does it stay in the thread


def test_a_model_without_outputs() -> None:
    with pytest.raises(kusari.onnx.ExportError, match="returns no Variable, but None"):
        kusari.onnx.export(lambda x: None, X)


def test_errors_belong_to_the_tree() -> None:
    for name in kusari.onnx.__all__:
        kind = getattr(kusari.onnx, name)
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, Warning):
            assert issubclass(kind, kusari.errors.KusariError)
    assert issubclass(kusari.onnx.MissingExtraError, ImportError) and issubclass(kusari.onnx.ExportFileError, OSError)
    assert versions.DEFAULT_OPSET in versions.IR_VERSIONS


def test_numpy_that_python_would_run() -> None:
    """A static function is split there; a file cannot be."""
    with pytest.raises(kusari.onnx.ExportError, match=r"test_errors\.py:\d+.*numpy\.roll takes data"):
        kusari.onnx.export(lambda x: F.relu(np.roll(x, 1)), np.ones((2, 3), "f"))
