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
HEADER_BYTES = object.__basicsize__


class _Fields(ctypes.Structure):
    """The beginning of an ndarray, from the last word of its header on."""

    _fields_ = [("type", ctypes.c_void_p), ("data", ctypes.c_void_p), ("ndim", ctypes.c_int),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p),
                ("dtype", ctypes.c_void_p), ("flags", ctypes.c_int)]


def _known_layout() -> bool:
    pointer = ctypes.sizeof(ctypes.c_void_p)
    if pointer != 8 or np.ndarray.__basicsize__ < HEADER_BYTES - pointer + ctypes.sizeof(_Fields):
        return False
    probe = np.zeros((3, 5), np.int8)
    fields = _Fields.from_address(id(probe) + HEADER_BYTES - pointer)
    return (fields.type == id(np.ndarray) and fields.data == probe.ctypes.data and fields.ndim == probe.ndim
            and (fields.shape[0], fields.shape[1]) == probe.shape and fields.dtype == id(probe.dtype)
            and fields.flags == probe.flags.num)


KNOWN_LAYOUT = _known_layout()  # whether native code may look into arrays

if KNOWN_LAYOUT:
    _pointer_at = ctypes.c_size_t.from_address

    def address_of(array: Array) -> int:
        """Return the address of the first element."""
        return _pointer_at(id(array) + HEADER_BYTES).value
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
