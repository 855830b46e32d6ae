"""The host: the facts that kernels' texts, their object code and the number of threads depend on."""
from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kusari.ir import Facts
from kusari.ir.threads import available_cores

from .cache import Entry, ObjectCache
from .caches import cache_bytes
from .memory import discard_pages, read_only_pages, trim_heap


@lru_cache(maxsize=1)
def _import_llvm() -> Any:
    """Import LLVM's binding, which has no types, and release the pages it needs for nothing else.

    It maps 180 megabytes, of which starting it touches 40, and hardly any of that is read again.
    """
    trim_heap()
    found = importlib.import_module("llvmlite.binding")
    _loaded.append(found)
    discard_pages(code_of_llvm())
    if hasattr(os, "register_at_fork"):
        # No thread is inside LLVM when the process is copied, so the child finds it whole and its lock free.
        gate: Any = found.ffi.lib._lock
        os.register_at_fork(before=gate.__enter__, after_in_parent=gate.__exit__, after_in_child=gate.__exit__)
    return found


class _Lazy:
    """LLVM's binding, imported at the first use: with all kernels on disk that is never."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_import_llvm(), name)


_loaded: list[Any] = []
llvm: Any = _Lazy()


def code_of_llvm() -> list[tuple[int, int]]:
    """Return (address, bytes) of the code and the constants of LLVM in this process; nothing before it is loaded."""
    return _stretches() if _loaded else []


@lru_cache(maxsize=1)
def _stretches() -> list[tuple[int, int]]:
    return read_only_pages("libllvmlite")


@dataclass(frozen=True)
class HostInfo:
    """The host as LLVM sees it; ``features`` is its attribute string, ``cores`` the number this process may use.

    ``compiler`` is LLVM's version. ``l1_bytes`` and ``l2_bytes`` are one thread's share of the caches next to it.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    cores: int
    compiler: str
    l1_bytes: int
    l2_bytes: int

    def has(self, feature: str) -> bool:
        """Whether the processor has ``feature``, named as LLVM names it (``avx512f``, ``fma``, ``neon``)."""
        return f"+{feature}" in self.features.split(",")


@lru_cache(maxsize=1)
def initialize() -> None:
    """Prepare LLVM for this machine, once per process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def host() -> HostInfo:
    """Return the facts of this machine, found once per process.

    LLVM reports them. They are kept next to the kernels on disk for processes that need nothing else of LLVM, under a
    digest of the processor's own description and of LLVM's library. Without LLVM it is a processor of no features.

    >>> host().vector_bytes in (16, 32, 64)
    True
    """
    key = _host_key()
    cache = ObjectCache.from_environment()
    entry = cache.get(key) if key is not None else None
    if entry is not None and entry.symbol == _HOST:
        try:
            return HostInfo(**json.loads(entry.code), cores=available_cores())
        except (ValueError, TypeError):
            pass
    try:
        found = _ask_llvm()
    except ImportError:  # kernels of a card need none of it
        return HostInfo("unknown", "a processor", "", 16, available_cores(), "", *cache_bytes())
    if key is not None:
        facts = {k: v for k, v in asdict(found).items() if k != "cores"}
        cache.put(key, Entry(_HOST, json.dumps(facts).encode(), Facts(_HOST)))
    return found


_HOST = "host 2"
_PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def _host_key() -> str | None:
    """Return the key under which the facts of this machine are kept; None if their changes could go unnoticed."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in itertools.takewhile(str.strip, file) if line.split("\t")[0] in _PROCESSOR]
        package = importlib.util.find_spec("llvmlite")
        library = Path(package.origin or "").parent / "binding" / "libllvmlite.so" if package is not None else None
        if library is None or len(lines) < len(_PROCESSOR):
            return None
        about = library.stat()
    except (OSError, ValueError, ImportError):
        return None
    what = [_HOST, *lines, str(library), str(about.st_size), str(about.st_mtime_ns)]
    return hashlib.sha256("\0".join(what).encode()).hexdigest()


def _ask_llvm() -> HostInfo:
    initialize()
    features: dict[str, bool] = llvm.get_host_cpu_features()
    flags = ",".join(("+" if features[name] else "-") + name for name in sorted(features))
    if features.get("avx512f") and features.get("avx512vl"):
        vector_bytes = 64
    elif features.get("avx2"):
        vector_bytes = 32
    else:
        vector_bytes = 16
    return HostInfo(llvm.get_process_triple(), llvm.get_host_cpu_name(), flags, vector_bytes, available_cores(),
                    ".".join(map(str, llvm.llvm_version_info)), *cache_bytes())
