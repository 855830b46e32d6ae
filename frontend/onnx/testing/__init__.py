"""Tests of exported models: ``import kusari.onnx.testing``."""
from . import input_generator

__all__ = ["input_generator"]
