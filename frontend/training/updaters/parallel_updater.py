"""Data parallelism over the devices of one process."""

from collections.abc import Callable, Sequence
from typing import Any

from ... import backend
from ...configuration import force_backprop_mode
from ...dataset import convert
from .standard_updater import StandardUpdater


class ParallelUpdater(StandardUpdater):
    """Updater that splits a batch over copies of the model on several devices and adds up the gradients.

    The loss of each part is a mean over its examples, so that the sum over ``n`` devices is about ``n`` times the
    gradient of the batch: divide the learning rate of an optimizer like SGD by their number. The copies are computed
    one after the other from one thread; devices that work asynchronously (GPUs) overlap. The optimizer steps on the
    main model, which the copies then take over.

    Args:
        iterator, optimizer, converter, loss_func, loss_scale, auto_new_epoch: as for
            :class:`~kusari.training.updaters.StandardUpdater`.
        models: dict from names to models, ``'main'`` being the optimizer's; or ``None`` to copy that one.
        devices: dict from the same names to devices, or a list whose first is the main one; at least one.

    Raises:
        ValueError: no device is given, or names of models and devices differ.
    """

    def __init__(
        self,
        iterator: Any,
        optimizer: Any,
        converter: Callable[..., Any] = convert.concat_examples,
        models: dict[str, Any] | None = None,
        devices: dict[str, Any] | Sequence[Any] | None = None,
        loss_func: Callable[..., Any] | None = None,
        loss_scale: float | None = None,
        auto_new_epoch: bool = True,
    ) -> None:
        super().__init__(
            iterator,
            optimizer,
            converter,
            loss_func=loss_func,
            loss_scale=loss_scale,
            auto_new_epoch=auto_new_epoch,
        )
        if not devices and not models:
            raise ValueError("either models or devices must be specified")
        places: dict[str, Any] = {}
        if isinstance(devices, dict):
            places = devices
        elif devices:
            places = {("main" if i == 0 else str(i)): device for i, device in enumerate(devices)}
        main = self._optimizers["main"].target
        if models is None:
            models = {name: main if name == "main" else main.copy(mode="copy") for name in places}
        named: dict[str, Any] = {
            name: backend.get_device(device) for name, device in (places or dict.fromkeys(models, "@numpy")).items()
        }
        if set(named) != set(models) or "main" not in models:
            raise ValueError(
                f"models and devices need the same names, 'main' among them: {sorted(models)} and {sorted(named)}"
            )
        for name, model in models.items():
            model.to_device(named[name])
        self._models = models
        self._devices = named

    def connect_trainer(self, trainer: Any) -> None:
        """Have the reports of every copy collected under its own name."""
        for name, model in self._models.items():
            trainer.reporter.add_observer(name, model)
            trainer.reporter.add_observers(name, model.namedlinks(skipself=True))

    def update_core(self) -> None:
        """Take a batch, compute its parts on the copies, and take one step with the sum of their gradients."""
        iterator: Any = self._iterators["main"]
        optimizer = self._optimizers["main"]
        main = self._models["main"]
        batch = iterator.next()
        names = list(self._models)
        parts = {name: batch[i :: len(names)] for i, name in enumerate(names)}
        for model in self._models.values():
            model.cleargrads()
        losses = [self._loss(name, model, parts[name]) for name, model in self._models.items() if parts[name]]
        for model in self._models.values():  # with parameters that have their shape only now
            model.cleargrads()
        for loss in losses:
            loss.backward(loss_scale=self.loss_scale)
        for name, model in self._models.items():
            if name != "main" and parts[name]:
                main.addgrads(model)
        optimizer.update()
        for name, model in self._models.items():
            if name != "main":
                model.copyparams(main)
        if self.auto_new_epoch and iterator.is_new_epoch:
            optimizer.new_epoch(auto=True)

    def _loss(self, name: str, model: Any, batch: list[Any]) -> Any:
        """The loss of one part."""
        device = self._devices[name]
        arrays = convert.call_converter(self.converter, batch, device)
        function = self.loss_func or model
        with force_backprop_mode(), backend.using_device(device):
            return _call(function, arrays)


def _call(function: Callable[..., Any], arrays: Any) -> Any:
    """Call with the elements of a tuple, the entries of a dict, or the thing itself."""
    if isinstance(arrays, tuple):
        return function(*arrays)
    if isinstance(arrays, dict):
        return function(**arrays)
    return function(arrays)
