"""A trainer that trains nothing, for tests of extensions and triggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

from ..training import Trainer

__all__ = ["get_trainer_with_mock_updater"]


def get_trainer_with_mock_updater(
    stop_trigger: Any = (10, "iteration"), iter_per_epoch: float = 10, extensions: Sequence[Any] | None = None
) -> Trainer:
    """Return a trainer whose updater only counts iterations and epochs.

    Args:
        stop_trigger: When it stops.
        iter_per_epoch: Number of iterations in an epoch.
        extensions: What to extend it with.

    >>> trainer = kusari.testing.get_trainer_with_mock_updater((3, "epoch"), iter_per_epoch=2)
    >>> trainer.run()
    >>> trainer.updater.iteration, trainer.updater.epoch_detail
    (6, 3.0)
    """
    updater = mock.Mock()
    updater.get_all_optimizers.return_value = {}
    updater.iteration = updater.epoch = 0
    updater.epoch_detail = updater.previous_epoch_detail = 0.0
    updater.is_new_epoch = True

    def update() -> None:
        updater.previous_epoch_detail = updater.epoch_detail
        updater.iteration += 1
        updater.epoch_detail = updater.iteration / iter_per_epoch
        # Epochs need not be whole numbers of iterations.
        updater.is_new_epoch = (updater.iteration - 1) // iter_per_epoch != updater.iteration // iter_per_epoch
        updater.epoch = updater.iteration // iter_per_epoch

    updater.update = update
    return Trainer(updater, stop_trigger, extensions=extensions)
