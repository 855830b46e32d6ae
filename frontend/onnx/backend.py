"""Kusari as a backend of the package ``onnx``: ``kusari.onnx.backend.prepare(model).run(inputs)``."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from ..configuration import using_config
from ..variable import Variable
from .importer import OnnxModel


class KusariRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs as arrays, for inputs in order or by name."""
        with using_config("train", False), using_config("enable_backprop", False):
            found = self.model(**inputs) if isinstance(inputs, dict) else self.model(*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        return tuple([y.array if isinstance(y, Variable) else y for y in outputs])


class KusariBackend(Backend):
    """The interface of ``onnx.backend.base.Backend``, on the CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> KusariRep:
        """Return the model, ready to run."""
        return KusariRep(OnnxModel(model))

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """Return the results of one node."""
        arrays: Sequence[Any] = [np.asarray(x) for x in inputs]
        helper = onnx.helper
        given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                 for name, x in zip(node.input, arrays, strict=True)]
        graph = helper.make_graph([node], "node", given, [helper.make_empty_tensor_value_info(n) for n in node.output])
        return cls.prepare(helper.make_model(graph), device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device."""
        return device.partition(":")[0] == "CPU"


prepare = KusariBackend.prepare
run_node = KusariBackend.run_node
run_model = KusariBackend.run_model
supports_device = KusariBackend.supports_device
