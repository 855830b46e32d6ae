"""Iterators that make batches of the examples of a dataset."""

from .multiprocess_iterator import MultiprocessIterator
from .multithread_iterator import MultithreadIterator
from .order_samplers import OrderSampler, ShuffleOrderSampler
from .serial_iterator import SerialIterator

__all__ = ["MultiprocessIterator", "MultithreadIterator", "OrderSampler", "SerialIterator", "ShuffleOrderSampler"]
