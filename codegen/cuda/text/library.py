"""Names of functions that CUDA's library and OpenCL's have in common; those of floats end in an f in CUDA."""
from __future__ import annotations

#: The library's name of each scalar function that has one.
LIBRARY = {
    "absolute": "fabs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "power": "pow",
    **{fn: fn for fn in ("exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh erf erfc "
                         "sqrt floor ceil rint").split()}}
#: All that texts call.
FUNCTIONS = (*LIBRARY.values(), "fmod", "copysign", "fma")
