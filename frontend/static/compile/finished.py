"""Programs that are kept on disk: what passes, planning and generation make of a graph is made once per machine.

They lie beside the kernels, under the digest of the graph as it is when all its functions are primitives, and of the
code of the passes and of what writes kernels. So nothing about them depends on what a user's function is called or how
it is written, but on what it computes. What does not fit, or cannot be read, is made anew.
"""
from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import kusari.ir
import kusari.passes
from kusari.codegen import generator_version
from kusari.ir import Facts, Graph, Node, Plan, Program
from kusari.ir.portable import NotPortable, digest_of, read_program, write_program
from kusari.ir.sources import digest_of_sources
from kusari.passes import (
    OPENING,
    PIPELINE,
    Account,
    Observer,
    Pass,
    name_of,
    observer_from_environment,
    plan,
    recompute,
    run_pipeline,
    switched_off,
)
from kusari.runtime import default_loader
from kusari.runtime.cache import Entry

from ... import environment
from .memory import SPEED

_WHAT = "program 1"


@functools.cache
def _version() -> str:
    return digest_of_sources(kusari.ir.__file__, kusari.passes.__file__)


def finished(graph: Graph, kept: Sequence[int], copy_in: int, copy_out: int, write: Callable[[Plan], Program],
             about: str, passes: Sequence[Pass] = PIPELINE, memory: str | float = SPEED, spent: Sequence[int] = (),
             observer: Observer | None = None) -> tuple[Plan, Program, Account | None, Callable[[Plan], None] | None]:
    """Return the plan of what ``passes`` make of ``graph``, and the program that ``write`` makes of it.

    Last comes what keeps them, with that plan or a better one; None where they have been kept before.

    Outputs at the positions ``kept`` stay in the frame; ``about`` says what ``write`` depends on besides the plan and
    its own code. The passes begin with those of ``OPENING``. With another ``memory`` than ``SPEED``, for whole steps,
    also what recomputation did; outputs number ``spent``, which come after those that are kept, may then be gone. Under
    ``SPEED`` the same where values are computed again, because that costs hardly any time. ``observer`` sees all
    passes, also where a program is kept.
    """
    def size(graph: Graph) -> int:
        return plan(graph, copy_in_below=copy_in, copy_out_below=copy_out).arena_size

    last = _Recompute(memory, size, spent)
    rest = (*passes[len(OPENING):], last)
    off = switched_off(rest)
    opening, rest = ([p for p in part if name_of(p) not in off] for part in (OPENING, rest))
    watch = observer or observer_from_environment(graph)
    known: set[Node] = set()
    opened = run_pipeline(graph, opening, watch, known)
    key = None if watch is not None else _key(opened, kept, copy_in, copy_out, [*map(name_of, (*opening, *rest))],
                                              memory, list(spent), about)
    cache = default_loader().cache
    entry = None if key is None else cache.get(key)
    if entry is not None and entry.symbol == _WHAT:
        try:
            first, _, rows = entry.code.partition(b"\n")
            numbers = json.loads(first)
            return *read_program(rows, opened, write), None if numbers is None else Account(*numbers), None
        except (ValueError, KeyError, IndexError, TypeError):
            pass
    final = run_pipeline(opened, rest, watch, known)
    did = last.did
    made = plan(final, copy_in_below=copy_in, copy_out_below=copy_out, kept=tuple([final.outputs[i] for i in kept]))
    program = write(made)

    def keep(best: Plan) -> None:
        if key is not None:
            try:
                numbers = json.dumps(None if did is None else astuple(did)).encode()
                cache.put(key, Entry(_WHAT, numbers + b"\n" + write_program(best, program, opened), Facts(_WHAT)))
            except NotPortable:
                pass
    return made, program, did, keep


class _Recompute:
    """The last pass: values are computed again where that costs hardly any time, or as ``memory`` asks for."""

    __name__ = "recompute"

    def __init__(self, memory: str | float, size: Callable[[Graph], int], spent: Sequence[int]) -> None:
        self.did: Account | None = None
        self._memory, self._size, self._spent = memory, size, spent

    def __call__(self, graph: Graph) -> Graph:
        found, self.did = recompute(graph, self._memory, self._size, self._spent)
        return found


def _key(graph: Graph, *options: Any) -> str | None:
    """Under which name it is kept; None where it is not, or where somebody wants to see how it is made."""
    if environment.text("LOG") or environment.flag("CHECK"):
        return None
    try:
        what = digest_of(graph, *options)
    except NotPortable:
        return None
    return hashlib.sha256(f"{_WHAT}\0{_version()}\0{generator_version()}\0{what}".encode()).hexdigest()
