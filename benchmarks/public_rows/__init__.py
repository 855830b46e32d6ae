"""The rows of benchmarks/public_models.py, by kind."""

from . import generative, graphs, pictures, sequences
from .rows import ROWS

__all__ = ["ROWS", "generative", "graphs", "pictures", "sequences"]
