"""The machine that code is generated for."""
from __future__ import annotations

import functools
from dataclasses import replace

from kusari.codegen import TARGETS, Target
from kusari.runtime import HostInfo, host


@functools.lru_cache(maxsize=1)
def host_target() -> Target:
    """Return the target of this process's own processor, with its caches."""
    return target_of(host())


def target_of(facts: HostInfo) -> Target:
    """The target that a machine with these facts is: its family of instructions, and the sizes of its caches."""
    family = "sse" if facts.has("sse4.1") else "generic"
    if facts.vector_bytes == 64:
        family = "avx512"
    elif facts.vector_bytes == 32 and facts.has("fma"):
        family = "avx2"
    elif facts.has("neon"):
        family = "neon"
    return replace(TARGETS[family], l1_bytes=facts.l1_bytes, l2_bytes=facts.l2_bytes)
