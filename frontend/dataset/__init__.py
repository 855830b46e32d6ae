"""Abstractions of data: datasets, iterators over them, and converters of batches into arrays."""

from . import tabular
from .convert import ConcatWithAsyncTransfer, Converter, concat_examples, converter, to_device
from .dataset_mixin import DatasetMixin
from .download import (
    cache_or_load_file,
    cached_download,
    get_dataset_directory,
    get_dataset_root,
    set_dataset_root,
)
from .iterator import Iterator
from .tabular import TabularDataset

__all__ = [
    "ConcatWithAsyncTransfer",
    "Converter",
    "DatasetMixin",
    "Iterator",
    "TabularDataset",
    "cache_or_load_file",
    "cached_download",
    "concat_examples",
    "converter",
    "get_dataset_directory",
    "get_dataset_root",
    "set_dataset_root",
    "tabular",
    "to_device",
]
