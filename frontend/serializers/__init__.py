"""Saving and loading of models, optimizers and trainers."""

from .hdf5 import HDF5Deserializer as HDF5Deserializer
from .hdf5 import HDF5Serializer as HDF5Serializer
from .hdf5 import load_hdf5 as load_hdf5
from .hdf5 import save_hdf5 as save_hdf5
from .npz import DictionarySerializer as DictionarySerializer
from .npz import NpzDeserializer as NpzDeserializer
from .npz import load_npz as load_npz
from .npz import save_npz as save_npz

__all__ = [
    "DictionarySerializer", "HDF5Deserializer", "HDF5Serializer", "NpzDeserializer", "load_hdf5", "load_npz",
    "save_hdf5", "save_npz",
]  # fmt: skip
