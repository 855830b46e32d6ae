"""Products of fragments, which 32 neighbouring threads hold together: by tensor cores from architecture 8.0 on.

``MULTIPLY_FRAGMENTS(kind, c, a, b, memory)`` adds to a 16 x 8 matrix the product of one with 16 rows and one with 8
columns, as the instructions ``mma.m16n8k16`` (``f16``, ``bf16``) and ``mma.m16n8k8`` (``tf32``) of PTX have them (ISA,
"Matrix fragments for mma.m16n8k16" and "mma.m16n8k8"). Thread ``t`` of these, with ``g = t / 4`` and ``p = t % 4``, has
four sums ``c``: rows ``g`` (first two) and ``g + 8``, columns ``2 p`` and ``2 p + 1``. Words of ``a`` and ``b`` are two
neighbours along the sums, the lower half is the first, or one in ``tf32``; there are eight of them. ``a``: rows ``g``
and ``g + 8`` from word ``p``, then both from word ``p + 4``; ``b``: column ``g`` from word ``p``, and from ``p + 4``.
``memory`` is what ``MULTIPLY_MEMORY(name, threads)`` declares at the top of a kernel, for all threads of a block.

``bf16_word`` and ``tf32_word`` round floats to such words, as ``cvt.rn.bf16x2.f32`` and ``cvt.rna.tf32.f32`` do: to the
nearest, of two equally near ones to the even one, or the one further from zero. Elsewhere threads exchange the same
words, and multiply by ``fma``.
"""
from __future__ import annotations

import functools

#: The end of the instruction's name, and the terms of a word as floats.
_KINDS = {
    "f16": ("m16n8k16.row.col.f32.f16.f16.f32", ("half_to_float((u16){w})", "half_to_float((u16)({w} >> 16))")),
    "bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", ("FLOAT_OF({w} << 16)", "FLOAT_OF({w} & 0xffff0000u)")),
    "tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", ("FLOAT_OF({w})",)),
}

_ROUND_BITS = """\
FUNCTION u32 bf16_bits(f32 x) {
    const u32 bits = BITS_OF(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
FUNCTION u32 bf16_word(f32 lower, f32 upper) {
    return bf16_bits(lower) | bf16_bits(upper) << 16;
}
FUNCTION u32 tf32_word(f32 x) {
    return x != x ? 0x7fffffffu : (BITS_OF(x) + 0x1000u) & ~0x1fffu;
}
"""

_ROUND = """\
FUNCTION u32 bf16_word(f32 lower, f32 upper) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(upper), "f"(lower));
    return word;
}
FUNCTION u32 tf32_word(f32 x) {
    u32 word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}
"""


def _instruction(kind: str) -> str:
    return f"""\
FUNCTION void multiply_{kind}(f32 *c, const u32 *a, const u32 *b) {{
    asm volatile("mma.sync.aligned.{_KINDS[kind][0]} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
                 "{{%0, %1, %2, %3}};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""


def _sums(kind: str, fma: str) -> str:
    """The products of the words ``one`` and ``other`` of a kind, added to ``c[r]``."""
    return "\n".join(f"            c[r] = {fma}({term.format(w='one')}, {term.format(w='other')}, c[r]);"
                     for term in _KINDS[kind][1])


def _exchanged(kind: str) -> str:
    return f"""\
FUNCTION void multiply_{kind}(f32 *c, const u32 *a, const u32 *b) {{
    const int row = THREAD % 32 / 4 * 4, column = THREAD % 4 * 8;
    UNROLL for (int k = 0; k < 8; ++k) {{
        UNROLL for (int r = 0; r < 4; ++r) {{
            const u32 one = __shfl_sync(0xffffffffu, a[k / 4 * 2 + r / 2], row + k % 4);
            const u32 other = __shfl_sync(0xffffffffu, b[k / 4], column + r % 2 * 4 + k % 4);
{_sums(kind, "fmaf")}
        }}
    }}
}}
"""


def _through_memory(kind: str) -> str:
    return f"""\
FUNCTION void multiply_{kind}(f32 *c, const u32 *a, const u32 *b, SHARED u32 *memory) {{
    const int lane = THREAD % 32, row = lane / 4 * 4, column = lane % 4 * 8;
    BARRIER_OF_WARP;
    for (int r = 0; r < 4; ++r) memory[32 * r + lane] = a[r];
    for (int r = 0; r < 2; ++r) memory[128 + 32 * r + lane] = b[r];
    BARRIER_OF_WARP;
    for (int k = 0; k < 8; ++k) {{
        for (int r = 0; r < 4; ++r) {{
            const u32 one = memory[32 * (k / 4 * 2 + r / 2) + row + k % 4];
            const u32 other = memory[128 + 32 * (k / 4) + column + r % 2 * 4 + k % 4];
{_sums(kind, "fma")}
        }}
    }}
}}
"""


@functools.cache
def cuda_multiply() -> str:
    """The macros and functions in CUDA C."""
    return f"""\
#define MULTIPLY_MEMORY(name, threads)
#define MULTIPLY_FRAGMENTS(kind, c, a, b, memory) multiply_##kind(c, a, b)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
{_ROUND}{"".join(map(_instruction, _KINDS))}#else
{_ROUND_BITS}{"".join(map(_exchanged, _KINDS))}#endif
"""


@functools.cache
def opencl_multiply() -> str:
    """The macros and functions in OpenCL C, where threads exchange words through shared memory."""
    return f"""\
#define MULTIPLY_MEMORY(name, threads) SHARED u32 name[6 * threads];
#define MULTIPLY_FRAGMENTS(kind, c, a, b, memory) multiply_##kind(c, a, b, memory + THREAD / 32 * 192)
{_ROUND_BITS}{"".join(map(_through_memory, _KINDS))}"""
