"""Groups of 32 threads that multiply fragments together, by tensor cores where there are any.

Factors lie in shared memory as words of two neighbours along the sums, halves or floats rounded to bfloat16, or of one
float rounded to TF32, a line of them for each row or column of the tile. Lines begin in banks of their own for the
eight that are read at once, and every eighth line swaps groups of four words, so that neighbours along the lines are
not all written to one bank.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from kusari.ir import DType

from ..text.kernel import KernelText
from .registers import aligned, source_of
from .tiles import BLOCK_THREADS, SIDE_THREADS, STEP_WORDS, Factor, Inner, Shape, Store

LINE_WORDS = STEP_WORDS + 4      # from line to line
FRAGMENT_ROWS, FRAGMENT_COLUMNS, FRAGMENT_WORDS = 16, 8, 8  # the last ones along the sums
GROUP_COLUMNS = 4                # of groups of threads in a block, two of which lie one above the other
LEAST_ROWS = 2                   # and columns of a tile for each of a square of threads: a fragment for each group


class Fragments(Inner):
    """Sums in float32 of products of halves, or of rounded floats."""

    def __init__(self, text: KernelText, shape: Shape, dtype: DType, a: Factor, b: Factor) -> None:
        self.text, self.shape = text, shape
        rows, columns = shape.per_thread
        self.down, self.across = rows // LEAST_ROWS, columns // LEAST_ROWS  # fragments of a group
        self.factors = a, b
        self.left, self.right = (text.shared("u32", extent * SIDE_THREADS * LINE_WORDS) for extent in (rows, columns))
        self.memory = text.name("memory")
        text.line(f"MULTIPLY_MEMORY({self.memory}, {BLOCK_THREADS})")
        self.extents = rows, columns

    @property
    def sums(self) -> int:
        """The number of sums of a thread."""
        return 4 * self.down * self.across

    def begin(self) -> None:
        text = self.text
        text.line("const int group = THREAD % 32 / 4, pair = THREAD % 4;")
        text.line(f"const int high = THREAD / {32 * GROUP_COLUMNS} * {FRAGMENT_ROWS * self.down}, "
                  f"wide = THREAD / 32 % {GROUP_COLUMNS} * {FRAGMENT_COLUMNS * self.across};")
        text.line(f"f32 sums[{self.sums}];")
        text.line(f"UNROLL for (int i = 0; i < {self.sums}; ++i) sums[i] = 0;")
        ends, names = (self.shape.m, self.shape.n), ("row", "column")
        piece = _FloatPiece if self.factors[0].rounded else _Piece
        self.pieces = [piece(text, name, extent, end, factor, array) for name, extent, end, factor, array in zip(
            names, self.extents, ends, self.factors, (self.left, self.right), strict=True)]

    def multiply(self) -> None:
        text = self.text
        with text.block(f"UNROLL for (int step = 0; step < {STEP_WORDS // FRAGMENT_WORDS}; ++step)"):
            text.line(f"u32 other[{2 * self.across}];")
            with text.block(f"UNROLL for (int i = 0; i < {2 * self.across}; ++i)"):
                text.line(f"const int line = wide + i / 2 * {FRAGMENT_COLUMNS} + group;")
                text.line(f"other[i] = {self.right}[{_word('line', 'step * 8 + i % 2 * 4 + pair')}];")
            with text.block(f"UNROLL for (int i = 0; i < {self.down}; ++i)"):
                text.line("u32 one[4];")
                with text.block("UNROLL for (int j = 0; j < 4; ++j)"):
                    text.line(f"const int line = high + i * {FRAGMENT_ROWS} + j % 2 * 8 + group;")
                    text.line(f"one[j] = {self.left}[{_word('line', 'step * 8 + j / 2 * 4 + pair')}];")
                sums = f"sums + (i * {self.across} + j) * 4"
                text.line(f"UNROLL for (int j = 0; j < {self.across}; ++j) MULTIPLY_FRAGMENTS("
                          f"{self.factors[0].rounded or 'f16'}, {sums}, one, other + j * 2, {self.memory});")

    def results(self, store: Store) -> None:
        text, across = self.text, self.across
        with text.block(f"UNROLL for (int i = 0; i < {self.sums}; ++i)"):
            down, beside = f"i / {4 * across} * {FRAGMENT_ROWS}", f"i / 4 % {across} * {FRAGMENT_COLUMNS}"
            text.line(f"const {text.index} row = row0 + high + {down} + i % 4 / 2 * 8 + group;")
            text.line(f"const {text.index} column = column0 + wide + {beside} + pair * 2 + i % 2;")
            with text.block(f"if (row < {self.shape.m} && column < {self.shape.n})"):
                store("row", "column", "sums[i]")


def _word(line: str, word: str) -> str:
    """The place in shared memory of a word of a line."""
    return f"({line}) * {LINE_WORDS} + (({word}) ^ ({line}) / 8 % 4 * 4)"


class _Piece:
    """A piece of a factor, words of which wait in registers while the one before is used.

    A thread reads ``lanes`` neighbours at once: along the sums as they are, or of the ``terms`` of a word along the
    lines, which become the parts of words.
    """

    def __init__(self, text: KernelText, name: str, extent: int, end: int, factor: Factor, array: str) -> None:
        self.text, self.name, self.end, self.factor, self.array = text, name, end, factor, array
        self.count = extent  # words of a thread
        along, self.terms = factor.along_k, factor.terms
        self.lanes = factor.packed(self.terms * extent if along else extent)
        self.unit = max(1, self.lanes // self.terms) if along else self.lanes  # words at once
        inner = STEP_WORDS // self.unit if along else extent * SIDE_THREADS // self.unit
        fast = f"THREAD % {inner}{f' * {self.unit}' if self.unit > 1 else ''}"
        slow = f"THREAD / {inner} + i * {BLOCK_THREADS // inner}"
        self.near, self.word = (slow, fast) if along else (fast, slow)
        self.waiting = text.name("waiting")
        text.line(f"u32 {self.waiting}[{self.count}];")
        if self.lanes > 1:
            self.aligned = aligned(text, factor, self.lanes)

    def fetch(self, start: str, last: str) -> None:
        """Read this thread's words from ``start`` on; zeros from ``last`` on."""
        text, name = self.text, self.name
        with text.block(f"UNROLL for (int i = 0; i < {self.count // self.unit}; ++i)"):
            text.line(f"const {text.index} {name} = {name}0 + ({self.near}), "
                      f"term = {start} + ({self.word}) * {self.terms};")
            if self.lanes > 1 and self.factor.along_k:
                self._packs(last)
            elif self.lanes > 1:
                self._packs_of_terms(last)
            else:
                self._elements(last)

    def _elements(self, last: str) -> None:
        """One word, an element at a time."""
        text, name = self.text, self.name
        text.line("u32 word = 0;")
        with text.block("UNROLL for (int upper = 0; upper < 2; ++upper)"):
            text.line(f"const {text.index} k = term + upper;")
            with text.block(f"if ({name} < {self.end} && k < {last})"):
                text.line(f"word |= (u32)({self.factor.element(name, 'k')}) << 16 * upper;")
        text.line(f"{self.waiting}[i] = word;")

    def _packs(self, last: str) -> None:
        """Words as they lie in memory."""
        text, name = self.text, self.name
        text.line(f"UNROLL for (int w = 0; w < {self.unit}; ++w) {self.waiting}[i * {self.unit} + w] = 0;")
        with text.block(f"if ({name} < {self.end} && term < {last})"):
            self._read("term", lambda w, word: f"{self.waiting}[i * {self.unit} + {w}] = {word};")

    def _packs_of_terms(self, last: str) -> None:
        """Words of which the halves are neighbours of two terms."""
        text, name, lanes = self.text, self.name, self.lanes
        text.line(f"u32 words[{lanes}];")
        text.line(f"UNROLL for (int w = 0; w < {lanes}; ++w) words[w] = 0;")
        for half in range(2):
            with text.block(f"if ({name} < {self.end} && term + {half} < {last})"):
                place = 16 * half
                self._read(f"(term + {half})", lambda w, word, place=place: (
                    f"words[2 * {w}] |= ({word} & 0xffffu) << {place}; "
                    f"words[2 * {w} + 1] |= ({word} >> 16) << {place};"))
        text.line(f"UNROLL for (int w = 0; w < {lanes}; ++w) {self.waiting}[i * {lanes} + w] = words[w];")

    def _read(self, term: str, use: Callable[[str, str], str]) -> None:
        """Read neighbours from ``term`` on as words, and use each: ``use(number, word)`` is a statement."""
        text, count = self.text, self.lanes // 2
        assert self.factor.place is not None
        pack = text.helpers.pack("u32", count, 4)
        source = source_of(text, self.factor, self.factor.place(self.name, term))
        each = f"UNROLL for (int w = 0; w < {count}; ++w)"
        with text.block(f"if ({self.aligned})"):
            text.line(f"const {pack} found = *(GLOBAL const {pack} *){source};")
            text.line(f"{each} {{ {use('w', 'found.at[w]')} }}")
        with text.block("else"):
            word = f"({source}[2 * w] | (u32){source}[2 * w + 1] << 16)"
            text.line(f"{each} {{ {use('w', word)} }}")

    def put(self) -> None:
        """Write the words to shared memory."""
        text, unit = self.text, self.unit
        with text.block(f"UNROLL for (int i = 0; i < {self.count // unit}; ++i)"):
            text.line(f"const int near = {self.near}, word = {self.word};")
            at = _word("near", "word + w") if self.factor.along_k else _word("near + w", "word")
            text.line(f"UNROLL for (int w = 0; w < {unit}; ++w) "
                      f"{self.array}[{at}] = {self.waiting}[i * {unit} + w];")


