"""The interface of everything that yields batches."""

from typing import Any


class Iterator:
    """Base class of the iterators over datasets; ``next`` returns the next batch, a list of examples.

    An iterator that an updater uses also has the attributes ``epoch``, ``epoch_detail``,
    ``previous_epoch_detail`` and ``is_new_epoch``. It is a context manager that calls :meth:`finalize`.
    """

    def __iter__(self) -> "Iterator":
        """The iterator itself."""
        return self

    def __next__(self) -> Any:
        """The next batch; raises :class:`StopIteration` at the end."""
        raise NotImplementedError(f"{type(self).__name__} has to define __next__")

    def next(self) -> Any:
        """The next batch, as ``next(iterator)``."""
        return self.__next__()

    def finalize(self) -> None:
        """Release threads, processes and files."""

    def __enter__(self) -> "Iterator":
        """The iterator itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Call :meth:`finalize`."""
        self.finalize()

    def serialize(self, serializer: Any) -> None:
        """Save the position to, or load it from, ``serializer``."""
