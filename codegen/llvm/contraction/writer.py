"""Common parts of the writers of contractions: arrays, the scratch memory of a thread, epilogues."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from ..text.array import Array
from ..text.emitter import Emitter, Index
from ..text.types import memory_type
from .cycles import LINE_BYTES
from .epilogue import Epilogue
from .operand import Matrices, Results
from .tile import Tile

Plan = TypeVar("Plan")


def whole_lines(elements: int, itemsize: int) -> int:
    """The elements of the cache lines that ``elements`` of ``itemsize`` bytes need."""
    return -(-elements * itemsize // LINE_BYTES) * LINE_BYTES // itemsize


def scratch_layout(itemsize: int, *sizes: int) -> list[int]:
    """Offsets of parts of ``sizes`` elements, each on cache lines of its own, and the whole size."""
    return [0, *accumulate(whole_lines(n, itemsize) for n in sizes)]


class Writer:
    """Writes one kernel with vectors of ``width`` elements; its results are ``groups`` blocks of rows per sample.

    Its slots are ``factors`` arrays, the epilogue's operands, the outputs, and scratch.
    """

    factors = 2

    def __init__(self, em: Emitter, results: Results, width: int, groups: int = 1) -> None:
        self.em, self.results, self.width, self.groups = em, results, width, groups
        self.element, self.size = results.element, results.dtype.itemsize
        self.tile = Tile(em, self.element, width)
        self.scratch_slot = self.factors + len(results.operands) + len(results.exprs)
        self.slots: Sequence[str] = ()
        self.scratch_bytes = 0  # of each thread
        self._functions: dict[str, Emitter] = {}

    def array(self, pointer: str, em: Emitter | None = None) -> Array:
        """Elements from an address on, in this function or another one."""
        return Array(em or self.em, self.element, self.width, pointer)

    def read_slots(self) -> None:
        """Read the addresses of all operands and outputs."""
        self.slots = [self.em.slot(i) for i in range(self.scratch_slot)]

    def scratch(self, *sizes: int, shared: int = 0) -> list[Array]:
        """Parts of this thread's scratch of ``sizes`` elements; ``shared`` elements of all threads come first."""
        *places, size = scratch_layout(self.size, *sizes)
        self.scratch_bytes = size * self.size
        offset = self.em.tid * size + shared
        own = self.array(self.em.slot(self.scratch_slot)).at(offset)
        return [own.at(place) for place in places]

    def apart(self, name: str, write: Callable[..., None], *arrays: Array, numbers: Sequence[Index] = ()) -> None:
        """Write a call of the function ``name``, whose text ``write`` writes for ``arrays``, then ``numbers``, once.

        All that it depends on besides is constant: so code that several places have in common is compiled once.
        """
        function = self._functions.get(name)
        if function is None:
            names = [f"%a{i}" for i in range(len(arrays))]
            function = self._functions[name] = self.em.function(
                name, [*(f"ptr {x}" for x in names), *(f"i64 %n{i}" for i in range(len(numbers)))])
            write(*(self.array(x, function) for x in names), *function.numbers)
        self.em.call(function, *arrays, *numbers)

    def epilogue(self, sample: Index, group: Index = 0, image: Index | None = None) -> Epilogue:
        """The epilogue of one sample's group, whose rows and columns count from 0; ``image`` is their joint number."""
        em, work, slots = self.em, self.results, self.slots[self.factors:]
        reads = [em.gep(p, sample * o.batch + group * (o.row * work.m), memory_type(o.dtype))
                 for p, o in zip(slots, work.operands, strict=False)]
        image = sample * self.groups + group if image is None else image
        place = image * (work.m * work.n)
        writes = [em.gep(p, place, memory_type(d)) for p, d in zip(slots[len(reads):], work.types, strict=True)]
        return Epilogue(em, work, reads, writes)


class ProductWriter(Writer, Generic[Plan]):
    """Writes the products of a batch of matrices by ``plan``."""

    def __init__(self, em: Emitter, work: Matrices, plan: Plan) -> None:
        super().__init__(em, work, em.target.lanes(work.dtype.itemsize))
        self.work, self.plan = work, plan

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, work = self.em, self.work
        self.prepare()
        self.read_slots()
        split = work.batch < 4
        for b in em.each(*((0, work.batch) if split else em.chunk(work.batch))):
            first, second = (self.array(self.slots[slot]).at(b * step) for slot, step in (
                (work.a_slot, work.a_batch), (work.b_slot, work.b_batch)))
            self.product(self.epilogue(b), first, second, split)
        return self.scratch_bytes

    def prepare(self) -> None:
        """Write the parts that come once: the addresses of scratch memory, buffers on the stack."""
        raise NotImplementedError

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        """Write one product; if it is ``split``, threads share it, else the batch."""
        raise NotImplementedError
