"""How the threads of blocks share the points of a loop nest."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kusari.ir.nest import TRANSCENDENTAL, Buffer, Nest, Step

from ...sweeps import depths_of, sweeps_of, sweeps_of_split

PACK_BYTES = 16             # that a thread reads or writes at once
BLOCK_THREADS = 256
MOST_SHARES_THREADS = 512   # of one row
LEAST_SHARE_POINTS = 4      # of a row, for a thread of its own
COLUMNS_THREADS = 32        # that read neighbouring columns
MOST_BLOCKS = 4096          # of a pointwise nest: threads take several turns then
MOST_KEPT_ELEMENTS = 32     # of all values that a thread keeps from sweep to sweep
FULL_CARD_THREADS = 1 << 16  # with fewer, several blocks share a row
SPLIT_BYTES = 1 << 16       # read by one block: with less, another launch takes longer than is gained
MOST_PARTS = 64             # of a row that blocks share


@dataclass(frozen=True)
class Layout:
    """``group`` rows a block, each shared by ``shares`` threads, which take ``lanes`` neighbouring points at once.

    ``by_columns``: neighbouring threads have neighbouring rows, not neighbouring points. ``turns`` is the number of
    turns of a thread, if it keeps values from sweep to sweep, else 0. ``parts`` blocks share a row, each stage of
    reductions then being a launch of its own.
    """

    rows: int
    points: int
    shares: int
    group: int
    lanes: int
    by_columns: bool
    turns: int
    parts: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.shares * self.group

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return max(1, -(-self.rows // self.group)) * self.parts


def layout_of(nest: Nest) -> Layout:
    """The layout of a nest with reduced dims."""
    rows = prod(d.extent for d in nest.dims if not d.reduced)
    points = prod(d.extent for d in nest.dims if d.reduced)
    by_columns = not nest.dims[-1].reduced
    lanes = 1 if by_columns else lanes_of(nest)
    units = points // lanes
    if by_columns:
        group = min(COLUMNS_THREADS, _power(max(rows, 1)))
        shares = min(_power(-(-units // LEAST_SHARE_POINTS)), MOST_SHARES_THREADS // group)
    else:
        shares = min(_power(-(-points // LEAST_SHARE_POINTS)), MOST_SHARES_THREADS)
        group = max(1, min(BLOCK_THREADS // shares, _power(max(rows, 1))))
    blocks = max(1, -(-rows // group))
    parts = _parts(nest, blocks, blocks * shares * group, -(-units // shares) if units else 0)
    turns = -(-units // shares)
    kept = kept_steps(nest)
    if parts > 1 or not kept or turns * lanes * len(kept) > MOST_KEPT_ELEMENTS:
        turns = 0
    return Layout(rows, points, shares, group, lanes, by_columns, turns, parts)


def launches_of(nest: Nest) -> int:
    """The number of kernels of a nest: several if blocks share rows."""
    return sweeps_of_split(nest) if any(d.reduced for d in nest.dims) and layout_of(nest).parts > 1 else 1


def crosses(step: Step) -> bool:
    """Whether a value is kept for later sweeps rather than read or computed again."""
    return step.kind == "load" or step.fn in TRANSCENDENTAL


def kept_steps(nest: Nest) -> tuple[int, ...]:
    """The steps whose values later sweeps ask for, if threads keep them."""
    sweeps = sweeps_of(nest, depths_of(nest), crosses)
    return tuple(dict.fromkeys(i for s in sweeps for i in s.saved))


def lanes_of(nest: Nest, with_rest: bool = False) -> int:
    """Neighbours along the last dim that threads take at once: packs of theirs begin at a multiple of a pack's size.

    ``with_rest``: the extent of a nest's only dim may be any number.
    """
    packed = [b for b in (*nest.operands, *nest.outputs) if b.strides[-1] == 1]
    if not packed:
        return 1
    lanes = PACK_BYTES // max(b.dtype.itemsize for b in packed)
    while lanes > 1 and not _fits(nest, packed, lanes, with_rest and len(nest.dims) == 1):
        lanes //= 2
    return lanes


def _fits(nest: Nest, packed: list[Buffer], lanes: int, any_extent: bool) -> bool:
    if nest.dims[-1].extent % lanes and not any_extent or nest.dims[-1].extent < lanes:
        return False
    return all(s % lanes == 0 for b in packed for s in (*b.strides[:-1], b.offset))


def _parts(nest: Nest, blocks: int, threads: int, turns: int) -> int:
    """The number of blocks that share a row."""
    worth = nest.traffic >= SPLIT_BYTES * blocks and nest.stages > 1
    if not worth or threads >= FULL_CARD_THREADS:
        return 1
    parts = min(MOST_PARTS, -(-FULL_CARD_THREADS // threads), turns // LEAST_SHARE_POINTS)
    return max(1, parts)


def _power(n: int) -> int:
    """The smallest power of two that is not below ``n``, or 1."""
    return 1 << max(0, n - 1).bit_length()
