"""Memory of a frame: an aligned block that stays mapped, and the addresses of arrays."""
from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
HUGE = 4 << 20

# An ndarray begins with the object header and then the pointer to its data; reading it there takes a quarter of
# the time that array.ctypes takes. Where this does not hold the ordinary way is used.
_DATA_AT = object.__basicsize__


def _reads_pointer() -> bool:
    probe = np.zeros(3, np.int8)
    return bool(ctypes.c_void_p.from_address(id(probe) + _DATA_AT).value == probe.ctypes.data)


if _reads_pointer():
    _pointer_at = ctypes.c_size_t.from_address

    def address_of(array: Array) -> int:
        """Return the address of the first element."""
        return _pointer_at(id(array) + _DATA_AT).value
else:
    def address_of(array: Array) -> int:
        """Return the address of the first element."""
        return int(array.ctypes.data)


def _keep(_: int) -> int:
    return 0


try:
    _trim: Any = ctypes.CDLL(None).malloc_trim
except (OSError, AttributeError, TypeError):  # not the GNU C library
    _trim = _keep


def give_back() -> None:
    """Return to the system what the C library keeps of freed arrays, where it can be told to.

    Define-by-run leaves as much behind as it needed; a frame that comes on top of it would be the larger peak.
    """
    _trim(0)


def allocate(nbytes: int, huge: bool = True) -> Array:
    """Return ``nbytes`` zero bytes, aligned for vectors; large blocks are mapped, in huge pages where there are any."""
    if nbytes >= 1 << 16:
        # Private: after a fork parent and child must not write to the same pages.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        block = mmap.mmap(-1, nbytes, **private)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if huge and nbytes >= HUGE and advice is not None:
            try:
                block.madvise(advice)
            except OSError:  # the kernel may have been built without
                pass
        return np.frombuffer(block, np.uint8)
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start:start + nbytes]
