"""An iterator over a pipeline of NVIDIA's DALI."""

from typing import Any

from ..dataset.iterator import Iterator
from ..utils.experimental import experimental


class DaliIterator(Iterator):
    """Iterator that runs a pipeline of DALI for each batch.

    A batch is the list of tensors that the pipeline gives; give the updater a converter that makes arrays of it. The
    pipeline decides about order and shuffling, and is built at the first batch. DALI itself is not imported here.

    Args:
        pipeline: a pipeline with one reader; batches are counted by the size of its data.
        repeat: go on with the next epoch for ever; otherwise stop after one.
    """

    def __init__(self, pipeline: Any, repeat: bool = True) -> None:
        experimental("DaliIterator")
        self.pipeline = pipeline
        self._repeat = repeat
        self._size: int | None = None  # known once the pipeline is built
        self.reset()

    def reset(self) -> None:
        """Count from the start of an epoch again; the pipeline goes on where it is."""
        self.current_position = 0
        self.epoch = 0
        self.is_new_epoch = False
        self._previous_epoch_detail: float | None = None

    @property
    def batch_size(self) -> int:
        """The number of examples of a batch, which the pipeline says."""
        return self.pipeline.batch_size if hasattr(self.pipeline, "batch_size") else self.pipeline.max_batch_size

    @property
    def repeat(self) -> bool:
        """Whether it goes on after an epoch."""
        return self._repeat

    @property
    def epoch_detail(self) -> float:
        """The epochs so far, with the share of the current one."""
        return self.epoch + self.current_position / (self._size or 1)

    @property
    def previous_epoch_detail(self) -> float | None:
        """``epoch_detail`` before the last batch; None before the first."""
        return self._previous_epoch_detail

    def __next__(self) -> Any:
        """The pipeline's next batch; raises StopIteration after one epoch unless ``repeat``."""
        if self._size is None:
            self.pipeline.build()
            self._size = next(iter(self.pipeline.epoch_size().values()))
        if not self._repeat and self.epoch > 0:
            raise StopIteration
        self._previous_epoch_detail = self.epoch_detail
        end = self.current_position + self.batch_size
        self.is_new_epoch = end >= self._size
        self.epoch += self.is_new_epoch
        self.current_position = (end - self._size if self._repeat else 0) if self.is_new_epoch else end
        return self.pipeline.run()

    next = __next__

    def serialize(self, serializer: Any) -> None:
        """Save or load the position, which the pipeline does not learn."""
        self.current_position = serializer("current_position", self.current_position)
        self.epoch = serializer("epoch", self.epoch)
        self.is_new_epoch = serializer("is_new_epoch", self.is_new_epoch)
        before = -1.0 if self._previous_epoch_detail is None else self._previous_epoch_detail
        before = serializer("previous_epoch_detail", before)
        self._previous_epoch_detail = None if before is None or before < 0 else before
