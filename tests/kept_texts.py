"""What compilers have made of texts is kept where kernels are, under digests: other texts have other names."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def kept(folder: str, what: object, make: Callable[[], bytes]) -> bytes:
    """The result of ``make``, which ``what`` determines, from disk where it has been made before."""
    file = Path(os.environ["KUSARI_CACHE_DIR"], folder, hashlib.sha256(repr(what).encode()).hexdigest())
    try:
        return file.read_bytes()
    except FileNotFoundError:
        made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_bytes(made)
    partial.replace(file)
    return made
