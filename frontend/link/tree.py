"""The tree of a link with the shapes and numbers of its parameters, as a section of a report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..explanation import Section, Table
from .namespace import Attributed, entries_of

if TYPE_CHECKING:
    from ..parameter import Parameter
    from .base import Link

__all__ = ["tree", "unregistered"]

COLUMNS = ("link", "class", "parameters", "number")
GAPS_CHARACTERS = 8             # before the columns of a line
UNKNOWN_WIDTH_CHARACTERS = 120  # of a line, where there is no terminal and no variable COLUMNS
LEAST_CHARACTERS = 24           # of the column of parameters


def tree(link: Link) -> Section:
    """Return a table with a row for ``link`` and for each link below it.

    Numbers are of the parameters of a row's link and of all links below it, counted as ``count_params`` does: a link
    that has two names is counted twice. Parameters that wait for their shape count nothing. Where a link has more
    parameters than fit on the terminal's lines they go on in rows below.
    """
    every = list(_rows(link.name or "/", 0, link))
    others = sum(max(len(row[i]) for row in [COLUMNS, *every]) for i in (0, 1, 3)) + GAPS_CHARACTERS
    width = max(shutil.get_terminal_size((UNKNOWN_WIDTH_CHARACTERS, 0)).columns - others, LEAST_CHARACTERS)
    rows = [cells for row in every for cells in _wrapped(row, width)]
    count, waiting = _count(link)
    more = f", and {waiting} not initialized" if waiting else ""
    lost = [f"{line} of {path}" if path != "/" else line
            for path, each in link.namedlinks() for line in unregistered(each)]
    return Section(0, f"{type(link).__name__}: {count:,} parameters{more}", (
        Table(COLUMNS, tuple(rows)), *lost))


def unregistered(link: Link, named: bool = False) -> list[str]:
    """Return a line for each attribute of a link that is or contains a link which is no child of any.

    Args:
        link: The link.
        named: Whether to have children of other links, too, which are trained and saved where these are.
    """
    entries: Any = entries_of(link)
    children, below = entries.get("_children"), {id(each) for each in link.links()}
    way = "assigned outside init_scope()" if isinstance(children, set) else (
        "append() makes it one" if isinstance(children, list) else "only kusari.Chain has children")
    lines: list[str] = []
    for name, value in entries.items():
        several = type(value) in (list, tuple, dict)
        for x in (value.values() if type(value) is dict else value if several else (value,)):
            if isinstance(x, Attributed) and "_params" in entries_of(x) and id(x) not in below and (
                    _is_lost(link, x, named)):
                kind = type(value).__name__
                what = f"a plain {kind} of links: use kusari.ChainList or kusari.Sequential" if several else way
                subject = f"self.{name}" if several else f"self.{name} ({kind})"
                lines.append(f"not a child, neither trained nor saved: {subject}, {what}")
                break
    return lines


def _is_lost(holder: Link, link: Any, named: bool) -> bool:
    return (named or link.name is None) and all(each is not holder for each in link.links())


def _rows(label: str, depth: int, link: Link) -> Iterator[tuple[str, str, list[str], str]]:
    children = _children(link)
    entries = entries_of(link)
    own = [f"{name} {_kind(entries[name])}" for name in sorted(link._params)]
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


def _wrapped(row: tuple[str, str, list[str], str], width: int) -> list[tuple[str, str, str, str]]:
    """Return a row, and below it those for what does not fit into its column of parameters."""
    path, kind, parameters, number = row
    lines: list[str] = [""]
    for each in parameters:
        joined = f"{lines[-1]}, {each}" if lines[-1] else each
        if lines[-1] and len(joined) + 1 > width:
            lines[-1] += ","
            lines.append(each)
        else:
            lines[-1] = joined
    return [(path, kind, lines[0], number), *(("", "", line, "") for line in lines[1:])]


def _kind(parameter: Parameter) -> str:
    array: Any = parameter._array
    return "not initialized" if array is None else f"{array.dtype}{list(array.shape)}"


def _count(link: Link) -> tuple[int, int]:
    """Return the number of scalars, and that of parameters without a shape."""
    every = list(link.params())
    return sum(p._array.size for p in every if p._array is not None), sum(p._array is None for p in every)
