"""The package ``onnx_chainer`` under the alias: exports in ONNX-Chainer's dialect, and the modules that both have."""
from .. import context, functions, onnx_helper, testing
from ..context import convert_parameter
from ..versions import MINIMUM_OPSET_VERSION
from . import export, export_testcase, replace_func
from .export import MAXIMUM_OPSET_VERSION

__all__ = [
    "MAXIMUM_OPSET_VERSION", "MINIMUM_OPSET_VERSION", "context", "convert_parameter", "export", "export_testcase",
    "functions", "onnx_helper", "replace_func", "testing",
]
