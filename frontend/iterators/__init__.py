"""Iterators that make batches of the examples of a dataset."""

from .dali_iterator import DaliIterator
from .multiprocess_iterator import MultiprocessIterator
from .multithread_iterator import MultithreadIterator
from .order_samplers import OrderSampler, ShuffleOrderSampler
from .serial_iterator import SerialIterator

__all__ = [
    "DaliIterator", "MultiprocessIterator", "MultithreadIterator", "OrderSampler", "SerialIterator",
    "ShuffleOrderSampler",
]  # fmt: skip
