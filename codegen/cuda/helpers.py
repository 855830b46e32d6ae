"""Device functions that texts call; a text contains those it uses, in the order of this table."""
from __future__ import annotations

_TEXTS = {
    "half_to_float": """\
__device__ __forceinline__ float half_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
""",
    "float_to_half": """\
__device__ __forceinline__ unsigned short float_to_half(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
""",
    "round_half": """\
__device__ __forceinline__ float round_half(float x) {
    return half_to_float(float_to_half(x));
}
""",
    "round_half_double": """\
__device__ __forceinline__ float round_half_double(double x) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return half_to_float(bits);
}
""",
    "sign": """\
template <typename T> __device__ __forceinline__ T sign(T x) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x;
}
""",
    "floor_divide": """\
template <typename T> __device__ T floor_divide(T a, T b) {
    if (b == T(0)) return a / b;
    T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return copysign(T(0), a / b);
    T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
}
""",
    "remainder_": """\
template <typename T> __device__ T remainder_(T a, T b) {
    T rest = fmod(a, b);
    if (b == T(0)) return rest;
    if (rest == T(0)) return copysign(T(0), b);
    return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
}
""",
    "floor_divide_int": """\
template <typename T> __device__ T floor_divide_int(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return (T)(0ULL - (unsigned long long)a);
    T quotient = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}
""",
    "remainder_int": """\
template <typename T> __device__ T remainder_int(T a, T b) {
    if (b == 0 || b == -1) return 0;
    T rest = a % b;
    return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}
""",
    "floor_divide_unsigned": """\
template <typename T> __device__ T floor_divide_unsigned(T a, T b) {
    return b == 0 ? 0 : a / b;
}
""",
    "remainder_unsigned": """\
template <typename T> __device__ T remainder_unsigned(T a, T b) {
    return b == 0 ? 0 : a % b;
}
""",
    "power_int": """\
template <typename T> __device__ T power_int(T a, T b) {
    unsigned long long base = a, result = 1;
    for (; b > 0; b >>= 1, base *= base) if (b & 1) result *= base;
    return (T)result;
}
""",
    "power_unsigned": """\
template <typename T> __device__ T power_unsigned(T a, T b) {
    unsigned long long base = a, result = 1;
    for (; b != 0; b >>= 1, base *= base) if (b & 1) result *= base;
    return (T)result;
}
""",
    "order": """\
__device__ __forceinline__ int order(long long a, unsigned long long b) {
    return a < 0 || (unsigned long long)a < b ? -1 : (unsigned long long)a > b;
}
""",
}
_NEEDS = {"round_half": ("half_to_float", "float_to_half"), "round_half_double": ("half_to_float",)}


class Helpers:
    """Remembers which device functions a text uses."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def use(self, name: str, *args: str) -> str:
        """A call of the device function ``name``."""
        self._used.update((name, *_NEEDS.get(name, ())))
        return f"{name}({', '.join(args)})"

    def text(self) -> str:
        """The text of the functions used so far."""
        return "".join(f"{text}\n" for name, text in _TEXTS.items() if name in self._used)
