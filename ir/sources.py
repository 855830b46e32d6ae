"""Digests of source code: the version of a thing that is kept on disk."""
from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator

import numpy as np


def digest_of_sources(*packages: str) -> str:
    """Return a digest of the source files of packages, each given by a file in its folder: other code, other digest.

    So no change can be forgotten. NumPy takes part because it defines the dtypes of expressions. Without source files
    each process has a digest of its own.
    """
    digest = hashlib.sha256(np.__version__.encode())
    for package in packages:
        digest.update(_of_folder(os.path.dirname(package)))
    return digest.hexdigest()


@functools.cache
def _of_folder(folder: str) -> bytes:
    """The digest of a folder's sources, which are read once in a process."""
    digest = hashlib.sha256()
    found = [*_files(folder)]
    files = sorted(f for f in found if f.endswith(".py")) or sorted(f for f in found if f.endswith(".pyc"))
    if not files:
        digest.update(os.urandom(16))
    for file in files:
        with open(file, "rb", buffering=0) as source:
            digest.update(f"\0{file[len(folder):]}\0".encode() + source.read())
    return digest.digest()


def _files(folder: str) -> Iterator[str]:
    """The files in a folder and in those inside it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path
