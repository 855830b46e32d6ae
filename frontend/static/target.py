"""The machine that code is generated for."""
from __future__ import annotations

import functools

from kusari.codegen import TARGETS, Target
from kusari.runtime import host


@functools.lru_cache(maxsize=1)
def host_target() -> Target:
    """Return the target of this process's own processor."""
    facts = host()
    if facts.vector_bytes == 64:
        return TARGETS["avx512"]
    if facts.vector_bytes == 32 and facts.has("fma"):
        return TARGETS["avx2"]
    if facts.has("neon"):
        return TARGETS["neon"]
    return TARGETS["sse" if facts.has("sse4.1") else "generic"]
