"""The models of ``examples/onnx_models.py``, narrow."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

_SPEC = importlib.util.spec_from_file_location(
    "onnx_models", Path(__file__).parents[1] / "examples" / "onnx_models.py")
assert _SPEC is not None and _SPEC.loader is not None
models: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(models)

# Name -> (arguments, shape of the input, an operator that must be there from opset 17 on).
NARROW: dict[str, tuple[dict[str, int], tuple[int, ...], str]] = {
    "mlp": ({"n_units": 20}, (1, 784), "Gemm"),
    "lenet": ({}, (1, 1, 28, 28), "AveragePool"),
    "vgg16": ({"width": 2, "n_units": 16, "n_out": 10, "size": 32}, (1, 3, 32, 32), "MaxPool"),
    "resnet50": ({"width": 2, "n_out": 10}, (1, 3, 33, 33), "BatchNormalization"),
    "language_model": ({"n_words": 30, "n_units": 6}, (1, 5), "LSTM"),
    "transformer": ({"n_units": 16, "n_heads": 2}, (1, 6, 16), "LayerNormalization"),
    "generator": ({"width": 8}, (1, 100), "ConvTranspose"),
    "vae": ({"n_units": 16}, (1, 784), "Exp"),
}


def data_of(name: str, batch: int) -> Any:
    """An input of a model: words or numbers."""
    dtype = models.MODELS[name][2]
    shape, random = (batch, *NARROW[name][1][1:]), np.random.RandomState(0)
    return random.randint(0, 30, shape).astype(dtype) if dtype == "int32" else random.uniform(0, 1, shape).astype(dtype)
