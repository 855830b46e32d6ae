"""Tests of exported models: ``import kusari.onnx.testing``."""
from . import get_test_data_set, input_generator, test_onnxruntime

__all__ = ["get_test_data_set", "input_generator", "test_onnxruntime"]
