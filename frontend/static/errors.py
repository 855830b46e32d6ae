"""Errors and warnings of static functions."""
from __future__ import annotations

from ..errors import KusariError


class StaticGraphError(KusariError, RuntimeError):
    """A static function cannot do as asked; the message names line, reason and way out."""


class StaticGraphWarning(UserWarning):
    """A static function runs define-by-run, with the reason."""


class NotCompilable(Exception):
    """An update has a part that states no expressions; the message says which."""


class Refused(NotCompilable):
    """An optimizer has such a part as it is now; it may be another later."""


class Stale(Exception):
    """An array that a schedule is bound to no longer has the type it was traced with."""
