"""The result of code generation: kernels, and a table of instructions that launch them."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .graph import Node, Value

#: Ops whose kernels gather or scatter rows by number. Their status slot, of two int64 behind the operands, receives a
#: number that is out of bounds, and a 1.
GATHERS_AND_SCATTERS = frozenset(("take", "scatter_add"))
NO_INDEX = -(1 << 31)  # out of bounds also from the end: in the place of what must not count from there
#: Ops whose kernels draw random numbers: the slot that follows their operands points to the state of NumPy's global
#: Mersenne Twister, or nowhere, if the output has been drawn already.
DRAWS = frozenset(("random",))

Language = Literal["llvm", "numba", "cuda"]

_PART = "\n=== "  # between modules of LLVM IR, before the name of the function that the next one defines


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """Return a text of LLVM IR with those of ``parts``, by name: functions it calls that other texts may have, too.

    Each is a module that is compiled once. Equal names must mean equal texts.
    """
    return text + "".join([f"{_PART}{name}\n{part}" for name, part in parts.items()])


def parts_of(text: str) -> tuple[str, dict[str, str]]:
    """Return the first module of a text, and its other ones by name."""
    first, *others = text.split(_PART)
    return first, {name: part for name, _, part in [other.partition("\n") for other in others]}


@dataclass(frozen=True)
class Facts:
    """The facts about a kernel, besides its code, that a schedule needs; see ``Kernel``.

    A kernel of a graphics card runs in ``blocks`` of ``threads``; if it is called ``by_table``, its only parameter is a
    table of addresses in the card's memory.
    """

    symbol: str
    scratch: int = 0
    flops: int = 0
    bytes: int = 0
    serial: bool = False
    shared: int = 0
    blocks: int = 0
    threads: int = 0
    by_table: bool = False


class Kernel:
    """One native function ``void symbol(void** slots, i64 tid, i64 nth)``; equal keys are the same kernel.

    Its slots are the instruction's operands, the status slot of ``GATHERS_AND_SCATTERS``, the generator's state of
    ``DRAWS``, then, if ``scratch`` or ``shared`` is not zero, one buffer of ``shared + nth * scratch`` bytes: first the
    memory of all threads, then a part for each thread; and behind it the numbers of a kernel for many sizes. A kernel
    of a graphics card, in ``cuda``, takes them as its parameters. Consecutive instructions of one node find in the
    buffer the contents that the previous one left. ``flops`` and ``bytes`` estimate the work of one launch, to choose
    the number of threads. ``serial`` kernels do all their work for ``tid == 0``.

    A kernel is made from its text, by ``deferred`` from a description of its work, or by ``of_key`` from its key; then
    its text is written on demand. A loader that has its code can supply its facts, and no text is written at all.
    """

    __slots__ = ("language", "key", "_text", "_facts", "_write")

    def __init__(self, language: Language, symbol: str, text: str, scratch: int = 0, flops: int = 0, bytes: int = 0,
                 serial: bool = False, shared: int = 0, blocks: int = 0, threads: int = 0,
                 by_table: bool = False) -> None:
        self.language: Language = language
        self.key = _digest("text", language, symbol, text)
        self._text: str | None = text
        self._facts: Facts | None = Facts(symbol, scratch, flops, bytes, serial, shared, blocks, threads, by_table)
        self._write: Callable[[], Kernel] | None = None

    @classmethod
    def deferred(cls, language: Language, description: str, write: Callable[[], Kernel]) -> Kernel:
        """Return the kernel that ``write`` will write; equal descriptions must mean equal texts, in any process."""
        return cls.of_key(language, _digest("what", language, description), write)

    @classmethod
    def of_key(cls, language: Language, key: str, write: Callable[[], Kernel]) -> Kernel:
        """Return a kernel with the key of one made by ``deferred``; ``write`` will write it."""
        kernel = cls.__new__(cls)
        kernel.language = language
        kernel.key = key
        kernel._text = kernel._facts = None
        kernel._write = write
        return kernel

    @property
    def text(self) -> str:
        """The source text."""
        if self._text is None:
            self._finish()
        assert self._text is not None
        return self._text

    @property
    def facts(self) -> Facts:
        """Everything but the text."""
        if self._facts is None:
            self._finish()
        assert self._facts is not None
        return self._facts

    @property
    def symbol(self) -> str:
        """Name of the function in the text."""
        return self.facts.symbol

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory per thread."""
        return self.facts.scratch

    @property
    def shared(self) -> int:
        """Bytes of scratch memory for all threads together."""
        return self.facts.shared

    @property
    def flops(self) -> int:
        """Estimated operations of one launch."""
        return self.facts.flops

    @property
    def bytes(self) -> int:
        """Estimated bytes that one launch moves."""
        return self.facts.bytes

    @property
    def serial(self) -> bool:
        """Whether one thread does all the work."""
        return self.facts.serial

    def with_facts(self, facts: Facts) -> Kernel:
        """Return the same kernel for work with other ``facts``."""
        found = self.of_key(self.language, self.key, lambda: self)
        found._text, found._facts = self.text, facts
        return found

    def drop_text(self) -> None:
        """Release the text, if it can be written again: it is needed to compile, and then for reports only."""
        if self._write is not None and self._facts is not None:
            self._text = None

    def adopt_facts(self, facts: Facts) -> None:
        """Adopt the ``facts`` of a kernel with the same key, unless this one has its own."""
        if self._facts is None:
            self._facts = facts

    def _finish(self) -> None:
        assert self._write is not None
        made = self._write()
        if made.language != self.language:
            raise ValueError(f"expected a kernel in {self.language}, {made.symbol} is written in {made.language}")
        self._text, self._facts = made.text, made.facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<{self.language} kernel {self.key[:12] if self._facts is None else self._facts.symbol}>"


def _digest(*parts: str) -> str:
    import hashlib  # with OpenSSL, which define-by-run does not need
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Choice:
    """The algorithm chosen for an instruction: its expected cost, and the costs of the others.

    Costs are cycles of one core by count; ``others`` come cheapest first.
    """

    algorithm: str
    cycles: float
    why: str
    others: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        others = ", ".join(f"{name} {cycles:.0f}" for name, cycles in self.others)
        return f"{self.algorithm}: {self.cycles:.0f} cycles by count, {self.why}" + f"; others: {others}" * bool(others)


@dataclass(frozen=True, eq=False)
class Instruction:
    """One step of a schedule: the launch of a kernel on operands (inputs, then outputs), or ``node`` run by Python.

    ``choice`` returns the reasons for this kernel, if there were others to choose from. ``numbers`` are given to a
    kernel for many sizes in slots behind all others, 64 bits each.
    """

    kernel: Kernel | None
    operands: tuple[Value, ...]
    node: Node
    choice: Callable[[], Choice] | None = None
    numbers: tuple[int, ...] = ()

    @property
    def reports(self) -> bool:
        """Whether the kernel reports indices out of bounds in a status slot."""
        return self.kernel is not None and self.node.op.name in GATHERS_AND_SCATTERS

    @property
    def draws(self) -> bool:
        """Whether the kernel draws random numbers."""
        return self.kernel is not None and self.node.op.name in DRAWS


@dataclass(frozen=True, eq=False)
class Program:
    """The instructions of a plan, in order."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first use."""
        return tuple(dict.fromkeys(r.kernel for r in self.instructions if r.kernel is not None))
