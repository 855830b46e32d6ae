"""How many threads this process uses: one number for the kernels' threads and for NumPy's OpenBLAS."""
from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MAX_THREADS = 255
_FOLDERS = ("../numpy.libs", ".libs", ".dylibs")  # beside NumPy on Linux and Windows, inside it on macOS
_NAMES = [(integer, f"{prefix}{{}}{suffix}") for integer, prefix, suffix in (
    (64, "scipy_", "64_"), (64, "", "64_"), (32, "scipy_", ""), (32, "", ""))]


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


def _asked() -> str:
    return os.environ.get("KUSARI_NUM_THREADS", "").strip()


def thread_limit() -> int:
    """Return the number of threads to use: ``KUSARI_NUM_THREADS``, or the cores this process may use."""
    if text := _asked():
        try:
            return max(1, min(int(text), MAX_THREADS))
        except ValueError:
            raise ValueError(f"KUSARI_NUM_THREADS must be a number of threads, got {text!r}") from None
    return min(available_cores(), MAX_THREADS)


def _libraries() -> Iterator[str]:
    """Paths where OpenBLAS may be found: NumPy's own extension, which asks its libraries, and the folders beside it."""
    extension = sys.modules.get("numpy._core._multiarray_umath")
    if extension is not None and extension.__file__:
        yield extension.__file__
    for folder in _FOLDERS:
        place = Path(np.__file__).parent / folder
        if place.is_dir():
            yield from sorted(str(p) for p in place.iterdir() if "openblas" in p.name.lower())


def openblas(*names: str) -> tuple[int, list[Any]] | None:
    """Return the width of the integers of NumPy's OpenBLAS and its functions ``names``, or None without one."""
    for path in _libraries():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for integer, form in _NAMES:
            found = [getattr(library, form.format(name), None) for name in names]
            if all(found):
                return integer, found
    return None


def limit_blas() -> None:
    """Hold OpenBLAS to ``thread_limit`` threads, or to fewer if a variable of its own says so.

    It does not know of ``KUSARI_NUM_THREADS``, nor of a container's quota. Raises ``ValueError`` as that does.
    """
    limit = thread_limit()
    found = openblas("openblas_get_num_threads", "openblas_set_num_threads")
    if found is not None:
        get, put = found[1]
        if _asked() or get() > limit:
            put(limit)
