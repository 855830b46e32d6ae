"""The parameters below a link as a list, kept as long as the structure of links stays the same.

``cleargrads()`` and optimizers need all parameters in every iteration, and walking the hierarchy costs more than
their work on it.  A walk is kept together with the state that it depends on: (1) the *version* of the structure,
which every change of a set of names or a list of children replaces, (2) for each parameter and child the dictionary
or list it stands in, compared where an attribute of any link has been assigned since, or may have been unseen.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from ..epochs import Attributes, Modules, Structure
from .namespace import Attributed, entries_of, expose, is_exposed, replace_entries

__all__ = ["Names", "WatchedModule", "WatchedNamespace", "all_params", "changed", "watch_module"]


class WatchedModule(ModuleType):
    """A module that reports when one of its attributes is replaced or deleted."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        Modules.version = Attributes.version = object()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        Modules.version = Attributes.version = object()


def watch_module(module: ModuleType) -> None:
    """Let a module of ours report that an attribute of it was replaced."""
    if type(module) is ModuleType:
        module.__class__ = WatchedModule


def changed() -> None:
    """Say that names or children changed somewhere: every kept walk is outdated."""
    Structure.version = Attributes.version = object()


class WatchedNamespace(Attributed):
    """The base of links: assignments are seen, and so is who asks for ``__dict__``, where there may be others."""

    @property
    def __dict__(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The attributes, whose changes are not seen: static functions compare them in every call from now on."""
        if not is_exposed(self):
            expose(self)
            changed()
        return entries_of(self)

    @__dict__.setter
    def __dict__(self, entries: dict[str, Any]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        replace_entries(self, entries)
        expose(self)
        changed()

    def __getstate__(self) -> dict[str, Any]:
        return entries_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        entries_of(self).update(state)
        changed()


class Names(set[str]):
    """The names of the parameters or of the children of one link; any change outdates the kept walks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Names, (list(self),)


def _noted(method: str) -> Any:
    plain = getattr(set, method)

    def note(self: Names, *args: Any) -> Any:
        changed()
        result = plain(self, *args)
        changed()  # a walk made by another thread between the two belongs to neither
        return result

    note.__name__ = method
    return note


for _method in (
    "add discard remove pop clear update difference_update intersection_update symmetric_difference_update "
    "__ior__ __iand__ __isub__ __ixor__"
).split():
    setattr(Names, _method, _noted(_method))


def all_params(link: Any) -> list[Any]:
    """Return ``list(link.params())``, from the kept walk where that is still exact.

    As long as the parameters are the same objects, so is the list: ``is`` tells whether anything changed.

    Invariant: never differs from a new walk, provided that links are changed by attribute assignment, by their
    methods, or in ``__dict__`` (not by replacing the ``__dict__`` itself, nor by ``object.__setattr__``).
    """
    try:
        walk = link._walk
        if walk[0] is Attributes.version:
            return walk[3]
        _, version, checks, params, watched = walk
        if version is Structure.version:
            attributes = Attributes.version
            for holder, key, value in checks:
                if holder[key] is not value:
                    break
            else:
                if watched:
                    _keep(link, (attributes, version, checks, params, watched))
                return params
    except (AttributeError, KeyError, IndexError):
        pass  # never walked, or something was deleted
    version, attributes = Structure.version, Attributes.version
    params = list(link.params())
    checks = _checks(link)
    before: list[Any] = getattr(link, "_walk", _NEVER)[3]
    if len(params) == len(before) and all(map(operator.is_, params, before)):
        params = before
    # Without checks, the list is kept but walked anew each time.
    watched = checks is not None and all(map(_is_watched, link.links()))
    _keep(link, (None, None, (), params, False) if checks is None else (
        attributes if watched else None, version, checks, params, watched))
    return params


_NEVER = None, None, (), [], False
_keep: Any = vars(Attributed.__base__)["_walk"].__set__  # which is no assignment to an attribute


def _is_watched(link: Any) -> bool:
    """Whether changes of what a link holds give `Attributes` another version, as long as `Structure` has this one."""
    return not is_exposed(link) and not isinstance(entries_of(link).get("_children"), list)


def _checks(link: Any) -> tuple[tuple[Any, Any, Any], ...] | None:
    """Return the objects to compare at each use; None if a link below overrides how parameters are found."""
    found: list[tuple[Any, Any, Any]] = []
    for one in link.links():
        entries: Mapping[str, Any] = entries_of(one)
        for name in ("params", "links", "children"):
            if name in entries or getattr(getattr(type(one), name), "__module__", None) not in _OUR_MODULES:
                return None
        found.extend((entries, name, entries[name]) for name in one._params)
        children: Iterable[Any] = entries.get("_children", ())
        if isinstance(children, list):
            found.extend((children, index, child) for index, child in enumerate(children))
        else:
            found.extend((entries, name, entries[name]) for name in children)
    return tuple(found)


_OUR_MODULES = tuple(f"{__package__}.{name}" for name in ("base", "chain", "chain_list"))
