"""Extensions that record a value in every log."""

from collections.abc import Callable
from typing import Any

from ..extension import PRIORITY_WRITER, make_extension


def observe_value(observation_key: str, target_func: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Make an extension that writes ``target_func(trainer)`` to the observation every epoch.

    Args:
        observation_key: name of the value.
        target_func: function of the trainer that gives it.
    """

    @make_extension(trigger=(1, "epoch"), priority=PRIORITY_WRITER)
    def _observe_value(trainer: Any) -> None:
        trainer.observation[observation_key] = target_func(trainer)

    return _observe_value


def observe_lr(optimizer_name: str = "main", observation_key: str = "lr") -> Callable[[Any], None]:
    """Make an extension that writes the learning rate of an optimizer to the observation every epoch.

    Args:
        optimizer_name: name of the optimizer in the updater.
        observation_key: name of the value.
    """
    return observe_value(observation_key, lambda trainer: trainer.updater.get_optimizer(optimizer_name).lr)
