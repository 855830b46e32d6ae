"""Common parts of the writers of convolutions: arrays, scratch memory, the epilogue of a group."""
from __future__ import annotations

from typing import Generic, TypeVar

from ...text.emitter import Emitter, Index
from ...text.types import memory_type, value_type
from ..epilogue import Epilogue
from ..stage import thread_scratch
from ..tile import Tile
from .geometry import results
from .spec import ConvSpec

Plan = TypeVar("Plan")


class ConvWriter(Generic[Plan]):
    """Writes one kernel by ``plan``, with vectors of ``width`` elements."""

    def __init__(self, em: Emitter, spec: ConvSpec, plan: Plan, width: int) -> None:
        self.em, self.spec, self.plan = em, spec, plan
        self.work = results(spec)
        self.element, self.size = value_type(spec.dtype), spec.dtype.itemsize
        self.tile = Tile(em, self.element, width)

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        raise NotImplementedError

    def at(self, pointer: str, index: Index) -> str:
        """``pointer`` moved by ``index`` elements."""
        return self.em.gep(pointer, index, self.element)

    def clear(self, pointer: str, count: Index) -> None:
        """Set ``count`` elements to zero."""
        self.em.clear(pointer, self.em.mul(count, self.size))

    def scratch(self, *sizes: int) -> list[str]:
        """Read all slots; returns pointers to parts of this thread's scratch of ``sizes`` elements."""
        self.slots = [self.em.slot(i) for i in range(self.work.scratch_slot)]
        places, self.scratch_bytes = thread_scratch(self.em, self.work.scratch_slot, self.element, self.size, sizes)
        return places

    def epilogue(self, sample: Index, group: Index, image: Index | None = None) -> Epilogue:
        """The epilogue of one sample's group, whose rows and columns count from 0; ``image`` is their joint number."""
        em, work = self.em, self.work
        reads = [em.gep(p, em.add(em.mul(sample, o.batch), em.mul(group, o.row * work.m)), memory_type(o.dtype))
                 for p, o in zip(self.slots[2:], self.spec.operands, strict=False)]
        image = em.add(em.mul(sample, self.spec.groups), group) if image is None else image
        return Epilogue(em, work, reads, self.slots[2 + len(reads):], em.mul(image, work.m * work.n))

    def filters(self, group: Index) -> str:
        """The filters of a group, which are slot 1."""
        spec = self.spec
        return self.at(self.slots[1], self.em.mul(group, spec.features * spec.channels * spec.taps))
