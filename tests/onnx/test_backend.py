"""The package onnx's own tests of backends: operators, PyTorch's exports, simple models, of tensors of numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kusari.onnx.backend

# Expression of the names: the reason why they are left out.
LEFT_OUT = {
    "bernoulli": "draws without a seed, which are the reference's",
    "flexattention_(score_mod|prob_mod|causal_mask|soft_cap|relative_positional)$":
        "a graph inside an operator that is no control flow",
    "scan_sum$": "Scan of opset 8",
}
TWO_ULPS = {"float16": 2.0 ** -9, "bfloat16": 2.0 ** -6}
LEAST_CASES = {"node": 1800, "simple": 17, "pytorch-operator": 30, "pytorch-converted": 80}


def is_of_numbers(model: Any) -> bool:
    """Whether inputs and outputs are tensors, not of strings."""
    types = [v.type for v in (*model.graph.input, *model.graph.output)]
    return all(t.WhichOneof("value") == "tensor_type" and t.tensor_type.elem_type != onnx.TensorProto.STRING
               for t in types)


def array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def data_sets(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The inputs and the outputs of each data set of a case."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [*map(array, inputs)], [*map(array, outputs)]
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        def read(kind: str, folder: Path = folder) -> list[Any]:
            count = len(list(folder.glob(f"{kind}_*.pb")))
            return [array(onnx.TensorProto.FromString((folder / f"{kind}_{i}.pb").read_bytes())) for i in range(count)]
        yield read("input"), read("output")


def assert_similar(found: Any, expected: Any, case: Any) -> None:
    assert len(found) == len(expected)
    for y, z in zip(found, expected, strict=True):
        y, z = np.asarray(y), np.asarray(z)
        assert (y.dtype, y.shape) == (z.dtype, z.shape)
        ulps = TWO_ULPS.get(y.dtype.name, 0.0)
        if y.dtype.kind not in "fiubc":  # of the package ml_dtypes
            y, z = y.astype(np.float32), z.astype(np.float32)
        np.testing.assert_allclose(y, z, rtol=max(case.rtol, ulps), atol=max(case.atol, 1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAST_CASES)
def test_cases(kind: str) -> None:
    from onnx.backend.test.loader import load_model_tests
    count, failed = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind=kind):
            model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
            if not is_of_numbers(model) or any(re.search(name, case.name) for name in LEFT_OUT):
                continue
            count += 1
            try:
                prepared = kusari.onnx.backend.prepare(model)
                for inputs, expected in data_sets(case):
                    assert_similar(prepared.run(inputs), expected, case)
            except Exception as error:
                failed.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)
    assert count >= LEAST_CASES[kind]


def test_one_node_and_one_model() -> None:
    node, x = onnx.helper.make_node("Gemm", ["a", "b"], ["y"], transB=1), np.arange(6, dtype="f").reshape(2, 3)
    (y,) = kusari.onnx.backend.run_node(node, [x, x])
    np.testing.assert_array_equal(y, x @ x.T)
    assert kusari.onnx.backend.supports_device("CPU") and not kusari.onnx.backend.supports_device("CUDA:0")
