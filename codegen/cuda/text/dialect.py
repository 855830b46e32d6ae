"""One text for two languages: headers of macros that make a kernel's text CUDA C or OpenCL C.

A text names types by their width (``f32``, ``u8``), spells functions of floats with an ``f`` at the end, and has
neither templates nor overloads. ``THREAD`` and ``BLOCK`` are numbers in a grid of one dimension. Products and sums
stay apart unless ``fmaf`` or ``fma`` joins them: compiled functions then round as define-by-run's do.

What multiplies fragments on tensor cores stands in `multiply.py`.
"""
from __future__ import annotations

from .library import FUNCTIONS
from .multiply import cuda_multiply, opencl_multiply

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
#define FLOAT_OF(bits) __uint_as_float(bits)
#define BITS_OF(x) __float_as_uint(x)
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
#define FLOAT_OF(bits) as_float(bits)
#define BITS_OF(x) as_uint(x)
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
"""

_COMMON = """\
#define ADDRESS(pointer) ((u64)(size_t)(pointer))
"""


def cuda_source(text: str) -> str:
    """The whole source of a kernel for NVRTC."""
    return f"{_CUDA}{cuda_multiply()}{_COMMON}{text}"


def opencl_source(text: str) -> str:
    """The whole source of a kernel for OpenCL, whose functions of floats have the names of those of doubles."""
    single = "".join(f"#define {name}f {name}\n" for name in FUNCTIONS)
    return f"{_OPENCL}{opencl_multiply()}{_COMMON}{single}{text}"
