"""Iterators that give several ranks the same batches."""
from .multi_node_iterator import create_multi_node_iterator
from .synchronized_iterator import create_synchronized_iterator

__all__ = ["create_multi_node_iterator", "create_synchronized_iterator"]
