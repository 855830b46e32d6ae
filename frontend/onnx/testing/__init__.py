"""What tests of exported models need: ``import kusari.onnx.testing``."""
from . import input_generator

__all__ = ["input_generator"]
