"""Order samplers: what comes in which order in the next epoch."""

from typing import Any

import numpy as np

from .. import _random_state


class OrderSampler:
    """Base class of order samplers, callables that give the order of the next epoch."""

    def __call__(self, current_order: np.ndarray, current_position: int) -> np.ndarray:
        """The next order, a one-dimensional array of indices.

        Args:
            current_order: the order of the epoch that ends, or ``0, 1, 2, …`` before the first.
            current_position: how much of it has been read when the batch that ends it began.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define __call__")

    def serialize(self, serializer: Any) -> None:
        """Save the sampler's own state to, or load it from, ``serializer``."""


class ShuffleOrderSampler(OrderSampler):
    """Random order for every epoch.

    Args:
        random_state: a ``numpy.random.RandomState`` to draw from; ``None`` is NumPy's global generator.

    Example:
        >>> import numpy as np
        >>> from kusari.iterators import ShuffleOrderSampler
        >>> ShuffleOrderSampler(np.random.RandomState(0))(np.arange(5), 0).tolist()
        [2, 0, 1, 3, 4]
    """

    def __init__(self, random_state: np.random.RandomState | None = None) -> None:
        self._random = random_state

    def __call__(self, current_order: np.ndarray, current_position: int) -> np.ndarray:
        """A random permutation of as many indices as ``current_order`` has."""
        random = np.random if self._random is None else self._random
        return random.permutation(len(current_order))

    def serialize(self, serializer: Any) -> None:
        """Save or load the state of the sampler's own generator; the global one belongs to the trainer."""
        if self._random is not None:
            _random_state.serialize(serializer, self._random)
