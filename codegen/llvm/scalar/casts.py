"""Conversions between dtypes, as NumPy does them on this kind of machine."""
from __future__ import annotations

from kusari.ir import DType

from ..text.lanes import Lanes
from ..text.types import BOOL, F16, F32, F64, value_type


def as_bool(x: Lanes) -> Lanes:
    """Truth: not equal to zero; NaN is true."""
    if x.element == "i1":
        return x
    if x.element == "half":
        x = half_to_float(x)
    return x.compare("une" if x.is_float else "ne", 0)


def half_to_float(x: Lanes) -> Lanes:
    """float16 to float32, exactly."""
    if x.em.target.has_half:
        return x.cast("fpext", "float")
    bits = x.bits().cast("zext", "i32")
    size = bits & 0x7FFF
    moved = size.op("shl", 13)
    finite = (moved.cast("bitcast", "float") * 2.0 ** 112).bits()   # the product also makes denormals normal
    result = size.compare("uge", 0x7C00).choose(moved | 0x7F800000, finite)
    return (result | (bits & 0x8000).op("shl", 16)).cast("bitcast", "float")


def float_to_half(x: Lanes) -> Lanes:
    """float32 to float16, to nearest even."""
    if x.em.target.has_half:
        return x.cast("fptrunc", "half")
    bits = x.bits()
    size = bits & 0x7FFFFFFF
    # Adding 1/2 leaves the denormal's bits at the end of the sum; for the others rounding is an integer addition.
    small = (size.cast("bitcast", "float") + 0.5).bits() - size.like(0x3F000000)
    even = size.op("lshr", 13) & 1
    normal = (size + even + (0xFFF - (112 << 23))).op("lshr", 13)
    result = size.compare("ult", 0x38800000).choose(small, normal)
    result = size.compare("uge", 0x47800000).choose(size.like(0x7C00), result)
    result = size.compare("ugt", 0x7F800000).choose(size.like(0x7E00), result)
    result = result | (bits.op("lshr", 16) & 0x8000)
    return result.cast("trunc", "i16").cast("bitcast", "half")


def _double_to_half(x: Lanes) -> Lanes:
    """Through float32 rounded to odd, so that the second rounding decides as a single one would."""
    near = x.cast("fptrunc", "float")
    back = near.cast("fpext", "double")
    bits = near.bits()
    past = back.call("fabs").compare("ogt", x.call("fabs"))
    odd = (bits - past.cast("zext", "i32")) | 1
    return float_to_half(back.compare("one", x).choose(odd, bits).cast("bitcast", "float"))


def _float_to_int(x: Lanes, dtype: DType) -> Lanes:
    """Towards zero; a number out of range becomes the smallest integer, as on x86, and so in NumPy there."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "u" and bits >= 32:
        half = 2.0 ** (bits - 1)
        high = x.compare("oge", half)
        low = _truncate(high.choose(x - half, x), f"i{bits}")
        return high.choose(low ^ -(1 << (bits - 1)), low)
    middle = f"i{max(bits, 32)}"
    y = _truncate(x, middle)
    return y if bits >= 32 else y.cast("trunc", f"i{bits}")


def _truncate(x: Lanes, element: str) -> Lanes:
    limit = 2.0 ** (int(element[1:]) - 1)
    fits = x.compare("oge", -limit) & x.compare("olt", limit)
    y = fits.choose(x, 0.0).cast("fptosi", element)
    return fits.choose(y, -int(limit))


def convert(x: Lanes, source: DType, target: DType) -> Lanes:
    """``x`` of dtype ``source`` as ``target``."""
    if source == target:
        return x
    if target == BOOL:
        return as_bool(x)
    if source == F16:
        x, source = half_to_float(x), F32
        if target == F32:
            return x
    element = value_type(target)
    if target == F16:
        if source == F64:
            return _double_to_half(x)
        return float_to_half(x if source == F32 else convert(x, source, F32))
    if target.kind == "f":
        if source.kind == "f":
            return x.cast("fpext" if target.itemsize > source.itemsize else "fptrunc", element)
        return x.cast("sitofp" if source.kind == "i" else "uitofp", element)
    if source.kind == "f":
        return _float_to_int(x, target)
    if source.kind == "b" or source.itemsize < target.itemsize:
        return x.cast("sext" if source.kind == "i" else "zext", element)
    return x if source.itemsize == target.itemsize else x.cast("trunc", element)
