"""Saving and loading the state of a random number generator, so that a resumed run draws what it would have drawn."""

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
