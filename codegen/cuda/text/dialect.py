"""One text for two languages: headers of macros that make a kernel's text CUDA C or OpenCL C.

A text names types by their width (``f32``, ``u8``), spells functions of floats with an ``f`` at the end, and has
neither templates nor overloads. ``THREAD`` and ``BLOCK`` are numbers in a grid of one dimension. Products and sums
stay apart unless ``fmaf`` or ``fma`` joins them: compiled functions then round as define-by-run's do.

``MULTIPLY_FRAGMENTS(c, a, b, memory)`` adds to a 16 x 8 matrix the product of a 16 x 16 and a 16 x 8 matrix of halves,
which 32 neighbouring threads hold together, as the instruction ``mma.m16n8k16`` of PTX has them (ISA, "Matrix fragments
for mma.m16n8k16"). Thread ``t`` of these, with ``g = t / 4`` and ``p = t % 4``, has four sums ``c``: rows ``g`` (first
two) and ``g + 8``, columns ``2 p`` and ``2 p + 1``. Words of ``a`` and ``b`` are two neighbours along the sums, the
lower half is the first. ``a``: rows ``g`` and ``g + 8`` from term ``2 p`` on, then both from ``2 p + 8`` on; ``b``:
column ``g`` from term ``2 p`` on, and from ``2 p + 8`` on. Tensor cores do it from architecture 8.0 on. ``memory`` is
what ``MULTIPLY_MEMORY(name, threads)`` declares at the top of a kernel, for all threads of a block.
"""
from __future__ import annotations

from .library import FUNCTIONS

#: Options for NVRTC: sums and products are not contracted.
OPTIONS = ("--std=c++14", "--fmad=false")
#: Options for ``clBuildProgram``.
OPENCL_OPTIONS = ("-cl-std=CL1.2",)

_CUDA = """\
#define KERNEL(threads, resident) extern "C" __global__ void __launch_bounds__(threads, resident)
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define CONSTANT static __constant__ const
#define SHARED __shared__
#define ALIGNED_TYPE(bytes) __align__(bytes)
#define BARRIER __syncthreads()
#define BARRIER_OF_WARP __syncwarp()
#define UNROLL _Pragma("unroll")
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define INF32 __int_as_float(0x7f800000)
#define NAN32 __int_as_float(0x7fc00000)
#define INF64 __longlong_as_double(0x7ff0000000000000LL)
#define NAN64 __longlong_as_double(0x7ff8000000000000LL)
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
FUNCTION f32 half_to_float(u16 bits) {
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
FUNCTION u16 float_to_half(f32 x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
FUNCTION u16 double_to_half(f64 x) {
    u16 bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
#define MULTIPLY_MEMORY(name, threads)
#define MULTIPLY_FRAGMENTS(c, a, b, memory) multiply_fragments(c, a, b)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FUNCTION void multiply_fragments(f32 *c, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
FUNCTION void multiply_fragments(f32 *c, const u32 *a, const u32 *b) {
    const int row = THREAD % 32 / 4 * 4, column = THREAD % 4 * 8;
    UNROLL for (int k = 0; k < 8; ++k) {
        UNROLL for (int r = 0; r < 4; ++r) {
            const u32 one = __shfl_sync(0xffffffffu, a[k / 4 * 2 + r / 2], row + k % 4);
            const u32 other = __shfl_sync(0xffffffffu, b[k / 4], column + r % 2 * 4 + k % 4);
            c[r] = fmaf(half_to_float((u16)one), half_to_float((u16)other), c[r]);
            c[r] = fmaf(half_to_float((u16)(one >> 16)), half_to_float((u16)(other >> 16)), c[r]);
        }
    }
}
#endif
"""

_OPENCL = """\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL(threads, resident) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define FUNCTION static inline
#define GLOBAL __global
#define CONSTANT __constant
#define SHARED __local
#define ALIGNED_TYPE(bytes) __attribute__((aligned(bytes)))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define BARRIER_OF_WARP BARRIER
#define UNROLL
#define THREAD ((int)get_local_id(0))
#define BLOCK ((int)get_group_id(0))
#define BLOCKS ((int)get_num_groups(0))
#define INF32 as_float(0x7f800000)
#define NAN32 as_float(0x7fc00000)
#define INF64 as_double(0x7ff0000000000000L)
#define NAN64 as_double(0x7ff8000000000000L)
typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;
typedef double f64;
FUNCTION f32 half_to_float(u16 bits) {
    u8 bytes[2] __attribute__((aligned(2))) = {(u8)bits, (u8)(bits >> 8)};
    return vload_half(0, (const half *)bytes);
}
FUNCTION u16 float_to_half(f32 x) {
    u8 bytes[2] __attribute__((aligned(2)));
    vstore_half_rte(x, 0, (half *)bytes);
    return bytes[0] | (u16)bytes[1] << 8;
}
FUNCTION u16 double_to_half(f64 x) {
    u8 bytes[2] __attribute__((aligned(2)));
    vstore_half_rte(x, 0, (half *)bytes);
    return bytes[0] | (u16)bytes[1] << 8;
}
#define MULTIPLY_MEMORY(name, threads) SHARED u32 name[6 * threads];
#define MULTIPLY_FRAGMENTS(c, a, b, memory) multiply_fragments(c, a, b, memory + THREAD / 32 * 192)
FUNCTION void multiply_fragments(f32 *c, const u32 *a, const u32 *b, SHARED u32 *memory) {
    const int lane = THREAD % 32, row = lane / 4 * 4, column = lane % 4 * 8;
    BARRIER_OF_WARP;
    for (int r = 0; r < 4; ++r) memory[32 * r + lane] = a[r];
    for (int r = 0; r < 2; ++r) memory[128 + 32 * r + lane] = b[r];
    BARRIER_OF_WARP;
    for (int k = 0; k < 8; ++k) {
        for (int r = 0; r < 4; ++r) {
            const u32 one = memory[32 * (k / 4 * 2 + r / 2) + row + k % 4];
            const u32 other = memory[128 + 32 * (k / 4) + column + r % 2 * 4 + k % 4];
            c[r] = fma(half_to_float((u16)one), half_to_float((u16)other), c[r]);
            c[r] = fma(half_to_float((u16)(one >> 16)), half_to_float((u16)(other >> 16)), c[r]);
        }
    }
}
"""

_COMMON = """\
#define ADDRESS(pointer) ((u64)(size_t)(pointer))
"""


def cuda_source(text: str) -> str:
    """The whole source of a kernel for NVRTC."""
    return f"{_CUDA}{_COMMON}{text}"


def opencl_source(text: str) -> str:
    """The whole source of a kernel for OpenCL, whose functions of floats have the names of those of doubles."""
    single = "".join(f"#define {name}f {name}\n" for name in FUNCTIONS)
    return f"{_OPENCL}{_COMMON}{single}{text}"
