"""Copies that are kept on disk, beside the kernels, under the digest of the code that they are copies of.

The code says all that a copy depends on: its names, constants and lines, and the file that it is of. So another process
needs no source for it.
"""
from __future__ import annotations

import functools
import hashlib
import importlib.util
import marshal
import sys
from pathlib import Path
from types import CodeType

from kusari.ir import Facts
from kusari.ir.sources import digest_of_sources
from kusari.runtime.cache import Entry, ObjectCache, default_directory

_WHAT = "copy 1"
_WITHOUT_REFERENCES = 0  # the version of marshal's format whose bytes are the same in every process


@functools.cache
def _version() -> bytes:
    return f"{_WHAT}\0{sys.version}\0{digest_of_sources(__file__)}\0".encode() + importlib.util.MAGIC_NUMBER


@functools.lru_cache(maxsize=1)
def _cache(directory: Path | None) -> ObjectCache:
    """The cache in a directory, which is looked at once."""
    return ObjectCache.from_environment()


def _key(code: CodeType) -> str | None:
    try:
        return hashlib.sha256(_version() + marshal.dumps(code, _WITHOUT_REFERENCES)).hexdigest()
    except ValueError:  # a constant put there by other code
        return None


def kept(code: CodeType) -> CodeType | None:
    """Return the copy of ``code`` that some process has kept, None if there is none that can be read."""
    key = _key(code)
    entry = _cache(default_directory()).get(key) if key is not None else None
    if entry is None or entry.symbol != _WHAT:
        return None
    try:
        found = marshal.loads(entry.code)
    except (ValueError, EOFError, TypeError):
        return None
    return found if isinstance(found, CodeType) else None


def keep(code: CodeType, copy: CodeType) -> None:
    """Keep the copy of ``code`` for other processes."""
    key = _key(code)
    if key is not None:
        _cache(default_directory()).put(key, Entry(_WHAT, marshal.dumps(copy), Facts(_WHAT)))
