"""What this machine is: the facts that kernels' texts, their object code and the number of threads depend on."""
from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .memory import give_back, let_go, unwritten

MAX_THREADS = 255

def _import_llvm() -> Any:
    """Import LLVM's binding, which has no types, on memory that nobody needs any more.

    It maps 180 megabytes, of which starting it touches 40, and hardly any of that is read again.
    """
    give_back()
    found = importlib.import_module("llvmlite.binding")
    let_go(code_of_llvm())
    return found


@lru_cache(maxsize=1)
def code_of_llvm() -> list[tuple[int, int]]:
    """Return (address, bytes) of the code and the constants of LLVM in this process."""
    return unwritten("libllvmlite")


llvm: Any = _import_llvm()


@dataclass(frozen=True)
class HostInfo:
    """The host as LLVM sees it; ``features`` is its attribute string, ``cores`` what this process may use."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    cores: int

    def has(self, feature: str) -> bool:
        """Whether the processor has ``feature``, named as LLVM names it (``avx512f``, ``fma``, ``neon``)."""
        return f"+{feature}" in self.features.split(",")


def _quota() -> int | None:
    """Cores that the control group of a container grants, or None: affinity does not show such a limit."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            limit, period = file.read().split()
        return None if limit == "max" else max(1, round(int(limit) / int(period)))
    except (OSError, ValueError):
        return None


def available_cores() -> int:
    """Return how many cores this process may use: its affinity, limited by the quota of its container."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, _quota() or cores))


def thread_limit() -> int:
    """Return the number of threads to use: ``KUSARI_NUM_THREADS``, or the cores this process may use."""
    text = os.environ.get("KUSARI_NUM_THREADS", "").strip()
    if text:
        try:
            return max(1, min(int(text), MAX_THREADS))
        except ValueError:
            raise ValueError(f"KUSARI_NUM_THREADS must be a number of threads, got {text!r}") from None
    return min(available_cores(), MAX_THREADS)


@lru_cache(maxsize=1)
def initialize() -> None:
    """Prepare LLVM for this machine, once per process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def host() -> HostInfo:
    """Return the facts of this machine, found once per process.

    >>> host().vector_bytes in (16, 32, 64)
    True
    """
    initialize()
    features: dict[str, bool] = llvm.get_host_cpu_features()
    flags = ",".join(("+" if features[name] else "-") + name for name in sorted(features))
    if features.get("avx512f") and features.get("avx512vl"):
        vector_bytes = 64
    elif features.get("avx2"):
        vector_bytes = 32
    else:
        vector_bytes = 16
    return HostInfo(llvm.get_process_triple(), llvm.get_host_cpu_name(), flags, vector_bytes, available_cores())
