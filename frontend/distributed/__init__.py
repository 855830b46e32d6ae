"""Training on many processes and machines, with ChainerMN's interface: ``import chainermn`` leads here.

Every process runs the same program, started by ``mpiexec``; docs/distributed.md tells how.

>>> import kusari
>>> from kusari import distributed
>>> comm = distributed.create_communicator("naive")
>>> model = L.Classifier(L.Linear(4, 3))
>>> optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), comm).setup(model)
>>> part = distributed.scatter_dataset(list(range(10)), comm, shuffle=True)
"""
from __future__ import annotations

from . import communicators, datasets, errors, extensions, functions, global_except_hook, iterators, links, optimizers
from .communicators import CommunicatorBase, create_communicator
from .datasets import DataSizeError, get_epoch_trigger, scatter_dataset, scatter_index
from .extensions import create_multi_node_checkpointer, create_multi_node_evaluator
from .links import MultiNodeChainList
from .optimizers import create_multi_node_optimizer

__version__ = "7.8.1"  # of the interface

__all__ = [
    "CommunicatorBase", "DataSizeError", "MultiNodeChainList", "communicators", "create_communicator",
    "create_multi_node_checkpointer", "create_multi_node_evaluator", "create_multi_node_optimizer", "datasets",
    "errors", "extensions", "functions", "get_epoch_trigger", "global_except_hook", "iterators", "links",
    "optimizers", "scatter_dataset", "scatter_index",
]  # fmt: skip

global_except_hook.add_if_enabled()
