"""The memory of the stand-in for CuPy: a pool with a limit and statistics, and pointers into it.

New memory is full of 255, so that whoever reads it before it is written reads NaN. While a stream captures a graph
nothing can be allocated, as such a graph would have memory of its own, and nothing can be copied to the host.
"""
from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import tempfile
import weakref
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
from cupy_streams import get_current_stream, state

UNIT_BYTES = 512  # in which CuPy's pool rounds up


class OutOfMemoryError(MemoryError):
    """``cupy.cuda.memory.OutOfMemoryError``."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes, "
                         f"limit set to: {limit:,} bytes).")


class CUDARuntimeError(RuntimeError):
    """``cupy.cuda.runtime.CUDARuntimeError``."""


def refuse_capture(work: str) -> None:
    """Raise what a stream that captures raises for work that cannot be part of a graph."""
    if getattr(get_current_stream(), "captured", None) is not None:
        raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing "
                               f"({work})")


def _full(size: int) -> np.ndarray:
    """New memory. Of much of it, such as a workspace, the pages that nobody uses are never made."""
    if size < 1 << 20 or not hasattr(mmap, "MAP_PRIVATE"):
        return np.full(size, 255, np.uint8)
    file = _file_of_255()
    if (missing := size - file.seek(0, os.SEEK_END)) > 0:
        file.write(b"\xff" * missing)
        file.flush()
    return np.frombuffer(mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE), np.uint8)


@lru_cache(maxsize=1)
def _file_of_255() -> Any:
    file = tempfile.TemporaryFile()
    atexit.register(file.close)
    return file


class MemoryPool:
    """``cupy.cuda.MemoryPool``: the bytes of arrays that are alive, for all devices."""

    def __init__(self) -> None:
        self.used = self.most = self.limit = 0
        self.allocations = 0
        self._known: dict[int, Any] = {}
        self.of_device: Counter[int] = Counter()
        self.places: dict[int, tuple[int, int, int]] = {}  # the first byte, the end and the device of each root

    def adopt(self, host: np.ndarray) -> None:
        """Count the memory behind an array, unless it is that of another one."""
        root = host
        while isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) in self._known:
            return
        refuse_capture("an allocation")
        size = -(-root.nbytes // UNIT_BYTES) * UNIT_BYTES
        if self.limit and self.used + size > self.limit:
            raise OutOfMemoryError(size, self.used, self.limit)
        key, device = id(root), state.device
        self.used += size
        self.of_device[device] += size
        self.most = max(self.most, self.used)
        self.allocations += 1

        start = root.ctypes.data
        self.places[key] = start, start + max(root.nbytes, 1), device

        def gone(_: Any) -> None:
            del self._known[key], self.places[key]
            self.used -= size
            self.of_device[device] -= size
        self._known[key] = weakref.ref(root, gone)

    def expect_on(self, address: int, device: int) -> None:
        """Fail for an address that is not in memory of this device."""
        if address and not any(start <= address < end and on == device for start, end, on in self.places.values()):
            raise CUDARuntimeError(f"cudaErrorIllegalAddress: {address:#x} is no memory of device {device}")

    def used_bytes(self) -> int:
        """Bytes of what is alive."""
        return self.used

    def total_bytes(self) -> int:
        """The same: nothing is kept."""
        return self.used

    def free_bytes(self) -> int:
        """Bytes kept for later: none."""
        return 0

    def n_free_blocks(self) -> int:
        """Blocks kept for later: none."""
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        """There are none."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Refuse to have more bytes than that."""
        self.limit = size or 0

    def get_limit(self) -> int:
        """The limit in bytes; 0 without one."""
        return self.limit

    def malloc(self, size: int) -> MemoryPointer:
        """New memory."""
        refuse_capture("an allocation")
        memory = _full(max(int(size), 1))
        self.adopt(memory)
        return MemoryPointer(memory, 0)


class MemoryPointer:
    """``cupy.cuda.MemoryPointer``."""

    def __init__(self, mem: Any, offset: int, device: int | None = None) -> None:
        self.mem = mem
        self.ptr = mem.ctypes.data + offset
        self.device_id = state.device if device is None else device

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ctypes.data + offset, self.device_id)

    def bytes(self, count: int) -> np.ndarray:
        """The memory from here on; reading beyond its end fails."""
        start = self.ptr - self.mem.ctypes.data
        assert 0 <= start and start + count <= self.mem.nbytes, "outside of the memory"
        return np.ndarray(count, np.uint8, self.mem, start)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Set bytes when the stream gets to it."""
        enqueue(stream, lambda: self.bytes(size).fill(value))

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy bytes of the card when the stream gets to it."""
        enqueue(stream, lambda: np.copyto(self.bytes(size), src.bytes(size)))

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy bytes from the host, now."""
        refuse_capture("a copy from the host")
        get_current_stream().synchronize()
        ctypes.memmove(self.ptr, address_of(mem), size)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy to pinned memory, at the latest possible time."""
        refuse_capture("a copy to the host")
        (stream or get_current_stream()).add(lambda: ctypes.memmove(address_of(mem), self.ptr, size))


def address_of(mem: Any) -> int:
    """The address behind what CuPy takes for host memory."""
    return mem.value if isinstance(mem, ctypes.c_void_p) else int(mem)


def enqueue(stream: Any, work: Any) -> None:
    """Do work in the order of a stream, or capture it."""
    stream = stream or get_current_stream()
    if stream.captured is not None:
        stream.captured.append(work)
    else:
        stream.synchronize()
        work()


def array_at(shape: Any, dtype: Any, memptr: MemoryPointer | None, strides: Any, order: str) -> tuple[np.ndarray, int]:
    """The NumPy array behind a new array of CuPy's, and its device."""
    dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
    if memptr is None:
        found = np.empty(shape, dtype, order)  # type: ignore[call-overload]
        found.reshape(-1).view(np.uint8).fill(255)
        return found, state.device
    start = memptr.ptr - memptr.mem.ctypes.data
    return np.ndarray(shape, dtype, memptr.mem, start, strides), memptr.device_id


pool = MemoryPool()


def reset() -> None:
    """Begin without a limit, and count anew; what is alive stays."""
    pool.limit, pool.most = 0, pool.used
