"""The process-wide versions and flags by which replays know that nothing can have changed: all of them.

A version is an object compared by identity, another one after every change that it counts, so that threads cannot
confuse two. A flag is set once and stays: until then there is nothing to look for. Two counters stand elsewhere, in
layers of their own: `kusari.runtime.frame.LARGE` of large frames, and ``StandIn.writes`` of what a derivation writes.
"""
from __future__ import annotations

__all__ = [
    "Arrays", "Attributes", "Cut", "Exposed", "Given", "Modules", "Scaled", "Shared", "Structure", "Traced", "Version",
    "Whole",
]  # fmt: skip


class Version:
    """The base of versions."""

    version: object = object()


class Structure(Version):
    """Changes of the structure of any link: a set of names, or a list of children."""


class Attributes(Version):
    """Assignments to attributes of any link, and changes of structure."""


class Modules(Version):
    """Replacements of attributes of any module of ours that is watched."""


class Shared(Version):
    """Changes of a ``GlobalConfig``, which all threads share."""


class Arrays(Version):
    """Assignments of another array to a Variable that had one, or to any parameter."""


class Traced(Version):
    """Calls that run otherwise when they are made again: traced ones, and functions that follow a static call anew."""


class Flag:
    """The base of flags."""

    ever = False


class Scaled(Flag):
    """Whether gradients were ever scaled: until then nothing asks whether they are."""


class Cut(Flag):
    """Whether single results of nodes that are whole graphs were ever cut off."""


class Exposed(Flag):
    """Whether any link has been exposed, so that changes of its attributes go unseen."""


class Given(Flag):
    """Whether a Variable that a function has made was ever given a gradient by the user."""


class Whole(Flag):
    """Whether there may be nodes that stand for whole graphs: set where the module of their class is imported."""
