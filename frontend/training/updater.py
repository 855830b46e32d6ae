"""The interface of what a trainer calls in every iteration."""

from typing import Any


class Updater:
    """Base class of updaters: :meth:`update` does one iteration, usually one step of an optimizer.

    An updater has the attributes ``iteration``, ``epoch``, ``epoch_detail``, ``previous_epoch_detail`` and
    ``is_new_epoch``, which triggers read.
    """

    def connect_trainer(self, trainer: Any) -> None:
        """Called by the trainer that the updater is given to."""

    def finalize(self) -> None:
        """Called at the end of the training loop."""

    def get_optimizer(self, name: str) -> Any:
        """The optimizer of that name."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_optimizer")

    def get_all_optimizers(self) -> dict[str, Any]:
        """All optimizers by name."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_all_optimizers")

    def update(self) -> None:
        """Do one iteration."""
        raise NotImplementedError(f"{type(self).__name__} has to define update")

    def serialize(self, serializer: Any) -> None:
        """Save the updater's state to, or load it from, ``serializer``."""
        raise NotImplementedError(f"{type(self).__name__} has to define serialize")


# Set by ``training.updaters``: Chainer's programs look for them here, too.
MultiprocessParallelUpdater: Any = None
ParallelUpdater: Any = None
StandardUpdater: Any = None
