"""The tree of a link with the shapes and numbers of its parameters, as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..explanation import Section, Table
from .namespace import entries_of

if TYPE_CHECKING:
    from ..parameter import Parameter
    from .base import Link

__all__ = ["tree"]


def tree(link: Link) -> Section:
    """Return a table with a row for ``link`` and for each link below it.

    Numbers are of the parameters of a row's link and of all links below it, counted as ``count_params`` does: a link
    that has two names is counted twice. Parameters that wait for their shape count nothing.
    """
    rows = list(_rows(link.name or "/", 0, link))
    count, waiting = _count(link)
    more = f", and {waiting} not initialized" if waiting else ""
    return Section(0, f"{type(link).__name__}: {count:,} parameters{more}", (
        Table(("link", "class", "parameters", "number"), tuple(rows)),))


def _rows(label: str, depth: int, link: Link) -> Iterator[tuple[str, str, str, str]]:
    children = _children(link)
    entries = entries_of(link)
    own = ", ".join(f"{name} {_kind(entries[name])}" for name in sorted(link._params))
    text = type(link).__name__ if children else str(link)
    yield "  " * depth + label, text, own, f"{_count(link)[0]:,}"
    for name, child in children:
        yield from _rows(name, depth + 1, child)


def _children(link: Link) -> list[tuple[str, Link]]:
    """Return the children by name, those of a `Sequential` as its layers follow each other.

    That is not always the order of their names: see `Sequential.insert`.
    """
    named = [(path[1:], child) for path, child in link.namedlinks(True) if path.count("/") == 1]
    layers: list[Any] = entries_of(link).get("_layers", [])
    places = {id(layer): i for i, layer in enumerate(layers)}
    return sorted(named, key=lambda entry: places.get(id(entry[1]), 0))


def _kind(parameter: Parameter) -> str:
    array: Any = parameter._array
    return "not initialized" if array is None else f"{array.dtype}{list(array.shape)}"


def _count(link: Link) -> tuple[int, int]:
    """Return the number of scalars, and that of parameters without a shape."""
    every = list(link.params())
    return sum(p._array.size for p in every if p._array is not None), sum(p._array is None for p in every)
