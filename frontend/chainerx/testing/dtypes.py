"""Names of data types, by kind."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "all_dtypes", "float_dtypes", "integral_dtypes", "nonfloat_dtypes", "numeric_dtypes", "parametrize_dtype_specifier",
    "signed_dtypes", "signed_integral_dtypes", "unsigned_dtypes",
]

float_dtypes = ("float16", "float32", "float64")
signed_integral_dtypes = ("int8", "int16", "int32", "int64")
unsigned_dtypes = ("uint8",)
integral_dtypes = unsigned_dtypes + signed_integral_dtypes
signed_dtypes = signed_integral_dtypes + float_dtypes
nonfloat_dtypes = ("bool_", *signed_integral_dtypes, *unsigned_dtypes)
numeric_dtypes = signed_dtypes + unsigned_dtypes
all_dtypes = ("bool_", *numeric_dtypes)


def parametrize_dtype_specifier(argname: str, dtypes: Sequence[str] | None = None,
                                additional_args: Sequence[Any] | None = None) -> Any:  # fmt: skip
    """Mark a test to be run with all that may name a data type: names, dtypes, letters.

    Args:
        argname (str): The test's argument.
        dtypes (list of str): The names; None is all.
        additional_args (list): Other values.
    """
    import pytest

    names = all_dtypes if dtypes is None else dtypes
    kinds = [np.dtype("bool" if name == "bool_" else name) for name in names]
    return pytest.mark.parametrize(argname, [*names, *kinds, *[k.char for k in kinds], *(additional_args or ())])
