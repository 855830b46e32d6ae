"""The usual updater: one batch, one step of the optimizer."""

from collections.abc import Callable, Mapping
from typing import Any

from ... import backend
from ...dataset import convert
from ...dataset.iterator import Iterator
from ...iterators import SerialIterator
from ..updater import Updater


class StandardUpdater(Updater):
    """Updater that takes the next batch and lets the optimizer minimize a loss on it.

    When the loss function is itself static (a function or method decorated with ``static_graph``), the
    optimizer compiles the whole step: forward, backward and update.

    Args:
        iterator: iterator over the training data, or a dict of iterators, the one called ``'main'`` being
            the training data.
        optimizer: optimizer that is set up with a model, or a dict of them with ``'main'``.
        converter: makes arrays of a batch; ``converter(batch, device)``.
        device: device that the models and, unless ``input_device`` is given, the batches are sent to;
            ``None`` leaves them where they are.
        loss_func: gives the loss; called with the elements of a batch that is a tuple, with keyword
            arguments for a dict, otherwise with the batch. ``None`` is the model of the main optimizer.
        loss_scale: factor on the loss against underflow in float16, taken out of the gradients again.
        auto_new_epoch: call ``optimizer.new_epoch`` when the main iterator starts an epoch.
        input_device: device that the batches are sent to.
    """

    def __init__(
        self,
        iterator: Any,
        optimizer: Any,
        converter: Callable[..., Any] = convert.concat_examples,
        device: Any = None,
        loss_func: Callable[..., Any] | None = None,
        loss_scale: float | None = None,
        auto_new_epoch: bool = True,
        *,
        input_device: Any = None,
    ) -> None:
        device = None if device is None else backend.get_device(device)
        input_device = device if input_device is None else backend.get_device(input_device)
        self._iterators: dict[str, Any] = dict(iterator) if isinstance(iterator, Mapping) else {"main": iterator}
        for each in self._iterators.values():
            if hasattr(each, "__len__") and not (hasattr(each, "next") or hasattr(each, "__next__")):
                raise TypeError(f"{type(self).__name__} takes an iterator, as iterators.SerialIterator(dataset, "
                                f"batch_size), got {type(each)}")
        self._optimizers: dict[str, Any] = dict(optimizer) if isinstance(optimizer, Mapping) else {"main": optimizer}
        if device is not None:
            for each in self._optimizers.values():
                each.target.to_device(device)
        self.converter = converter
        self.loss_func = loss_func
        self.iteration = 0
        self._device = device
        self._input_device = input_device
        self.loss_scale = loss_scale
        self.auto_new_epoch = auto_new_epoch
        for each in self._optimizers.values():
            if loss_scale is not None:
                each.set_loss_scale(loss_scale)
            if auto_new_epoch:
                # Tells the optimizer that calls of new_epoch by the user would count epochs twice.
                each.use_auto_new_epoch = True

    @property
    def device(self) -> Any:
        """Device of the models, or None."""
        return self._device

    @property
    def input_device(self) -> Any:
        """Device that the batches are sent to, or None."""
        return self._input_device

    @property
    def epoch(self) -> int:
        """Number of epochs completed by the main iterator."""
        return self._iterators["main"].epoch

    @property
    def epoch_detail(self) -> float:
        """Epochs done by the main iterator, with a fraction for the one under way."""
        return self._iterators["main"].epoch_detail

    @property
    def previous_epoch_detail(self) -> Any:
        """``epoch_detail`` before the last batch."""
        return self._iterators["main"].previous_epoch_detail

    @property
    def is_new_epoch(self) -> bool:
        """Whether the last batch completed an epoch."""
        return self._iterators["main"].is_new_epoch

    def get_optimizer(self, name: str) -> Any:
        """The optimizer of that name."""
        return self._optimizers[name]

    def get_all_optimizers(self) -> dict[str, Any]:
        """All optimizers by name."""
        return dict(self._optimizers)

    def get_iterator(self, name: str) -> Iterator:
        """The iterator of that name."""
        return self._iterators[name]

    def update(self) -> None:
        """Do one iteration and count it."""
        self.update_core()
        self.iteration += 1

    def update_core(self) -> None:
        """Take a batch, convert it, and take one step; the method to override for another kind of step."""
        iterator: Any = self._iterators["main"]
        optimizer = self._optimizers["main"]
        if self.converter is convert.concat_examples and type(iterator) is SerialIterator and (
                self.input_device is None and "next" not in vars(iterator)):
            arrays = iterator.next_arrays()
        else:
            arrays = convert.call_converter(self.converter, iterator.next(), self.input_device)
        loss_func = self.loss_func or optimizer.target
        if isinstance(arrays, tuple):
            optimizer.update(loss_func, *arrays)
        elif isinstance(arrays, dict):
            optimizer.update(loss_func, **arrays)
        else:
            optimizer.update(loss_func, arrays)
        if self.auto_new_epoch and iterator.is_new_epoch:
            optimizer.new_epoch(auto=True)

    def finalize(self) -> None:
        """Finalize the iterators."""
        for iterator in self._iterators.values():
            iterator.finalize()

    def serialize(self, serializer: Any) -> None:
        """Save or load iterators, optimizers, their models and the count of iterations."""
        for name, iterator in self._iterators.items():
            iterator.serialize(serializer["iterator:" + name])
        for name, optimizer in self._optimizers.items():
            optimizer.serialize(serializer["optimizer:" + name])
            optimizer.target.serialize(serializer["model:" + name])
        self.iteration = serializer("iteration", self.iteration)
