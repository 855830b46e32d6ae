"""Datasets shared out among ranks."""
from .empty_dataset import create_empty_dataset
from .scatter import DataSizeError, get_epoch_trigger, get_n_iterations_for_one_epoch, scatter_dataset, scatter_index

__all__ = ["DataSizeError", "create_empty_dataset", "get_epoch_trigger", "get_n_iterations_for_one_epoch",
           "scatter_dataset", "scatter_index"]
