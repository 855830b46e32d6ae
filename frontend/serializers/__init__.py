"""Saving and loading of models, optimizers and trainers."""

from .npz import DictionarySerializer as DictionarySerializer
from .npz import NpzDeserializer as NpzDeserializer
from .npz import load_npz as load_npz
from .npz import save_npz as save_npz

__all__ = ["DictionarySerializer", "NpzDeserializer", "load_npz", "save_npz"]
