"""The opsets that the installed ONNX Runtime knows: not all of them where it is older (1.23 for Python 3.10)."""
from __future__ import annotations

import onnx
import onnxruntime

from kusari.onnx.versions import IR_VERSIONS


def _loads(opset: int) -> bool:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=IR_VERSIONS[opset])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not any(words in str(error) for words in ("Unsupported model IR version", "under development")):
            raise
        return False
    return True


OPSETS = [opset for opset in sorted(IR_VERSIONS) if _loads(opset)]
OLDEST, NEWEST = OPSETS[0], OPSETS[-1]
