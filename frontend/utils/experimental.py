"""Marking features whose interface may change, and names of arguments that have changed."""
from __future__ import annotations

import sys
import warnings
from typing import Any

_PACKAGE = __name__.partition(".")[0]  # which the user sets the flag of


def experimental(api_name: str) -> None:
    """Warn that the user calls an experimental feature; ``kusari.disable_experimental_feature_warning`` silences it.

    Args:
        api_name (str): The feature's name.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     experimental("kusari.foo")
        >>> str(caught[0].message)
        'kusari.foo is experimental. The interface can change in the future.'
    """
    if not sys.modules[_PACKAGE].disable_experimental_feature_warning:
        warnings.warn(
            f"{api_name} is experimental. The interface can change in the future.", FutureWarning, stacklevel=3
        )


def renamed(kwargs: dict[str, Any], old: str, new: str, value: Any) -> Any:
    """Return an argument that was renamed: ``kwargs[old]``, with a warning, or else ``value``.

    Raises:
        TypeError: There is anything else among ``kwargs``.
    """
    if old in kwargs:
        warnings.warn(
            f"Argument `{old}` is deprecated. Please use `{new}` instead", DeprecationWarning, stacklevel=3
        )
        value = kwargs.pop(old)
    if kwargs:
        raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
    return value
