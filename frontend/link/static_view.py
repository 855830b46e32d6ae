"""A link's view of what its static functions did."""
from __future__ import annotations

from typing import Any

from .. import tape as _tape
from ..explanation import Explanation, Section, asks_for, checked
from .tree import tree


class StaticView:
    """Reports of an object's static functions, as ``model.static``; also accepted as Chainer's ``schedule_manager``."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def called(self) -> list[Any]:
        """The static functions that have been called for this object."""
        return [f for f in _tape.static_functions() if f.signatures(self._owner)]

    def explain(self, what: str = "summary") -> Any:
        """Return a report on the static functions that have been called for this object.

        It is an ``Explanation``: ``print`` it, or let the prompt or the notebook show it. ``what`` is

        * ``"summary"``: one screen: each signature with its schedules, or the reason why it fell back; memory; the five
          kernels that take longest, with time and share of the roof;
        * ``"model"``: the tree of links, with shapes and numbers of parameters;
        * ``"ir"``: graphs, as traced and after the passes, with the state they depend on;
        * ``"plan"``: memory and the rows of each schedule;
        * ``"kernels"``: the text of each kernel;
        * ``"all"``: everything.

        Raises:
            ValueError: for any other word.
        """
        found = [tree(self._owner)] if asks_for(checked(what), "model") else []
        called = self.called()
        if called:
            found += _tape.reports(called, self._owner, what)
        elif what != "model":
            found.append(Section(0, "no static function of this object has been called"))
        return Explanation(tuple(found))

    def end_forward(self) -> None:
        """Accepted for Chainer's sake: calls in flight have frames of their own, so nothing needs to be said."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the schedules of this object hold."""
        return sum(f.nbytes(self._owner) for f in _tape.static_functions())
