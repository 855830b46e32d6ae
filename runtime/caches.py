"""Sizes of the caches next to a processor: blocks of products and convolutions are cut to fit them."""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

#: Assumed sizes of a first- and a second-level cache that the system does not report.
ASSUMED_BYTES = (32 << 10, 1 << 20)
#: Plausible sizes: others come from odd virtual machines, and larger blocks gain nothing.
_BELIEVED_BYTES = ((8 << 10, 256 << 10), (128 << 10, 4 << 20))
_LINUX = Path("/sys/devices/system/cpu/cpu0/cache")


def cache_bytes(platform: str = sys.platform, folder: Path = _LINUX) -> tuple[int, int]:
    """Return the bytes of the first- (data) and second-level cache that one thread has.

    A cache that several processors share is divided among them. Linux reports it in ``folder``, macOS by ``sysctl``;
    elsewhere, and if the reports cannot be true, the sizes are ``ASSUMED_BYTES``.
    """
    report = {"linux": lambda: _of_linux(folder), "darwin": lambda: _of_macos(_sysctl)}.get(platform)
    found = report() if report is not None else {}
    sizes = [found.get(level, 0) for level in (1, 2)]
    first, second = (
        size if low <= size <= high else assumed if not size or size < low else high
        for size, assumed, (low, high) in zip(sizes, ASSUMED_BYTES, _BELIEVED_BYTES, strict=True))
    return first, second


def _of_linux(folder: Path) -> dict[int, int]:
    """Bytes by level, of the data caches of the first processor."""
    sizes: dict[int, int] = {}
    try:
        for cache in sorted(folder.glob("index*")):
            level, kind, size, sharing = (
                (cache / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size", "shared_cpu_list"))
            if kind in {"Data", "Unified"}:
                sizes[int(level)] = _bytes(size) // _count(sharing)
    except (OSError, ValueError):
        return {}
    return sizes


def _bytes(text: str) -> int:
    """A size as Linux writes it: ``48K``."""
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def _count(text: str) -> int:
    """Processors of a list as Linux writes it: ``0-1,4``."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


def _of_macos(ask: Callable[[str], int]) -> dict[int, int]:
    """Bytes by level; of the faster processors if there are two kinds."""
    fast = ask("hw.perflevel0.l1dcachesize"), ask("hw.perflevel0.l2cachesize")
    if all(fast):
        return {1: fast[0], 2: fast[1] // max(1, ask("hw.perflevel0.cpusperl2"))}
    return {1: ask("hw.l1dcachesize"), 2: ask("hw.l2cachesize")}


def _sysctl(name: str) -> int:
    """A number that macOS reports, or zero."""
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    value = ctypes.c_int64(0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    if call is None or call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return 0
    return value.value
