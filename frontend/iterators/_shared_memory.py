"""Examples that go from one process to another through shared memory: only what describes them is pickled and sent."""
from __future__ import annotations

import os
import pickle
import weakref
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any

__all__ = ["Slots", "pack", "unpack"]

_attached: dict[str, SharedMemory] = {}  # blocks of other processes that this one has open


class Slots:
    """A block of shared memory in slots of one size, each for one message; ``size`` 0 has none.

    A slot is taken for a task, written by the process that does it, and free again once the message is unpacked.
    """

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        self._block = SharedMemory(create=True, size=count * size) if size else None
        self._free = [i * size for i in range(count)] if size else []
        self._remove = weakref.finalize(self, _remove, self._block, os.getpid())

    def take(self) -> tuple[str, int, int] | None:
        """Return the place of a free slot: block, offset and size; None if all are taken."""
        if self._block is None or not self._free:
            return None
        return self._block.name, self._free.pop(), self.size

    def give_back(self, place: tuple[str, int, int] | None) -> None:
        """Let a slot be taken again."""
        if place is not None:
            self._free.append(place[1])

    def view(self, place: tuple[str, int, int]) -> memoryview:
        """Return the bytes of a slot."""
        assert self._block is not None
        memory: Any = self._block.buf
        return memory[place[1]:place[1] + self.size]

    def release(self) -> None:
        """Give the memory back to the system."""
        self._remove()
        self._block = None
        self._free = []


def _remove(block: SharedMemory | None, owner: int) -> None:
    """Remove a block, in the process that has made it."""
    if block is not None and os.getpid() == owner:
        block.unlink()
        with suppress(BufferError):  # what an interrupt has stopped may still hold a view of it
            block.close()


def pack(examples: Any, place: tuple[str, int, int] | None) -> tuple[bytes, list[int], list[bytes]]:
    """Return examples as a message; the data of arrays is in the slot, as far as it has room for it.

    The message is a pickle, the lengths of what is in the slot, and the data of all other arrays.
    """
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(examples, 5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    lengths: list[int] = []
    at = 0
    if place is not None:
        name, start, size = place
        if name not in _attached:
            _attached[name] = SharedMemory(name=name)
        block: Any = _attached[name].buf
        memory = block[start:start + size]
        for view in views:
            if at + view.nbytes > size:
                break
            memory[at:at + view.nbytes] = view
            lengths.append(view.nbytes)
            at += view.nbytes
        memory.release()
    return text, lengths, [bytes(view) for view in views[len(lengths):]]


def unpack(message: tuple[bytes, list[int], list[bytes]], memory: memoryview | None) -> Any:
    """Return the examples of a message, with arrays of their own."""
    text, lengths, rest = message
    buffers: list[bytearray] = []
    at = 0
    for length in lengths:
        assert memory is not None
        buffers.append(bytearray(memory[at:at + length]))
        at += length
    return pickle.loads(text, buffers=[*buffers, *map(bytearray, rest)])


def bytes_of(message: tuple[bytes, list[int], list[bytes]]) -> int:
    """Return the size of the data of a message's arrays."""
    return sum(message[1]) + sum(map(len, message[2]))
