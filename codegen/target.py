"""The machine that runs the kernels, as far as the text of a kernel depends on it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TargetName = Literal["avx512", "avx2", "sse", "neon", "generic"]


@dataclass(frozen=True)
class Target:
    """A family of vector instructions; the runtime finds out which one the host has.

    ``registers`` counts vector registers, ``vector_bytes`` their width. Without ``has_fma`` a multiply-add is two
    operations; without ``has_half`` float16 is converted by integer arithmetic. Texts for ``any_size`` have one form
    for as many sizes as they can, where others have the one that suits theirs best.
    """

    name: TargetName
    vector_bytes: int
    registers: int
    has_fma: bool = True
    has_half: bool = True
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    any_size: bool = False

    def lanes(self, itemsize: int) -> int:
        """Number of elements of ``itemsize`` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)


AVX512 = Target("avx512", 64, 32)
AVX2 = Target("avx2", 32, 16)
SSE = Target("sse", 16, 16, has_fma=False, has_half=False)
NEON = Target("neon", 16, 32)
GENERIC = Target("generic", 16, 16, has_fma=False, has_half=False)

TARGETS: dict[str, Target] = {t.name: t for t in (AVX512, AVX2, SSE, NEON, GENERIC)}
