"""`ChainList`, a link whose children are a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

from ..parameter import Parameter
from .base import Link
from .chain import indented
from .namespace import entries_of
from .walk import changed

__all__ = ["ChainList"]


class ChainList(Link, MutableSequence[Any]):
    """A link that holds other links, its children, in a list; it has all operations of Python lists.

    Args:
        links: The children.

    >>> links = kusari.ChainList(L.Linear(3, 4), L.Linear(4, 2))
    >>> links.append(L.Linear(2, 1, nobias=True))
    >>> [path for path, _ in links.namedparams()]
    ['/0/W', '/0/b', '/1/W', '/1/b', '/2/W']
    """

    _children: list[Link]

    def __init__(self, *links: Link) -> None:
        super().__init__()
        entries_of(self)["_children"] = []
        self._replace_children(links)

    def _replace_children(self, links: Iterable[Any]) -> None:
        """Make ``links`` the children, named by their positions."""
        links = list(links)
        for link in links:
            if not isinstance(link, Link):
                raise TypeError(f"cannot register a non-link object as a child of {type(self).__name__}: {type(link)}")
        for index, link in enumerate(links):
            link.name = str(index)
        entries_of(self)["_children"] = links
        changed()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Link) and entries_of(self).get("_within_init_scope"):
            raise TypeError(
                f'cannot register a new link within a "with chainlist.init_scope():" block: append {name} to the list'
            )
        super().__setattr__(name, value)

    def __str__(self) -> str:
        if not self._children:
            return super().__str__()
        children = indented((str(index), str(child)) for index, child in enumerate(self._children))
        return f"{type(self).__name__}(\n{children})"

    # The list

    def __getitem__(self, index: Any) -> Any:
        """Return the child at ``index``, or a list of those in a slice."""
        return self._children[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        links = list(self._children)
        links[index] = value
        self._replace_children(links)

    def __delitem__(self, index: Any) -> None:
        links = list(self._children)
        del links[index]
        self._replace_children(links)

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._children)

    def insert(self, index: int, link: Any) -> None:
        """Insert a child before ``index``."""
        links = list(self._children)
        links.insert(index, link)
        self._replace_children(links)

    def add_link(self, link: Link) -> None:
        """Append a child; the same as ``append``."""
        self.append(link)

    # The hierarchy

    def _share(self) -> Any:
        copied = super()._share()
        copied._replace_children([child.copy("share") for child in self._children])
        return copied

    def params(self, include_uninit: bool = True) -> Iterator[Parameter]:
        """Yield all parameters; see :meth:`Link.params <kusari.Link.params>`."""
        yield from super().params(include_uninit)
        for child in self._children:
            yield from child.params(include_uninit)

    def namedparams(self, include_uninit: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield ``(path, parameter)``; see :meth:`Link.namedparams <kusari.Link.namedparams>`."""
        yield from super().namedparams(include_uninit)
        for index, child in enumerate(self._children):
            for path, param in child.namedparams(include_uninit):
                yield f"/{index}{path}", param

    def children(self) -> Iterator[Link]:
        """Yield the children in order."""
        yield from self._children

    def links(self, skipself: bool = False) -> Iterator[Link]:
        """Yield all links; see :meth:`Link.links <kusari.Link.links>`."""
        if not skipself:
            yield self
        for child in self._children:
            yield from child.links()

    def namedlinks(self, skipself: bool = False) -> Iterator[tuple[str, Link]]:
        """Yield ``(path, link)``; see :meth:`Link.namedlinks <kusari.Link.namedlinks>`."""
        if not skipself:
            yield "/", self
        for index, child in enumerate(self._children):
            yield f"/{index}", child
            for path, link in child.namedlinks(True):
                yield f"/{index}{path}", link

    def _pairs(self, link: Any) -> Iterator[tuple[Link, Link]]:
        theirs = list(link.children())
        if len(theirs) != len(self._children):
            raise ValueError(
                f"both links must have the same structure: {type(self).__name__} has {len(self._children)} children, "
                f"{type(link).__name__} has {len(theirs)}"
            )
        yield from zip(self._children, theirs, strict=True)

    def copyparams(self, link: Link, copy_persistent: bool = True) -> None:
        """Copy all parameters from ``link``; see :meth:`Link.copyparams <kusari.Link.copyparams>`."""
        super().copyparams(link, copy_persistent)
        for mine, theirs in self._pairs(link):
            mine.copyparams(theirs, copy_persistent)

    def addgrads(self, link: Link) -> None:
        """Add the gradients of ``link`` to those of this list."""
        super().addgrads(link)
        for mine, theirs in self._pairs(link):
            mine.addgrads(theirs)

    def serialize(self, serializer: Any) -> None:
        """Save or load parameters and persistent values, those of a child under its position."""
        super().serialize(serializer)
        for index, child in enumerate(self._children):
            child.serialize(serializer[str(index)])
