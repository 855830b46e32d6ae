"""Texts of LLVM IR that differ in numbers only, as one text to which the numbers are given.

A text is *lifted*: cut at its integers of type i64, masks of first lanes and floating-point constants, which become
numbers between pieces. Texts with the same pieces are instances of a *form*, in which the numbers that differ are read
from slots behind all others. Invariant: a form with the numbers of an instance computes what the instance computes, in
the same order, since nothing but the place of constants is another.
"""
from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from kusari.ir import Facts, Instruction, Kernel, parts_of, with_parts

MOST_NUMBER_OPERANDS = 64  # of one kernel, each a load per launch

# Instructions that may have numbers: not those whose only literals are lanes, or whose operands are all computed.
_LINES = re.compile(
    r"^  (?:%\w+ = |(?!%))(?!insertelement|extractelement|shufflevector|load |br "
    r"|getelementptr inbounds \w+, ptr %\w+, i64 %|getelementptr inbounds ptr, ptr %slots,"
    r"|call <\d+ x \w+> @llvm\.fma\.\w+\((?:<\d+ x \w+> %\w+(?:, )?){3}\))"
    r"(?:(?P<index>(?:add|sub|mul)(?: nsw)? i64 |udiv i64 |icmp \w+ i64 |phi i64 )|(?P<address>getelementptr )"
    r"|(?P<typed>select i1 \S+ i64 |call ))?.*$", re.MULTILINE)
_INTEGERS = {"index": r"(?<=[ \[])-?\d+(?=[,\]]|$)", "address": r"(?<=i64 )-?\d+$",
             "typed": r"(?<=i64 )-?\d+(?=[,)]|$)", None: r"(?!)"}
_OTHERS = (r"|<i1 (?:true|false)(?:, i1 (?:true|false))+>"
           r"|splat \((?:float|double) 0x[0-9A-F]{16}\)"
           r"|(?<= )0x[0-9A-F]{16}(?=[,)]|$)")
_TOKENS = {(rule, others): re.compile(pattern + _OTHERS * others)
           for rule, pattern in _INTEGERS.items() for others in (False, True)}


class Kind(NamedTuple):
    """The type of a number: an ``i64``, a mask (``i1``) of so many lanes, or lanes that are all one ``float``."""

    element: str
    width: int = 1


_INDEX = Kind("i64")


class Lifted(NamedTuple):
    """A text cut at its numbers: ``pieces`` has one more element than ``numbers`` and their ``kinds``.

    Masks are given by the lanes that they have, floating-point numbers by the bits with which texts spell them.
    """

    pieces: tuple[str, ...]
    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]

    @property
    def skeleton(self) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
        """Everything but the numbers."""
        return self.pieces, self.kinds


def lift(kernel: Kernel) -> Lifted:
    """Return the text of an LLVM kernel, whose name and comments take no part, without its numbers.

    Modules of functions that other kernels have, too, keep theirs.
    """
    text, parts = parts_of(kernel.text)
    text = re.sub(rf"@{re.escape(kernel.symbol)}\b", "@any", text)
    text = re.sub(r"(?m)^;.*\n", "", text)
    pieces: list[str] = []
    kinds: list[Kind] = []
    numbers: list[int] = []
    at = 0
    for line in _LINES.finditer(text):
        rule, work = line.lastgroup, line[0]
        others = "0x" in work or "<i1 " in work
        if rule is None and not others:
            continue
        if rule == "typed" and "x i64>" in work:
            rule = None
        start = line.start()
        for found in _TOKENS[rule, others].finditer(work):
            token = found[0]
            number = _other(token, work) if token[0] in "<s" or token[1:2] == "x" else (_INDEX, int(token))
            if number is not None:
                pieces.append(text[at:start + found.start()])
                at = start + found.end()
                kinds.append(number[0])
                numbers.append(number[1])
    return Lifted((*pieces, with_parts(text[at:], parts)), tuple(kinds), tuple(numbers))


_WIDTH = re.compile(r"<(\d+) x ")


def _other(token: str, line: str) -> tuple[Kind, int] | None:
    """The kind and value of a literal of an instruction that is no integer; None for one that stays."""
    if token[0] == "<":
        return _mask(token)
    width, element = 1, "float" if "float" in line else "double"
    if token[0] == "s":
        element, token = token[len("splat ("):-1].split()
        found = _WIDTH.search(line)
        assert found is not None
        width = int(found[1])
    elif element == "float" and "double" in line:
        return None
    return Kind(element, width), int(token, 16)


@lru_cache(maxsize=1024)
def _mask(token: str) -> tuple[Kind, int] | None:
    """The same of a vector of i1."""
    count, width = token.count("true"), token.count("i1")
    return (Kind("i1", width), count) if token.rfind("true") < token.find("false") or count == width else None


