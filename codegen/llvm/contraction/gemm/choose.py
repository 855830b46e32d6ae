"""Which algorithm computes a matrix product: that of the fewest cycles by count.

Costs that all of them have are left out, such as reading arrays from memory.
"""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from kusari.ir import Arg, Choice

from ....contractions import GemmSpec
from ....target import Target
from ...text.emitter import Emitter
from ..cycles import Candidate, explanation
from ..operand import Matrices
from ..writer import ProductWriter
from . import dot, lines, outer, stream

Algorithm = Literal["outer", "stream", "dot", "lines"]


def choose(spec: GemmSpec, target: Target) -> Choice:
    """Return the algorithm of the fewest cycles, whatever the epilogue.

    *outer*: a tile of rows times vectors of columns stays in registers, elements of A are broadcast from memory at
    constant offsets, B is read in panels that each thread packs if that pays. *stream*: a batch is packed, a weight
    that runs along k is not. *dot*: both operands run along k, and so do vectors. *lines*: few rows meet a matrix that
    runs along n line by line.
    """
    return explanation(candidates(matrices(replace(spec, exprs=(Arg(0),), operands=())), target))


# In the order in which equal counts are taken: the module of each algorithm, and the writer in it.
_ALGORITHMS: dict[str, tuple[Any, type[ProductWriter[Any]]]] = {
    "outer": (outer, outer.Outer), "stream": (stream, stream.Stream), "dot": (dot, dot.Dot),
    "lines": (lines, lines.Lines)}


@lru_cache(maxsize=256)
def candidates(work: Matrices, target: Target) -> list[Candidate]:
    """Return the algorithms that can compute a product, those of the fewest cycles first."""
    found = [Candidate(module.choose(work, target).cycles, name)
             for name, (module, _) in _ALGORITHMS.items() if name == "outer" or module.suits(work, target)]
    return sorted(found, key=lambda c: c.cycles)


def writer_of(em: Emitter, work: Matrices, algorithm: str) -> ProductWriter[Any]:
    """The writer of a product by an algorithm, which suits it."""
    module, writer = _ALGORITHMS[algorithm]
    return writer(em, work, module.choose(work, em.target))


def matrices(spec: GemmSpec) -> Matrices:
    """Strides in place of flags; a single column becomes a single row, whose memory is the same."""
    a_row, a_k = (1, spec.m) if spec.transa else (spec.k, 1)
    b_k, b_column = (1, spec.k) if spec.transb else (spec.n, 1)
    work = Matrices(
        spec.m, spec.n, spec.batch, spec.dtype, spec.exprs, spec.operands, spec.k, a_slot=0, b_slot=1,
        a_row=a_row, a_k=a_k, b_k=b_k, b_column=b_column,
        a_batch=spec.stride_a if spec.stride_a is not None else spec.m * spec.k,
        b_batch=spec.stride_b if spec.stride_b is not None else spec.k * spec.n)
    if spec.n == 1 and spec.m > 1:
        work = replace(
            work, m=spec.n, n=spec.m, a_slot=1, b_slot=0, a_row=b_column, a_k=b_k, b_k=a_k, b_column=a_row,
            a_batch=work.b_batch, b_batch=work.a_batch,
            operands=tuple(replace(o, row=o.column, column=o.row) for o in work.operands))
    return work
