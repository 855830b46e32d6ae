"""Warning of results that need not be the same in every run."""
from __future__ import annotations

import warnings

from ..configuration import config


def nondeterministic(f_name: str) -> None:
    """Warn, where ``config.warn_nondeterministic`` is true, that results need not be the same in every run.

    Args:
        f_name (str): The source of what is not.
    """
    if config.warn_nondeterministic:
        warnings.warn("Potentially non-deterministic code is being executed while config.warn_nondeterministic is set. "
                      f"Source: {f_name}", stacklevel=3)
