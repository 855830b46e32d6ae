"""LLVM IR text of uniform draws from a Mersenne Twister: the numbers of NumPy's ``random_sample``, in its order.

Source: M. Matsumoto, T. Nishimura, "Mersenne Twister: A 623-dimensionally equidistributed uniform pseudo-random number
generator" (1998); two words make a double of 53 bits, as in their ``genrand_res53``.
"""
from __future__ import annotations

import numpy as np

from kusari.ir import Arg, Expr, Kernel, Node

from ...target import Target
from ..scalar.dispatch import emit_expr
from ..text.emitter import I64, Carried, Emitter, Index
from ..text.lanes import Lanes
from ..text.tiles import each_run
from ..text.types import F32

STATE_WORDS, MIDDLE_WORDS = 624, 397
_UPPER, _LOWER, _MATRIX = 0x80000000, 0x7FFFFFFF, 0x9908B0DF


def uniform_kernel(node: Node, target: Target) -> Kernel:
    """Return the kernel of a node that ``is_uniform_draw`` and its ``expr``.

    Its slots are the output and the generator's state: 624 words and the number of used ones. Without a state, a null
    pointer, it leaves the output as it is. One thread does it all, as every word depends on earlier ones.
    """
    em = Emitter("uniform", target)
    state = em.slot(1)
    present = em.value(f"icmp ne ptr {state}, null")
    first = em.value(f"and i1 {present}, {em.compare('eq', em.tid, 0)}")
    kind = node.output.tensor
    if kind.size:
        with em.only(first):
            _Draw(em, em.slot(0), state, node).write(kind.size)
    return Kernel("llvm", "uniform", em.text(), 0, 20 * kind.size, kind.nbytes, serial=True)


class _Draw:
    """Invariant: a word that waits for the one it is paired with is the first of the buffer."""

    def __init__(self, em: Emitter, output: str, state: str, node: Node) -> None:
        self.em = em
        self.width = max(2, em.target.lanes(4))
        self.output, self.state = output, state
        self.dtype = np.dtype(node.attrs["dtype"])
        self.expr: Expr = node.attrs.get("expr", Arg(0))
        self.buffer = em.value(f"alloca [{STATE_WORDS + 16} x i32], align 64", "words")

    def write(self, count: int) -> None:
        """Draw ``count`` numbers: the rest of the present block of words, then block after block."""
        em = self.em
        place = em.gep(self.state, STATE_WORDS, "i32")
        used = em.i64(f"zext i32 {em.load('i32', 1, place)} to i64")
        left = 2 * count - em.min(STATE_WORDS - used, 2 * count)
        turns = (left + (STATE_WORDS - 1)) // STATE_WORDS + 1
        state = Carried(["i64"] * 2, ["0", f"{used}"])
        for t in em.each(0, turns, carried=state):
            done, at = (I64(em, x) for x in state.values)
            begin, = em.when(em.compare("eq", t, 0), lambda at=at: [f"{at}"], self.twist, ["i64"])
            start = I64(em, begin)
            words = em.min(STATE_WORDS - start, 2 * count - done)
            waiting = em.i64(f"and i64 {done}, 1")
            self.temper(start, words, waiting)
            there = waiting + words
            self.convert(there // 2, done // 2)
            last = em.load("i32", 1, em.gep(self.buffer, em.i64(f"and i64 {there}, -2"), "i32"))
            em.store("i32", 1, last, self.buffer)
            state.values = [f"{done + words}", f"{start + words}"]
        em.store("i32", 1, em.value(f"trunc i64 {state.values[1]} to i32"), place)

    def _words(self, pointer: str, index: Index, width: int) -> Lanes:
        em = self.em
        return Lanes(em, "i32", width, em.load("i32", width, em.gep(pointer, index, "i32")))

    def _put(self, x: Lanes, pointer: str, index: Index) -> None:
        self.em.store("i32", x.width, x.ssa, self.em.gep(pointer, index, "i32"))

    def twist(self) -> list[str]:
        """The next block of words, in place; returns that none of them is used."""
        first, last = STATE_WORDS - MIDDLE_WORDS, STATE_WORDS - 1
        for lo, hi, partner in ((0, first, MIDDLE_WORDS), (first, last, MIDDLE_WORDS - STATE_WORDS)):
            whole = lo + (hi - lo) // self.width * self.width
            for begin, end, width in ((lo, whole, self.width), (whole, hi, 1)):
                for i in self.em.each(begin, end, width):
                    self._twisted(i, width, 1, partner)
        self._twisted(last, 1, -last, MIDDLE_WORDS - STATE_WORDS)
        return ["0"]

    def _twisted(self, i: Index, width: int, following: int, partner: int) -> None:
        high = self._words(self.state, i, width) & _UPPER
        y = high | self._words(self.state, i + following, width) & _LOWER
        odd = (y & 1).like(0) - (y & 1)
        x = self._words(self.state, i + partner, width)
        self._put(x ^ y.op("lshr", 1) ^ (odd & _MATRIX), self.state, i)

    def temper(self, start: Index, count: Index, to: Index) -> None:
        """Put ``count`` words of the state into the buffer, tempered."""
        for i, width, _ in each_run(self.em, 0, count, self.width):
            y = self._words(self.state, start + i, width)
            y = y ^ y.op("lshr", 11)
            y = y ^ (y.op("shl", 7) & 0x9D2C5680)
            y = y ^ (y.op("shl", 15) & 0xEFC60000)
            self._put(y ^ y.op("lshr", 18), self.buffer, to + i)

    def convert(self, count: Index, to: Index) -> None:
        """Write ``count`` pairs of the buffer as numbers."""
        em = self.em
        for i, width, _ in each_run(em, 0, count, self.width // 2):
            pairs = self._words(self.buffer, i * 2, 2 * width)
            a, b = (self._every_other(pairs, k) for k in (0, 1))
            x = a.op("lshr", 5).cast("sitofp", "double") * 67108864.0 + b.op("lshr", 6).cast("sitofp", "double")
            x = x * 2.0 ** -53
            if self.dtype == F32:
                x = x.cast("fptrunc", "float")
            y, dtype = emit_expr(em, self.expr, [x.ssa], [self.dtype], width)
            em.write(dtype, width, y, self.output, to + i)

    def _every_other(self, pairs: Lanes, k: int) -> Lanes:
        em, width = self.em, pairs.width // 2
        if width == 1:
            return Lanes(em, "i32", 1, em.lane("i32", 2, pairs.ssa, k))
        return Lanes(em, "i32", width, em.shuffle("i32", 2 * width, pairs.ssa, "poison", range(k, 2 * width, 2)))
