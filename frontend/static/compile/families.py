"""Families: the programs of one function on one object that differ in extents, and the kernels they have in common.

The first two extents are compiled for themselves alone. From the third on a kernel without code is written in the form
that has the fewest variants (``Target.any_size``), and compiled once with the numbers given in which it differs from
the same kernel of earlier extents. Every program is still planned, and every text written, for its own extents: a
kernel is shared only where its text is an instance of the form, so nothing is concluded from a few extents to others.
"""
from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, cast

from kusari.codegen.numbers import MOST_NUMBER_OPERANDS, Form, Lifted, lift, slots_of
from kusari.ir import Instruction, Kernel, Plan, Program, TensorType
from kusari.runtime import Loader

ALONE_SIGNATURES = 2      # that come first are compiled for themselves
SHARED_CALLS = 10_000   # after which an extent gets kernels of its own: they gain a tenth of its time at most
MOST_VARIANT_KINDS = 16     # of one kernel

Write = Callable[[Plan], Program]


@dataclass(eq=False)
class _Variant:
    """The instances of one kernel with the same pieces, and their form, once there are two.

    Invariant: no form of the earlier ``samples`` fits a later one, so each tells numbers apart that were one, and
    none is forgotten, which would merge them again. A variant is ``hopeless`` once it would need too many numbers.
    """

    samples: list[Lifted]
    form: Form | None = None
    hopeless: bool = False

    def own(self, lifted: Lifted) -> Lifted:
        """An instance with the very pieces of the others, which are most of its memory."""
        first = self.samples[0]
        return Lifted(first.pieces, first.kinds, lifted.numbers)


@dataclass(eq=False)
class _Part:
    """One program for many extents, as a forward: its first plans, and variants of each kernel by their pieces."""

    plans: OrderedDict[Any, Plan] = field(default_factory=OrderedDict)
    variants: dict[Any, dict[Any, _Variant]] = field(default_factory=dict)
    earlier: list[dict[Any, Instruction]] | None = None


class Family:
    """The kernels that signatures have in common which differ in extents only.

    ``compiled`` and ``shared`` count the kernels of forms that were compiled, and instances that found one.
    """

    def __init__(self) -> None:
        self._parts: dict[Any, _Part] = {}
        self._lock = threading.Lock()
        self.compiled = self.shared = 0

    @property
    def shares(self) -> bool:
        """Whether some program has kernels for many extents."""
        return self.compiled > 0

    def program(self, plan: Plan, program: Program, write: Write, loader: Loader) -> Program:
        """Return ``program`` whose kernels are for many extents where they would have to be compiled.

        ``write`` writes programs in the forms that have the fewest variants.
        """
        extents = tuple([v.tensor.shape for v in plan.graph.inputs if isinstance(v.type, TensorType)])
        with self._lock:
            part = self._parts.setdefault(plan.graph.name, _Part())
            if extents in part.plans or len(part.plans) < ALONE_SIGNATURES:
                part.plans.setdefault(extents, plan)
                return program
            missing = [i for i, r in enumerate(program.instructions) if r.kernel is not None
                       and r.kernel.language == "llvm" and not loader.has(r.kernel)]
            if not missing:
                return program
            if part.earlier is None:
                part.earlier = [dict(zip(_roles(p), p.instructions, strict=True))
                                for p in map(write, part.plans.values())]
            own = write(plan)
            found = list(program.instructions)
            if len(own.instructions) == len(found):
                known: dict[Kernel, Lifted] = {}
                roles = _roles(own)
                for i in missing:
                    others = [p[roles[i]] for p in part.earlier if roles[i] in p]
                    variants = part.variants.setdefault(roles[i], {})
                    found[i] = self._instance(variants, own.instructions[i], others, known) or found[i]
            return replace(program, instructions=tuple(found))

    def _instance(self, variants: dict[Any, _Variant], own: Instruction, others: Sequence[Instruction],
                  known: dict[Kernel, Lifted]) -> Instruction | None:
        """The instruction with a kernel for many extents; None if it has to have a kernel of its own.

        ``known`` are texts of the program that have been lifted.
        """
        kernel = own.kernel
        if kernel is None:
            return None
        if not variants:
            for other in others:
                if other.kernel is not None:
                    self._add(variants, other, _lifted(other.kernel))
        lifted = known[kernel] = known.get(kernel) or _lifted(kernel)
        variant, numbers = self._add(variants, own, lifted), None
        if variant is None or variant.hopeless:
            return None
        lifted = variant.own(lifted)
        if variant.form is not None:
            numbers = variant.form.numbers_of(lifted)
        if variant.form is None or numbers is None:
            if lifted not in variant.samples:
                variant.samples.append(lifted)
            if len(variant.samples) < 2:
                return None
            form = Form(variant.samples, slots_of(own), kernel.symbol.partition("_")[0])
            if form.count > MOST_NUMBER_OPERANDS:
                variant.hopeless = True
                return None
            variant.form = form
            numbers = form.numbers_of(lifted)
            assert numbers is not None  # as it is one of the samples
            self.compiled += 1
        else:
            self.shared += 1
        return replace(own, kernel=variant.form.kernel(kernel.facts), numbers=numbers)

    def _add(self, variants: dict[Any, _Variant], instruction: Instruction, lifted: Lifted) -> _Variant | None:
        """The variant with the pieces of a text, which is the first sample of a new one; None if there are too many."""
        kernel = instruction.kernel
        assert kernel is not None
        key = lifted.skeleton, kernel.serial, slots_of(instruction)
        found = variants.get(key)
        if found is None and len(variants) < MOST_VARIANT_KINDS:
            found = variants[key] = _Variant([lifted])
        elif found is not None and found.form is None and not found.hopeless and found.own(lifted) not in found.samples:
            found.samples.append(found.own(lifted))
        return found


def _lifted(kernel: Kernel) -> Lifted:
    """The text of a kernel that will not be compiled, without its numbers."""
    found = lift(kernel)
    kernel.drop_text()
    return found


class Trial:
    """Counts the calls of a program with kernels for many extents, until it is worth kernels of its own."""

    def __init__(self, calls: int) -> None:
        self.left: Iterator[int] = repeat(0, calls)

    def is_over(self) -> bool:
        """Count a call; returns whether there have been enough."""
        return bool(next(self.left, 1))

    @classmethod
    def of(cls, compiled: Any) -> Trial | None:
        """Return a trial of a compiled graph; None where its kernels are its own."""
        program = getattr(compiled, "program", None)
        return cls(SHARED_CALLS) if program is not None and any(r.numbers for r in program.instructions) else None


def _roles(program: Program) -> list[Any]:
    """The role of each instruction in its program: its operation, the user's line, and its number among those."""
    counts: Counter[Any] = Counter()
    roles: list[Any] = []
    for r in program.instructions:
        key = r.node.op.name, r.node.where, len(r.operands)
        roles.append((*key, counts[key]))
        counts[key] += 1
    return roles


def without_extents(key: Any) -> Any:
    """Return a signature with the number of dims in place of each shape."""
    if type(key) is not tuple:
        return key
    parts = cast("tuple[Any, ...]", key)
    if parts and all([type(n) is int for n in parts]):
        return len(parts)
    return tuple(map(without_extents, parts))
