"""`Chain`, a link whose children are attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..parameter import Parameter
from .base import Link, _entry
from .namespace import entries_of
from .tree import unregistered
from .walk import Names

__all__ = ["Chain"]


def indented(lines: Iterator[tuple[str, str]]) -> str:
    """One ``(name): text,`` line per entry, the text indented below its first line."""
    return "".join(f"  ({name}): {text},\n".replace("\n", "\n  ")[:-2] for name, text in lines)


class Chain(Link):
    """A link that holds other links, its children, as attributes.

    Args:
        links: Children to register by their names.

    >>> class MLP(kusari.Chain):
    ...     def __init__(self):
    ...         super().__init__()
    ...         with self.init_scope():
    ...             self.l1 = L.Linear(3, 4)
    ...             self.l2 = L.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.l2(F.relu(self.l1(x)))
    >>> print(MLP())
    MLP(
      (l1): Linear(in_size=3, out_size=4, nobias=False),
      (l2): Linear(in_size=4, out_size=2, nobias=False),
    )
    """

    _children: Names

    def __init__(self, **links: Link) -> None:
        super().__init__()
        entries_of(self)["_children"] = Names()
        for name, link in links.items():
            self.add_link(name, link)

    def __str__(self) -> str:
        entries = entries_of(self)
        lost = unregistered(self)
        if not self._children and not lost:
            return super().__str__()
        children = indented((name, str(entries[name])) for name in sorted(self._children))
        more = "".join([f"  {line}\n" for line in lost])
        return f"{type(self).__name__}(\n{children}{more})"

    def __getitem__(self, name: str) -> Any:
        """Return the attribute (child, parameter…) ``name``."""
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Link) and entries_of(self).get("_within_init_scope"):
            if hasattr(self, name):
                raise AttributeError(f"cannot register a new link {name}: attribute exists in {type(self).__name__}")
            value.name = name
            self._children.add(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._children.discard(name)
        super().__delattr__(name)

    def add_link(self, name: str, link: Link) -> None:
        """Register a child link.

        Raises:
            AttributeError: The chain has an attribute of this name.
            TypeError: ``link`` is not a link, or ``name`` not a string.
        """
        if name in entries_of(self):
            raise AttributeError(f"cannot register a new link {name}: attribute exists in {type(self).__name__}")
        if not isinstance(link, Link):
            raise TypeError(f"cannot register a non-link object as a child: {name} is of {type(link)}")
        with self.init_scope():
            setattr(self, name, link)

    def _child_entries(self) -> Iterator[tuple[str, Any]]:
        entries = entries_of(self)
        for name in sorted(self._children):
            yield name, entries[name]

    def _share(self) -> Any:
        copied = super()._share()
        entries = entries_of(copied)
        entries["_children"] = Names(self._children)
        for name in copied._children:
            child = entries[name].copy("share")
            child.name = name
            entries[name] = child
        return copied

    def params(self, include_uninit: bool = True) -> Iterator[Parameter]:
        """Yield all parameters; see :meth:`Link.params <kusari.Link.params>`."""
        yield from super().params(include_uninit)
        for _, child in self._child_entries():
            yield from child.params(include_uninit)

    def namedparams(self, include_uninit: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield ``(path, parameter)``; see :meth:`Link.namedparams <kusari.Link.namedparams>`."""
        yield from super().namedparams(include_uninit)
        for name, child in self._child_entries():
            for path, param in child.namedparams(include_uninit):
                yield f"/{name}{path}", param

    def children(self) -> Iterator[Link]:
        """Yield the children, sorted by name."""
        for _, child in self._child_entries():
            yield child

    def links(self, skipself: bool = False) -> Iterator[Link]:
        """Yield all links; see :meth:`Link.links <kusari.Link.links>`."""
        if not skipself:
            yield self
        for _, child in self._child_entries():
            yield from child.links()

    def namedlinks(self, skipself: bool = False) -> Iterator[tuple[str, Link]]:
        """Yield ``(path, link)``; see :meth:`Link.namedlinks <kusari.Link.namedlinks>`."""
        if not skipself:
            yield "/", self
        for name, child in self._child_entries():
            yield "/" + name, child
            for path, link in child.namedlinks(True):
                yield f"/{name}{path}", link

    def copyparams(self, link: Link, copy_persistent: bool = True) -> None:
        """Copy all parameters from ``link``; see :meth:`Link.copyparams <kusari.Link.copyparams>`."""
        super().copyparams(link, copy_persistent)
        for name, child in self._child_entries():
            child.copyparams(_entry(link, name), copy_persistent)

    def addgrads(self, link: Link) -> None:
        """Add the gradients of ``link`` to those of this chain."""
        super().addgrads(link)
        for name, child in self._child_entries():
            child.addgrads(_entry(link, name))

    def serialize(self, serializer: Any) -> None:
        """Save or load parameters and persistent values, those of a child under its name."""
        super().serialize(serializer)
        for name, child in self._child_entries():
            child.serialize(serializer[name])