class _FloatPiece(_Piece):
    """A piece of a factor in float32, which is rounded when it is read."""

    def _elements(self, last: str) -> None:
        text, name = self.text, self.name
        text.line(f"f32 terms[{self.terms}];")
        with text.block(f"UNROLL for (int t = 0; t < {self.terms}; ++t)"):
            text.line(f"const {text.index} k = term + t;")
            text.line("terms[t] = 0;")
            with text.block(f"if ({name} < {self.end} && k < {last})"):
                text.line(f"terms[t] = {self.factor.element(name, 'k')};")
        text.line(f"{self.waiting}[i] = {self._rounded(range(self.terms))};")

    def _packs(self, last: str) -> None:
        text, name = self.text, self.name
        text.line(f"f32 terms[{self.lanes}];")
        text.line(f"UNROLL for (int t = 0; t < {self.lanes}; ++t) terms[t] = 0;")
        with text.block(f"if ({name} < {self.end} && term < {last})"):
            self._read("term", lambda lane, value: f"terms[{lane}] = {value};")
        for w in range(self.unit):
            places = range(w * self.terms, (w + 1) * self.terms)
            text.line(f"{self.waiting}[i * {self.unit} + {w}] = {self._rounded(places)};")

    def _packs_of_terms(self, last: str) -> None:
        text, name, lanes = self.text, self.name, self.lanes
        text.line(f"f32 terms[{self.terms * lanes}];")
        text.line(f"UNROLL for (int t = 0; t < {self.terms * lanes}; ++t) terms[t] = 0;")
        for t in range(self.terms):
            with text.block(f"if ({name} < {self.end} && term + {t} < {last})"):
                self._read(f"(term + {t})", lambda lane, value, first=t * lanes: f"terms[{first} + {lane}] = {value};")
        for w in range(lanes):
            places = [t * lanes + w for t in range(self.terms)]
            text.line(f"{self.waiting}[i * {lanes} + {w}] = {self._rounded(places)};")

    def _rounded(self, places: Sequence[int]) -> str:
        """The word of the terms at ``places``."""
        return f"{self.factor.rounded}_word({', '.join(f'terms[{place}]' for place in places)})"

    def _read(self, term: str, use: Callable[[str, str], str]) -> None:
        """Read neighbours from ``term`` on, and use each: ``use(number, float)`` is a statement."""
        text = self.text
        assert self.factor.place is not None
        pack = text.pack(self.factor.dtype, self.lanes)
        source = source_of(text, self.factor, self.factor.place(self.name, term))
        each = f"UNROLL for (int lane = 0; lane < {self.lanes}; ++lane)"
        with text.block(f"if ({self.aligned})"):
            text.line(f"const {pack} found = *(GLOBAL const {pack} *){source};")
            text.line(f"{each} {{ {use('lane', 'found.at[lane]')} }}")
        with text.block("else"):
            text.line(f"{each} {{ {use('lane', f'{source}[lane]')} }}")
