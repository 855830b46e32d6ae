"""Where NumPy's global generator of random numbers stands: read in a microsecond, put back when draws are repeated."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ...link.namespace import entries_of
from .observation import is_ours

_KEY_BYTES = 624 * 4  # of the Mersenne Twister's state, behind which its position stands
_BYTES = _KEY_BYTES + 4


def _slow() -> Any:
    state = np.random.get_state(legacy=False)
    return repr(state["bit_generator"]), repr(state)


def _find() -> Callable[[], Any]:
    """Return a function that reads the position from the generator's memory, if its layout is the known one."""
    generator: Any = getattr(np.random, "get_bit_generator", lambda: None)()
    if type(generator).__name__ != "MT19937":
        return _slow
    address, read = generator.ctypes.state_address, ctypes.string_at
    if _parts(read(address, _BYTES)) != _parts(np.random.get_state(legacy=False)):
        return _slow
    return lambda: read(address, _BYTES)


def _parts(state: Any) -> tuple[bytes, int]:
    if isinstance(state, bytes):
        return state[:_KEY_BYTES], int(np.frombuffer(state[_KEY_BYTES:], np.int32)[0])
    return state["state"]["key"].tobytes(), int(state["state"]["pos"])


_known: tuple[Any, Callable[[], Any]] | None = None


def position() -> Any:
    """Return the position of the global generator, which every draw changes and which ``put`` takes."""
    global _known
    generator: Any = getattr(np.random, "get_bit_generator", lambda: None)()
    known = _known
    if known is None or known[0] is not generator:
        known = _known = generator, _find()
    return known[1]()


def complete() -> Any:
    """Return all of the state, also a normally distributed number that waits; this takes a hundred times longer."""
    return np.random.get_state()


def put(state: Any) -> None:
    """Let the global generator stand where it stood; of a position, a normally distributed number that waits stays."""
    if isinstance(state, bytes):
        key, at = _parts(state)
        state = ("MT19937", np.frombuffer(key, np.uint32), at, *complete()[3:])
    np.random.set_state(state)


def is_lazy(link: Any) -> bool:
    """Whether a link of ours, or one of its parts, has a parameter without an array."""
    if not is_ours(type(link).__module__):
        return False
    parts = list(link.links())
    if not all(is_ours(type(part).__module__) for part in parts):
        parts = [link]  # the draws of the user's links are not expected
    own = [entries_of(part).get(name) for part in parts for name in part._params]
    return any(p is not None and p._array is None for p in own)
