"""Keyword arguments of functions that take ``**kwargs``."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..callsite import caller
from ..pytorch_keywords import explain

__all__ = ["assert_kwargs_empty", "check_unexpected_kwargs", "parse_kwargs"]


def check_unexpected_kwargs(kwargs: Mapping[str, Any], **unexpected: str) -> None:
    """Raise ValueError with the message that ``unexpected`` has for one of ``kwargs``."""
    for name, message in unexpected.items():
        if name in kwargs:
            raise ValueError(message)


def parse_kwargs(kwargs: dict[str, Any], *name_and_values: tuple[str, Any], **unexpected: str) -> tuple[Any, ...]:
    """Take the values of keyword arguments out of ``kwargs`` and return them, in order.

    Args:
        kwargs: The arguments that were given.
        name_and_values: The names that are known, each with its default.
        unexpected: Messages for arguments that are not supported anymore.

    Raises:
        TypeError: An argument is unknown.
        ValueError: An argument is not supported anymore.

    >>> parse_kwargs({"b": 5}, ("a", 1), ("b", 2))
    (1, 5)
    """
    check_unexpected_kwargs(kwargs, **unexpected)
    known = dict(name_and_values)
    _refuse([name for name in kwargs if name not in known])
    return tuple([kwargs.pop(name, default) for name, default in name_and_values])


def assert_kwargs_empty(kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError unless ``kwargs`` is empty."""
    _refuse(list(kwargs))


def _refuse(names: list[str]) -> None:
    """Raise TypeError in the name of the function that called the one of ours."""
    if names:
        listed = ", ".join(map(repr, sorted(names)))
        error = TypeError(f"{caller(2)}() got unexpected keyword argument(s) {listed}")
        explain(error)
        raise error
