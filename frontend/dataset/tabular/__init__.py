"""Datasets with named columns, read by rows or by columns."""

from .delegate_dataset import DelegateDataset
from .from_data import from_data
from .tabular_dataset import TabularDataset

__all__ = ["DelegateDataset", "TabularDataset", "from_data"]
