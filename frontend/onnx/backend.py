"""Kusari as a backend of the package ``onnx``: the functions of ``onnx.backend.base.Backend``, on the CPU.

``onnx.backend.test.BackendTest(kusari.onnx.backend, __name__)`` judges it.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..configuration import using_config
from ..variable import Variable
from .importer import OnnxModel
from .versions import require_onnx

__all__ = ["BackendModel", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class BackendModel:
    """A model that is ready to run."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs as arrays, for inputs in order or by name."""
        with using_config("train", False), using_config("enable_backprop", False):
            found = self.model(**inputs) if isinstance(inputs, dict) else self.model(*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        return tuple([y.array if isinstance(y, Variable) else y for y in outputs])


def is_compatible(model: Any, device: str = "CPU", **_: Any) -> bool:
    """Whether a model may run; which of its operators cannot is found out when they run."""
    return supports_device(device)


def prepare(model: Any, device: str = "CPU", **_: Any) -> BackendModel:
    """Return the model, ready to run.

    Raises:
        ImportError: The package ``onnx`` is not installed.
    """
    return BackendModel(OnnxModel(model))


def run_model(model: Any, inputs: Any, device: str = "CPU", **_: Any) -> tuple[Any, ...]:
    """Return the outputs of a model."""
    return prepare(model, device).run(inputs)


def run_node(node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **_: Any) -> tuple[Any, ...]:
    """Return the results of one node, of the newest opset."""
    helper = require_onnx().helper
    arrays = [np.asarray(x) for x in inputs]
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for name, x in zip([name for name in node.input if name], arrays, strict=True)]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    return prepare(helper.make_model(helper.make_graph([node], "node", given, results)), device).run(arrays)


def supports_device(device: str) -> bool:
    """Whether models run on a device."""
    return device.partition(":")[0] == "CPU"
