"""Converters that say which opsets they are written for."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ExportError


def support(opset_versions: Iterable[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a converter of ``func, opset_version, …``: it is told the newest of these opsets that is not too new.

    Raises:
        ExportError: All are newer than the opset that is written; raised by the converter.

    >>> convert = support((1, 6, 9))(lambda func, opset_version, *names: opset_version)
    >>> convert(None, 7), convert(None, 11)
    (6, 9)
    """
    versions = tuple(opset_versions)

    def decorate(converter: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(converter)
        def wrapper(func: Any, opset_version: int, *args: Any) -> Any:
            known = [version for version in versions if version <= opset_version]
            if not known:
                raise ExportError(f"{type(func).__name__} cannot be converted for opset {opset_version}, only from "
                                  f"{min(versions)} on")
            return converter(func, max(known), *args)
        return wrapper
    return decorate
