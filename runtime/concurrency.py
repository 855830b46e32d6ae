"""Concurrency of instructions: which run on one thread alone, and where threads have to wait for each other."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kusari.ir import External, Instruction, Node, Plan, Slot, TensorType, Value
from kusari.ir.stages import TINY, kind_of, stages

from .frame import Segment

NO_BARRIER = 1             # flag: the next instruction may begin before all threads are done with this one
WINDOW_INSTRUCTIONS = 128  # without a barrier, at most

Range = tuple[int, int, int]  # memory (external, -1: the arena, below: scratch in an external), begin, end


@dataclass(frozen=True)
class Access:
    """The memory that an instruction reads and writes; ``outside`` if it writes to arrays that exist before a run.

    Instructions with other effects, on a generator of random numbers for example, run ``alone``.
    """

    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    outside: bool
    alone: bool

    def meets(self, other: Access, given: int) -> bool:
        """Whether one of the two writes memory that the other one reads or writes.

        Arrays that exist before a run, in external buffers below ``given``, might share memory.
        """
        if self.alone or other.alone:
            return True
        if self.outside and other.touches(given) or other.outside and self.touches(given):
            return True
        return (_meet(self.writes, other.reads) or _meet(self.writes, other.writes)
                or _meet(self.reads, other.writes))

    def touches(self, given: int) -> bool:
        """Whether it reads or writes an array that exists before a run."""
        return any(0 <= memory < given for memory, _, _ in (*self.reads, *self.writes))


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in some for b in others)


def _range(slot: Slot, nbytes: int) -> Range:
    return slot.index if isinstance(slot, External) else -1, slot.offset, slot.offset + nbytes


def access(node: Node, plan: Plan, given: int, scratch: tuple[Slot, int, int] | None = None) -> Access:
    """Return the memory that the instructions of ``node`` read and write; externals below ``given`` exist before a run.

    ``scratch`` is a slot, the offset of the node's scratch behind it, and its bytes.
    """
    def ranges(values: Sequence[Value]) -> tuple[Range, ...]:
        return tuple([_range(plan.slots[v], v.tensor.nbytes) for v in values if isinstance(v.type, TensorType)])
    reads, writes = ranges(node.inputs), ranges(node.inputs[:1] if node.op.writes else node.outputs)
    outside = any(0 <= memory < given for memory, _, _ in writes)
    if scratch is not None:
        slot, start, size = scratch
        if isinstance(slot, External):  # it begins where that array is aligned: no write to any of it is allowed
            reads = (*reads, (slot.index, 0, plan.externals[slot.index].tensor.nbytes))
            writes = (*writes, (-2 - slot.index, start, start + size))
        else:
            writes = (*writes, (-1, slot.offset + start, slot.offset + start + size))
    return Access(reads, writes, outside, node.has_effect and not node.op.writes)


def stages_of(instructions: Sequence[Instruction], plan: Plan, given: int) -> list[list[int]]:
    """Return the native instructions (by number) that may run concurrently, in groups of two or more neighbours.

    They are of one stage, each the only one of its node, and none writes memory that another reads or writes.
    """
    stage = {v: own for node, own in zip(plan.graph.nodes, stages(plan.graph), strict=True) for v in node.outputs}
    count: dict[Node, int] = {}
    for instruction in instructions:
        count[instruction.node] = count.get(instruction.node, 0) + 1
    groups: list[list[int]] = []
    members: list[Access] = []
    span = (-1, -1)
    for i, instruction in enumerate(instructions):
        own = stage[instruction.node.outputs[0]] if instruction.node.outputs else (i, i)
        if own[0] == own[1] or count[instruction.node] > 1:
            continue
        here = access(instruction.node, plan, given)
        follows = bool(groups) and own == span and groups[-1][-1] == i - 1
        if not follows or any(here.meets(other, given) for other in members):
            groups.append([])
            members, span = [], own
        groups[-1].append(i)
        members.append(here)
    return [group for group in groups if len(group) > 1]


def launch_flags(instructions: Sequence[Instruction], plan: Plan, given: int, groups: Sequence[Sequence[int]],
                 steps: Sequence[Segment], scratch: Mapping[int, tuple[Slot, int, int]]) -> list[int]:
    """Return the flags of each native instruction: see ``thread_pool``.

    Of a group each thread takes as many instructions as any other, and the rest is shared. A tiny instruction runs on
    the thread that ran the one it depends on. Threads wait for each other where one is to read or write memory that
    another has written, or to write memory that another reads.
    """
    flags = [0] * len(instructions)
    grouped = {group[0]: group for group in groups}
    for step in steps:
        n, i = step.threads, step.first
        end = step.first + step.count if n > 1 else step.first
        recent: list[tuple[Access, int]] = []  # accesses since the last barrier, with their threads
        while i < end:
            group = [k for k in grouped.get(i, (i,)) if k < end]
            here = [access(instructions[k].node, plan, given, scratch.get(k)) for k in group]
            found = [[owner for other, owner in recent if other.meets(one, given)] for one in here]
            tiny = kind_of(instructions[i].node) == TINY
            owners = [0] * len(group)
            if len(group) > 1:
                alone = len(group) if tiny else len(group) // n * n
                owners[:alone] = [k % n + 1 for k in range(alone)]
            elif tiny:
                owners = [found[0][-1] if found[0] and found[0][-1] else 1]
            # Instructions of a group begin together: they wait before the first of them, not for each other.
            wait = any(not owner or other != owner for owner, others in zip(owners, found, strict=True)
                       for other in others)
            if wait or len(recent) >= WINDOW_INSTRUCTIONS:
                recent = []
            elif recent:
                flags[i - 1] |= NO_BARRIER
            for k, one, owner in zip(group, here, owners, strict=True):
                if k > i and not any(other.meets(one, given) for other, _ in recent[-(k - i):]):
                    flags[k - 1] |= NO_BARRIER
                elif k > i:
                    recent = []
                recent.append((one, owner))
                flags[k] |= owner << 8
            i += len(group)
    return flags
