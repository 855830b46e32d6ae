"""Memory of a frame: an aligned block that stays mapped, and the addresses of arrays."""
from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ALIGNMENT_BYTES = 64
HUGE_BYTES = 4 << 20

# An ndarray begins with the object header and then the pointer to its data; reading it there takes a quarter of
# the time that array.ctypes takes. Elsewhere array.ctypes is used.
HEADER_BYTES = object.__basicsize__


class _Fields(ctypes.Structure):
    """The beginning of an ndarray, from the last word of its header on."""

    _fields_ = [("type", ctypes.c_void_p), ("data", ctypes.c_void_p), ("ndim", ctypes.c_int),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p),
                ("dtype", ctypes.c_void_p), ("flags", ctypes.c_int)]


def _known_layout() -> bool:
    pointer = ctypes.sizeof(ctypes.c_void_p)
    if sys.implementation.name != "cpython" or pointer != 8 or sys.byteorder != "little":
        return False
    if np.ndarray.__basicsize__ < HEADER_BYTES - pointer + ctypes.sizeof(_Fields):
        return False
    probe = np.zeros((3, 5), np.int8)
    fields = _Fields.from_address(id(probe) + HEADER_BYTES - pointer)
    return (fields.type == id(np.ndarray) and fields.data == probe.ctypes.data and fields.ndim == probe.ndim
            and (fields.shape[0], fields.shape[1]) == probe.shape and fields.dtype == id(probe.dtype)
            and fields.flags == probe.flags.num and _list_is_known([probe, None]))


def _list_is_known(probe: list[Any]) -> bool:
    """Whether lists have their length and then the address of their items behind the header."""
    if list.__basicsize__ < HEADER_BYTES + 16:
        return False
    length, items = (ctypes.c_size_t * 2).from_address(id(probe) + HEADER_BYTES)
    return length == len(probe) and [*(ctypes.c_size_t * 2).from_address(items)] == [*map(id, probe)]


KNOWN_LAYOUT = _known_layout()  # whether native code may look into arrays and lists

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


def trim_heap() -> None:
    """Return freed heap memory of the C library to the system, if the library has a function for it.

    Define-by-run leaves as much behind as it needed; a frame that comes on top of it would be the larger peak.
    """
    _trim(0)


class _Header(ctypes.Structure):
    """One program header of an ELF file: a stretch of it that is mapped, and its flags."""

    _fields_ = (("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64),
                ("address", ctypes.c_uint64), ("physical", ctypes.c_uint64), ("stored", ctypes.c_uint64),
                ("size", ctypes.c_uint64), ("align", ctypes.c_uint64))


class _Library(ctypes.Structure):
    """The record of a library by ``dl_iterate_phdr``, as far as it is read here."""

    _fields_ = (("base", ctypes.c_size_t), ("name", ctypes.c_char_p), ("headers", ctypes.POINTER(_Header)),
                ("count", ctypes.c_uint16))


_LOADED, _WRITABLE, _PAGE_BYTES = 1, 2, mmap.PAGESIZE


def read_only_pages(library: str) -> list[tuple[int, int]]:
    """Return (address, bytes) of the mapped parts of a library's file that are never written: code and constants.

    None are known on other systems.
    """
    found: list[tuple[int, int]] = []
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return found

    def look(about: Any, _: int, __: Any) -> int:
        each = about.contents
        if library in os.fsdecode(each.name or b""):
            for header in each.headers[:each.count]:
                if header.type == _LOADED and not header.flags & _WRITABLE:
                    start = each.base + header.address
                    first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
                    last = (start + header.size) // _PAGE_BYTES * _PAGE_BYTES
                    if last > first:
                        found.append((first, last - first))
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
    try:
        ctypes.CDLL(None).dl_iterate_phdr(kind(look), None)
    except (OSError, AttributeError, TypeError):
        return []
    return found


def discard_pages(stretches: Sequence[tuple[int, int]]) -> None:
    """Drop the pages of ``stretches``, of files that are mapped and never written to, from the process.

    They come back, from the system's cache of files, at the next access. A compiler's code is tens of megabytes that a
    program would otherwise hold on to after its last compilation.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is not None and stretches:
        advise: Any = ctypes.CDLL(None).madvise
        for address, size in stretches:
            advise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(advice))


def allocate(nbytes: int, huge: bool = True) -> Array:
    """Return ``nbytes`` zero bytes, aligned for vectors; large blocks are mapped, in huge pages if possible."""
    if nbytes >= 1 << 16:
        # Private: after a fork parent and child must not write to the same pages.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        block = mmap.mmap(-1, nbytes, **private)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if huge and nbytes >= HUGE_BYTES and advice is not None:
            try:
                block.madvise(advice)
            except OSError:  # the kernel may have been built without
                pass
        return np.frombuffer(block, np.uint8)
    raw = np.zeros(nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -address_of(raw) % ALIGNMENT_BYTES
    return raw[start:start + nbytes]
