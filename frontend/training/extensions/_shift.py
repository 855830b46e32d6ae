"""The base of extensions that move a hyperparameter of the optimizer."""

from typing import Any

from ..extension import Extension


class Shift(Extension):
    """Base class of extensions that set an attribute of an optimizer to a function of the number of calls.

    A subclass defines ``_value(t)``. Invariant: after ``t`` calls the attribute is ``_value(t)``, also when a
    training is resumed.
    """

    def __init__(self, attr: str, init: float | None = None, optimizer: Any = None) -> None:
        self._attr = attr
        self._init: Any = init
        self._optimizer = optimizer
        self._t = 0
        self._last_value: Any = None

    def _value(self, t: int) -> Any:
        """The value after ``t`` calls."""
        raise NotImplementedError

    def _get_optimizer(self, trainer: Any) -> Any:
        """The optimizer given, or the trainer's main one."""
        return self._optimizer or trainer.updater.get_optimizer("main")

    def initialize(self, trainer: Any) -> None:
        """Take the attribute's value as the initial one if none was given, and set the current one."""
        optimizer = self._get_optimizer(trainer)
        if self._init is None:
            self._init = getattr(optimizer, self._attr)
        if self._last_value is None:
            self._last_value = self._value(self._t)
        setattr(optimizer, self._attr, self._last_value)

    def __call__(self, trainer: Any) -> None:
        """Count the call and set the attribute."""
        self._t += 1
        self._last_value = self._value(self._t)
        setattr(self._get_optimizer(trainer), self._attr, self._last_value)

    def serialize(self, serializer: Any) -> None:
        """Save or load the number of calls, the current value and the value that it started from."""
        self._t = int(serializer("_t", self._t))
        self._last_value = _plain(serializer("_last_value", self._last_value))
        self._serialize_init(serializer)

    def _serialize_init(self, serializer: Any) -> None:
        """The initial value is part of the state: by the time of a resumption the optimizer may not have it."""
        try:
            init = _plain(serializer("_init", self._init))
        except KeyError:  # Chainer's snapshots have none: their optimizer is set up anew with it
            return
        self._init = self._init if init is None else init


def _plain(value: Any) -> Any:
    """A number of what a deserializer gave."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def clip(value: float, init: float, target: float | None) -> float:
    """``value``, but not beyond ``target`` on the way from ``init``."""
    if target is None:
        return value
    return min(value, target) if target > init else max(value, target)
