"""Where an iterator stands in its dataset, as a value, and the step from one batch to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import serializer as serializer_module
from .order_samplers import ShuffleOrderSampler

Sampler = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Position:
    """A place in the sequence of examples; ``order`` is None when they come as they are in the dataset."""

    current_position: int = 0
    epoch: int = 0
    is_new_epoch: bool = False
    order: np.ndarray | None = None

    def epoch_size(self, dataset_size: int) -> int:
        """Number of examples of an epoch: an order sampler may repeat examples, or leave some out."""
        return dataset_size if self.order is None else len(self.order)

    def detail(self, dataset_size: int) -> float:
        """Epochs done, with a fraction for the one under way."""
        size = self.epoch_size(dataset_size)
        return self.epoch + (self.current_position / size if size else 0.0)


def choose_sampler(shuffle: bool | None, order_sampler: Sampler | None) -> Sampler | None:
    """The order sampler that the arguments of an iterator ask for; shuffling is the default."""
    if order_sampler is None:
        return None if shuffle is False else ShuffleOrderSampler()
    if shuffle is not None:
        raise ValueError(
            "`shuffle` is not `None` and a custom `order_sampler` is set. "
            "Please set `shuffle` to `None` to use the custom order sampler."
        )
    return order_sampler


def start(sampler: Sampler | None, dataset_size: int) -> Position:
    """The place before the first batch."""
    return Position(order=None if sampler is None else sampler(np.arange(dataset_size), 0))


def advance(
    place: Position, batch_size: int, repeat: bool, sampler: Sampler | None, dataset_size: int
) -> tuple[Position, list[int] | None]:
    """The place after the next batch and the batch's indices; None instead of them when the data is used up.

    A new order is drawn as soon as the last example of an epoch is taken, as Chainer does: which numbers
    a seed gives to whom depends on it.
    """
    if place.epoch > 0 and not repeat:
        return place, None
    size = place.epoch_size(dataset_size)
    if size == 0:
        raise ValueError("the dataset is empty: there is nothing to iterate over")
    order, position, epoch = place.order, place.current_position, place.epoch
    indices: list[int] = []
    is_new_epoch = False
    consumed = position  # what the sampler is told: where this batch began in the order that ends
    while len(indices) < batch_size:
        stop = min(position + batch_size - len(indices), size)
        indices.extend(range(position, stop) if order is None else order[position:stop].tolist())
        position = stop
        if position == size:
            position = 0
            epoch += 1
            is_new_epoch = True
            if order is not None and sampler is not None:
                order = np.asarray(sampler(order, consumed))
                if len(order) != size:
                    raise ValueError(
                        f"the order sampler gave {len(order)} indices after {size} before: "
                        "the size of an epoch must stay the same"
                    )
            consumed = 0
            if not repeat:
                break
    return Position(position, epoch, is_new_epoch, order), indices


def serialize(serializer: Any, place: Position, order_key: str = "order") -> Position:
    """Save ``place`` or give the loaded one."""
    position = int(serializer("current_position", place.current_position))
    epoch = int(serializer("epoch", place.epoch))
    is_new_epoch = bool(serializer("is_new_epoch", place.is_new_epoch))
    order = place.order
    if order is not None:
        # A copy, since deserializers may write into the array that they are given.
        try:
            order = np.asarray(serializer(order_key, order.copy()))
        except KeyError:
            if order_key == "_order":
                raise
            order = np.asarray(serializer("_order", order.copy()))  # its name in files of old versions of Chainer
    return replace(place, current_position=position, epoch=epoch, is_new_epoch=is_new_epoch, order=order)


def serialize_detail(serializer: Any, before: float | None, place: Position, batch_size: int, size: int
                     ) -> float | None:  # fmt: skip
    """Save or load the progress before the last batch; files of old versions of Chainer lack it."""
    try:
        found = float(serializer("previous_epoch_detail", -1.0 if before is None else before))
    except KeyError:
        found = place.detail(size) - batch_size / (place.epoch_size(size) or 1)
    return found if found >= 0 else None


def serialize_sampler(serializer: Any, sampler: Sampler | None) -> None:
    """Save or load the order sampler's own state, if it has one."""
    hook = getattr(sampler, "serialize", None)
    if hook is not None:
        hook(serializer["order_sampler"])


def is_loading(serializer: Any) -> bool:
    """Whether ``serializer`` reads."""
    return isinstance(serializer, serializer_module.Deserializer)
