"""The tree of a link with the shapes and numbers of its parameters, as a section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..explanation import Section, Table
from .namespace import Attributed, entries_of

if TYPE_CHECKING:
    from ..parameter import Parameter
    from .base import Link

__all__ = ["tree", "unregistered"]


def tree(link: Link) -> Section:
    """Return a table with a row for ``link`` and for each link below it.

    Numbers are of the parameters of a row's link and of all links below it, counted as ``count_params`` does: a link
    that has two names is counted twice. Parameters that wait for their shape count nothing.
    """
    rows = [_row(path, each) for path, each in link.namedlinks()]
    count, waiting = _count(link)
    more = f", and {waiting} not initialized" if waiting else ""
    lost = [f"{line} of {path}" if path != "/" else line
            for path, each in link.namedlinks() for line in unregistered(each)]
    return Section(0, f"{type(link).__name__}: {count:,} parameters{more}", (
        Table(("link", "class", "parameters", "number"), tuple(rows)), *lost))


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
            if isinstance(x, Attributed) and id(x) not in below and _is_lost(link, x, named):
                kind = type(value).__name__
                what = f"a plain {kind} of links: use kusari.ChainList or kusari.Sequential" if several else way
                subject = f"self.{name}" if several else f"self.{name} ({kind})"
                lines.append(f"not a child, neither trained nor saved: {subject}, {what}")
                break
    return lines


def _is_lost(holder: Link, link: Any, named: bool) -> bool:
    return (named or link.name is None) and all(each is not holder for each in link.links())


def _row(path: str, link: Link) -> tuple[str, str, str, str]:
    parts = [part for part in path.split("/") if part]
    entries = entries_of(link)
    own = ", ".join(f"{name} {_kind(entries[name])}" for name in sorted(link._params))
    text = type(link).__name__ if next(link.children(), None) is not None else str(link)
    return "  " * len(parts) + (parts[-1] if parts else link.name or "/"), text, own, f"{_count(link)[0]:,}"


def _kind(parameter: Parameter) -> str:
    array: Any = parameter._array
    return "not initialized" if array is None else f"{array.dtype}{list(array.shape)}"


def _count(link: Link) -> tuple[int, int]:
    """Return the number of scalars, and that of parameters without a shape."""
    every = list(link.params())
    return sum(p._array.size for p in every if p._array is not None), sum(p._array is None for p in every)
