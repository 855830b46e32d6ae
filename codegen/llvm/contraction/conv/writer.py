"""Common parts of the writers of convolutions: arrays, scratch memory, filters."""
from __future__ import annotations

from math import prod
from typing import Generic

from ....contractions import ConvSpec
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ..operand import Results
from ..writer import Plan, Writer


def results(spec: ConvSpec) -> Results:
    """The results of one group: channels as rows, positions as columns."""
    m, n = (spec.features, spec.positions) if spec.direction == "forward" else (spec.channels, prod(spec.size))
    return Results(m, n, spec.n, spec.dtype, spec.exprs, spec.operands)


class ConvWriter(Writer, Generic[Plan]):
    """Writes one kernel by ``plan``."""

    def __init__(self, em: Emitter, spec: ConvSpec, plan: Plan) -> None:
        super().__init__(em, results(spec), em.target.lanes(spec.dtype.itemsize), spec.groups)
        self.spec, self.plan = spec, plan

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        raise NotImplementedError

    def filters(self, group: Index) -> Array:
        """The filters of a group, which are slot 1."""
        spec = self.spec
        return self.array(self.slots[1]).at(group * (spec.features * spec.channels * spec.taps))
