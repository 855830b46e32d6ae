"""Saving and loading the state of a random number generator, so that a resumed run draws what it would have drawn."""

import functools
import random as python_random
from collections.abc import Callable
from typing import Any

import numpy as np

from . import serializer as serializer_module

_LEGACY = "MT19937"  # the generator of RandomState and of numpy.random's functions, unless it was replaced


def serialize(serializer: Any, random: Any = np.random) -> None:
    """Save the state of ``random`` (a RandomState, or ``numpy.random``), or load it where the file has one.

    Files written by Chainer have none: then the generator goes on as it is.
    """
    state = random.get_state(legacy=False)
    if state["bit_generator"] != _LEGACY:
        return
    inner = state["state"]
    try:
        key = serializer("key", inner["key"])
        position = serializer("pos", inner["pos"])
        has_gauss = serializer("has_gauss", state["has_gauss"])
        gauss = serializer("gauss", state["gauss"])
    except KeyError:
        return
    if isinstance(serializer, serializer_module.Deserializer):
        random.set_state((_LEGACY, np.asarray(key, np.uint32), int(position), int(has_gauss), float(gauss)))


def state_of(generator: Any) -> Callable[[], None] | None:
    """Return a function that lets a generator stand where it stands now; None of a class that nothing is known of.

    >>> generator = np.random.default_rng(0)
    >>> put_back = state_of(generator)
    >>> before = generator.random()
    >>> put_back()
    >>> generator.random() == before
    True
    """
    if type(generator) is python_random.Random:
        return functools.partial(generator.setstate, generator.getstate())
    if type(generator) is np.random.RandomState:
        return functools.partial(generator.set_state, generator.get_state(legacy=False))
    if type(generator) is np.random.Generator:
        return functools.partial(setattr, generator.bit_generator, "state", generator.bit_generator.state)
    return None
