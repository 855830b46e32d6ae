"""Marking features whose interface may change."""
from __future__ import annotations

import warnings


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
    import kusari

    if not kusari.disable_experimental_feature_warning:
        warnings.warn(
            f"{api_name} is experimental. The interface can change in the future.", FutureWarning, stacklevel=3
        )
