"""Models to ONNX, with the API of ONNX-Chainer, and from it: ``import kusari.onnx``.

Importing this needs nothing but Kusari; exporting and loading need the package onnx, verifying uses onnxruntime where
it is installed. Both come with the extra ``onnx``.
"""
from . import functions, onnx_helper, replace_func, testing
from .context import convert_parameter
from .dialect import ONNX_CHAINER, Dialect
from .errors import (
    ExportError,
    ExportFileError,
    InputShapesError,
    MismatchError,
    MissingExtraError,
    OnnxRuntimeWarning,
    OpsetError,
    UnsupportedFunctionsError,
)
from .exporter import export
from .importer import OnnxModel, load
from .replace_func import as_funcnode, fake_as_funcnode
from .testcase import export_testcase
from .training import export_gradient, export_train_step
from .versions import MAXIMUM_OPSET_VERSION, MINIMUM_OPSET_VERSION

__all__ = [
    "Dialect", "ExportError", "ExportFileError", "InputShapesError", "MAXIMUM_OPSET_VERSION",
    "MINIMUM_OPSET_VERSION", "MismatchError", "MissingExtraError", "ONNX_CHAINER", "OnnxModel",
    "OnnxRuntimeWarning", "OpsetError", "UnsupportedFunctionsError", "as_funcnode", "convert_parameter", "export",
    "export_gradient", "export_testcase", "export_train_step", "fake_as_funcnode", "functions", "load",
    "onnx_helper", "replace_func", "testing",
]
