"""Numbers in memory that CPython changes whenever a class or a dictionary gets another attribute."""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .memory import HEADER_BYTES
from .thread_pool import default_pool

# The version tag of a class, which a change of it or of its bases takes away until the next look-up, and the number of
# entries of a dictionary. Both are part of CPython's binary interface: the fields before them have not changed.
_TAG = HEADER_BYTES + 46 * 8
_USED = HEADER_BYTES


def _tag(kind: type) -> int:
    return ctypes.c_uint32.from_address(id(kind) + _TAG).value


def _used(entries: dict[str, Any]) -> int:
    return ctypes.c_uint32.from_address(id(entries) + _USED).value


def _known_layout() -> bool:
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False

    base: Any = type("Base", (), {"x": 1})
    kind: Any = type("Kind", (base,), {})
    tags = {0}
    for changed in (base, kind):
        if hasattr(kind, "x"):  # a look-up gives it a tag
            tags.add(_tag(kind))
        changed.x = 2
        if _tag(kind) != 0:
            return False
    return len(tags) == 3 and all(_used({str(i): i for i in range(n)}) == n for n in range(9))


KNOWN_LAYOUT = _known_layout()


class Versions:
    """Compares by ``same`` the attributes of classes and dictionaries with those last noted.

    New values in a dictionary go unseen, and so does a key that goes as another comes.
    """

    def __init__(self, kinds: Sequence[type], dictionaries: Sequence[dict[str, Any]]) -> None:
        self._kinds, self._dictionaries = kinds, dictionaries
        addresses = [*[id(k) + _TAG for k in kinds], *[id(d) + _USED for d in dictionaries]]
        found = None
        if KNOWN_LAYOUT:
            with suppress(ImportError):  # of LLVM, which only the processor's kernels need: all is compared each time
                found = default_pool().alone.comparing(addresses)
        self._plan: Any = None
        self.same: Callable[[], bool] = _never
        if found is not None:
            self.same, self._plan = found

    def note(self) -> None:
        """Note the present versions."""
        if self._plan is not None:
            for i, number in enumerate([*[_tag(k) or -1 for k in self._kinds], *map(len, self._dictionaries)]):
                self._plan[2 * i + 2] = number & 0xFFFFFFFF


def _never() -> bool:
    return False
