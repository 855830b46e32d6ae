"""Import of models from ONNX: a file becomes a chain that runs, trains, compiles and exports again."""
from .model import OnnxModel, load

__all__ = ["OnnxModel", "load"]
