"""NVIDIA's libraries on this machine: where they lie, found when a card is asked for or ``doctor`` asks."""
from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Distributions that bring a library, from CUDA 13 on: those of CUDA's own parts have no suffix any more.
_PLAIN_PACKAGES = frozenset(("nvidia-cuda-nvrtc", "nvidia-cublas"))


def package(name: str, major: int) -> str:
    """Return the distribution that brings a library for a version of CUDA, by its name without a suffix."""
    return name if major >= 13 and name in _PLAIN_PACKAGES else f"{name}-cu{major}"


def find(stem: str, major: int = 0) -> str | None:
    """Return the path or name of a shared library: of the packages ``nvidia-…``, a toolkit, CuPy's loader, the system.

    One whose file has the number ``major``, as those of CUDA's own parts do, comes before all others.
    """
    found = [path for path in _places(stem) if path.name.partition(".")[0].rstrip("0123456789_-") in (
        stem, f"lib{stem}", f"{stem}64")]
    right = [path for path in found if f".so.{major}" in path.name or f"_{major}." in path.name]
    if found:
        return str((right or found)[0])
    return _by_pathfinder(stem) or ctypes.util.find_library(stem)


def _places(stem: str) -> Iterator[Path]:
    """Files with that name in them, from folders in the order of their worth."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    kinds = ("lib", "lib/x86_64-linux-gnu", "bin", "bin/x86_64")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for kind in kinds:
            yield from sorted(folder.glob(f"*/{kind}/*{stem}*"))
    toolkit = Path(os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME") or "/usr/local/cuda")
    yield from sorted(toolkit.glob(f"lib64/lib{stem}.so*"))
    yield from sorted(toolkit.glob(f"bin/**/{stem}*.dll"))


def _by_pathfinder(stem: str) -> str | None:
    """Where the loader of CuPy 14 finds a library, which knows conda's folders, too."""
    try:
        if importlib.util.find_spec("cuda.pathfinder") is None:
            return None
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        return pathfinder.load_nvidia_dynamic_lib(stem).abs_path
    except Exception:  # of any kind: the library is not there, or cannot be loaded
        return None


def loaded(stem: str, major: int) -> ctypes.CDLL | None:
    """Load a library of CUDA's own parts, or return None; the one that the process has already comes first.

    Raises ``OSError`` where one was found that cannot be loaded.
    """
    if sys.platform.startswith("linux"):
        try:  # CuPy's own, where it has multiplied something
            return ctypes.CDLL(f"lib{stem}.so.{major}", os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            pass
    path = find(stem, major)
    return None if path is None else ctypes.CDLL(path)
