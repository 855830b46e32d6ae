"""Launches of kernels and calls of libraries, on places in the memory of a frame."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kusari.ir import Instruction


class Refused(Exception):
    """A library does not compute something: a kernel has to. The message says why."""


@dataclass(frozen=True)
class Place:
    """A place in the card's memory: ``offset`` bytes into external number ``index``, None for the frame's memory."""

    index: int | None
    offset: int


@dataclass(frozen=True)
class ForwardPlace(Place):
    """A place in the memory of a frame of ``forward``, in which external number ``index`` lies ``at`` an offset.

    It is nowhere while that external lies somewhere else.
    """

    at: int
    forward: Any


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch of a kernel: its operands as places, which are the kernel's parameters or the entries of its table.

    None is an operand that is not there. The last parameter is ``more``: the reports of the run or the flag of the
    card, of a kernel that does nothing where an index was out of bounds, or notes that. Only the last is no
    ``instruction``.
    """

    instruction: Instruction | None
    function: Any
    blocks: int
    threads: int
    places: tuple[Place | None, ...]
    table: Place | None = None
    more: Literal["", "reports", "flag"] = ""

    def start(self, addresses: tuple[int, ...], stream: Any) -> None:
        """Launch it on the current stream, which is ``stream``, on what its places are in a frame."""
        self.function((self.blocks,), (self.threads,), addresses)


@dataclass(frozen=True, eq=False)
class Call(Launch):
    """The call of a library for the work of a node, and launches ``behind`` it that finish the work.

    ``instead`` are the launches that do all of it where the library refuses, and where it has refused the call
    ``needed``, which leaves something to this one that plans do not have. The function, as it was ``chosen``, takes
    the addresses of the places, and ``room`` bytes at the last to write to; it raises ``Refused``.
    """

    chosen: Any = None
    room: int = 0
    behind: tuple[Launch, ...] = ()
    instead: tuple[Launch, ...] = ()
    needed: Call | None = None

    def start(self, addresses: tuple[int, ...], stream: Any) -> None:
        """Make the call on a stream."""
        self.function(*addresses, self.room, stream.ptr)


def with_behind(launches: Iterable[Launch]) -> list[Launch]:
    """Return launches, and behind calls the launches that finish their work."""
    return [each for launch in launches for each in (launch, *(launch.behind if isinstance(launch, Call) else ()))]


def segments(entries: Sequence[Launch | Instruction]) -> list[list[Launch] | Instruction]:
    """Return launches one after the other as lists, and rows of Python's between them."""
    found: list[list[Launch] | Instruction] = []
    for entry in entries:
        if isinstance(entry, Instruction):
            found.append(entry)
        elif found and isinstance(found[-1], list):
            found[-1].append(entry)
        else:
            found.append([entry])
    return found