class Form:
    """The common text of instances with the same pieces; numbers that are always equal are one.

    ``samples`` are instances that differ; a number in which none of them differs stays in the text. ``slots`` is the
    number of slots that instances have, behind which those of the numbers come; ``about`` begins the kernel's name.
    """

    def __init__(self, samples: Sequence[Lifted], slots: int, about: str = "kernel") -> None:
        self.first = samples[0]
        self.slots = slots
        self.samples = tuple(samples)
        rows = list(zip(*[s.numbers for s in samples], strict=True))
        known: dict[tuple[Kind, tuple[int, ...]], int] = {}
        self._places = [
            known.setdefault((kind, row), len(known)) if len(set(row)) > 1 or 0 < row[0] < kind.width else -1
            for kind, row in zip(self.first.kinds, rows, strict=True)]
        self._kinds = [kind for kind, _ in known]
        text = self._write()
        self.symbol = f"{about}_any_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self._kernel = Kernel("llvm", self.symbol, text.replace("@any", f"@{self.symbol}"))

    @property
    def count(self) -> int:
        """How many numbers are given."""
        return len(self._kinds)

    def numbers_of(self, lifted: Lifted) -> tuple[int, ...] | None:
        """Return the contents of the slots for an instance; None where it differs in other numbers as well."""
        found: list[int | None] = [None] * len(self._kinds)
        for place, own, number in zip(self._places, self.first.numbers, lifted.numbers, strict=True):
            if place < 0:
                if number != own:
                    return None
            elif found[place] is None:
                found[place] = number
            elif found[place] != number:
                return None
        given = zip(self._kinds, found, strict=True)
        return tuple([_as_slot(kind, number) for kind, number in given if number is not None])

    def kernel(self, facts: Facts) -> Kernel:
        """Return the kernel of the form for an instance with these facts."""
        return self._kernel.with_facts(replace(facts, symbol=self.symbol))

    def _write(self) -> str:
        parts = [self.first.pieces[0]]
        for place, kind, number, piece in zip(self._places, self.first.kinds, self.first.numbers,
                                              self.first.pieces[1:], strict=True):
            parts += (_literal(kind, number) if place < 0 else f"%given{place}", piece)
        return self._reading("".join(parts))

    def _reading(self, text: str) -> str:
        """Return the text with functions that read the numbers they use where they begin."""
        head, *functions = re.split(r"(?m)^(?=define )", text)
        inner = any("%given" in f for f in functions if f.startswith("define internal"))
        found = [head]
        for function in functions:
            table = "%slots"
            if function.startswith("define internal") and inner:
                table = "%table"
                function = re.sub(r"\) noinline nounwind \{", ", ptr %table) noinline nounwind {", function, count=1)
                function = function.replace("(, ptr", "(ptr")
            if inner:
                function = re.sub(r"(?m)^(  call void @any\.\w+\(.*)\)$", rf"\1, ptr {table})", function)
                function = re.sub(r"(?m)^(  call void @any\.\w+\(), ptr", r"\1ptr", function)
            used = sorted({int(n) for n in re.findall(r"%given(\d+)\b", function)})
            lines = [line for n in used for line in self._read(n, table)]
            found.append(function.replace("entry:\n", "entry:\n" + "".join(f"  {line}\n" for line in lines), 1))
        return "".join(found)

    def _read(self, n: int, table: str) -> list[str]:
        """The instructions that read number ``n``."""
        element, width = self._kinds[n]
        name = f"%given{n}"
        rows = [f"{name}.p = getelementptr inbounds ptr, ptr {table}, i64 {self.slots + n}"]
        if element == "i64":
            return [*rows, f"{name} = load i64, ptr {name}.p"]
        rows.append(f"{name}.w = load i64, ptr {name}.p")
        lane, one = ("i32" if element in ("i1", "float") else "i64"), f"{name}.w"
        if lane == "i32":
            rows.append(f"{name}.n = trunc i64 {one} to i32")
            one = f"{name}.n"
        if element != "i1":
            scalar = f"{name}.x" if width > 1 else name
            rows.append(f"{scalar} = bitcast {lane} {one} to {element}")
            one, lane = scalar, element
        if width > 1:
            rows.append(f"{name}.f = insertelement <{width} x {lane}> poison, {lane} {one}, i64 0")
            rows.append(f"{name if element != 'i1' else name + '.v'} = shufflevector <{width} x {lane}> {name}.f, "
                        f"<{width} x {lane}> poison, <{width} x i32> zeroinitializer")
        if element == "i1":
            lanes = ", ".join(f"i32 {i}" for i in range(width))
            rows.append(f"{name} = icmp ugt <{width} x i32> {name}.v, <{lanes}>")
        return rows


def _literal(kind: Kind, number: int) -> str:
    """A number as texts spell it."""
    if kind.element == "i64":
        return str(number)
    if kind.element == "i1":
        return "<" + ", ".join(["i1 true"] * number + ["i1 false"] * (kind.width - number)) + ">"
    one = f"0x{number:016X}"
    return one if kind.width == 1 else f"splat ({kind.element} {one})"


def _as_slot(kind: Kind, number: int) -> int:
    """The 64 bits of a number in a slot."""
    if kind.element == "float":
        value, = struct.unpack("<d", struct.pack("<Q", number))
        number, = struct.unpack("<I", struct.pack("<f", value))
    return number & (1 << 64) - 1


def slots_of(instruction: Instruction) -> int:
    """The number of slots of an instruction without given numbers."""
    kernel = instruction.kernel
    assert kernel is not None
    return len(instruction.operands) + instruction.reports + instruction.draws + bool(kernel.scratch or kernel.shared)
