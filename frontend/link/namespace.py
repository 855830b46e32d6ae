"""The namespaces of links, and links whose attributes may change unseen.

Assignments to attributes of links give all of them another version, by which guards of static functions are tested. A
link's ``__dict__`` changes without one: from the time it is asked for, that link is exposed, and its guards are
tested in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..epochs import Exposed

__all__ = ["Attributed", "entries_of", "expose", "is_exposed", "namespace_of", "replace_entries"]


class _Slots:
    """The records of static functions on a link, outside ``__dict__``: copies and pickles do not have them."""

    __slots__ = ("_is_exposed", "_static_caches", "_walk")


class Attributed(_Slots):
    """The base of links, whose objects get a namespace."""


_descriptor: Any = vars(Attributed)["__dict__"]  # links have a property in its place
entries_of: Callable[[Any], dict[str, Any]] = _descriptor.__get__  # for code that says itself what it changes
replace_entries: Callable[[Any, dict[str, Any]], None] = _descriptor.__set__


def namespace_of(x: Any) -> dict[str, Any]:
    """Return ``vars(x)`` of any object, without exposing a link."""
    return entries_of(x) if isinstance(x, Attributed) else vars(x)


def is_exposed(link: Any) -> bool:
    """Whether the ``__dict__`` of a link has been asked for."""
    try:
        return link._is_exposed
    except AttributeError:
        return False


def expose(link: Any) -> None:
    """Note that the attributes of a link may change unseen from now on."""
    object.__setattr__(link, "_is_exposed", True)
    Exposed.ever = True
