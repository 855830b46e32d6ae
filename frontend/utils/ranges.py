"""Looking, in debug mode, for labels and indices that are out of range."""
from __future__ import annotations

from typing import Any

from ..configuration import config


def check_range(name: str, values: Any, size: int, ignored: int | None = None) -> None:
    """Raise in debug mode unless all values are at least 0 and less than ``size``, or equal to ``ignored``.

    Raises:
        ValueError: One of them is not.
    """
    if not config.debug:
        return
    wrong = (values < 0) | (values >= size)
    if ignored is not None:
        wrong &= values != ignored
    if wrong.any():
        rest = "" if ignored is None else f" or {name} == {ignored}"
        raise ValueError(f"Each `{name}` needs to satisfy `0 <= {name} < {size}`{rest}, but there is "
                         f"{values[wrong].flat[0]}.")
