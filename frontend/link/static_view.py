"""A link's view of what its static functions did."""
from __future__ import annotations

import builtins
from typing import Any

from .. import tape as _tape


class StaticView:
    """Reports of an object's static functions, as ``model.static``; also accepted as Chainer's ``schedule_manager``."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def called(self) -> list[Any]:
        """The static functions that have been called for this object."""
        return [f for f in _tape.static_functions() if f.signatures(self._owner)]

    def explain(self, kernels: bool = True, print: bool = True) -> str:  # reads as what it does
        """Print and return graphs, plans and kernels of each schedule, or why it fell back."""
        texts = [f.report(self._owner, kernels) for f in self.called()]
        text = "\n\n".join(texts) or "no static function of this object has been called"
        if print:
            builtins.print(text)
        return text

    def end_forward(self) -> None:
        """Accepted for Chainer's sake: calls in flight have frames of their own, so nothing needs to be said."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the schedules of this object hold."""
        return sum(f.nbytes(self._owner) for f in _tape.static_functions())
