"""Random draws by kernels, which work on the state of NumPy's global generator itself."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kusari.ir import Instruction, Node


def draws(instruction: Instruction) -> bool:
    """Whether a native instruction draws random numbers."""
    return instruction.draws


def _global_generator() -> Any:
    """The bit generator behind ``numpy.random``'s functions."""
    return np.random.random_sample.__self__._bit_generator  # type: ignore[attr-defined]


def drawing(call: Callable[[], None], slots: ctypes.Array[ctypes.c_size_t], drawn: Sequence[tuple[int, Node]],
            put: Callable[[Node], None]) -> Callable[[], None]:
    """``call``, whose kernels find the generator's state in ``slots``; no other thread draws meanwhile.

    ``drawn`` are the slots with their nodes. If the user has set another kind of generator, ``put`` draws for them
    first.
    """
    known: Any = None

    def run() -> None:
        nonlocal known
        generator = _global_generator()
        if generator is not known:
            known = generator
            twister = type(generator) is np.random.MT19937
            address: int = generator.ctypes.state_address if twister else 0
            for slot, _ in drawn:
                slots[slot] = address
        if not slots[drawn[0][0]]:
            for _, node in drawn:
                put(node)
            call()
            return
        with generator.lock:
            call()
    return run
