"""The specification of a Winograd convolution, and the blocks of its work that fit the caches."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kusari.ir import Arg, DType, Expr

from ....contractions import GemmOperand
from ....target import Target
from ...text.types import F32
from ..cycles import MOST_TILE_ROWS, step_cycles

#: The outputs of a tile along an axis, by stride: those for which ``algebra`` has points.
TILES: dict[int, tuple[int, ...]] = {1: (2, 4), 2: (4,)}
Way = Literal["tiles", "maps", "gradient"]


@dataclass(frozen=True)
class WinogradSpec:
    """A convolution in float32 of ``batch`` images with 3 x 3 taps at every position, then ``exprs``.

    ``pad`` are zeros above, below, left and right. ``maps`` are the output channels. In ``exprs`` ``Arg(0)`` is the
    convolution and ``Arg(i)`` is ``operands[i - 1]``, whose strides are for a step of an output channel (``row``), a
    pixel (``column``: 0 or 1) and an image (``batch``). Images are ``batch x channels x height x width``, outputs
    ``batch x maps x out_height x out_width``, the weights ``maps x channels x 3 x 3``, or under ``transposed``
    ``channels x maps x 3 x 3`` with the taps reversed: that is the gradient of a convolution's input. ``way``:
    threads share the tiles or the output channels, or it is the gradient of the weights. ``stride`` is 1, or 2
    (``phases``; not transposed).
    """

    batch: int
    channels: int
    maps: int
    height: int
    width: int
    pad: tuple[int, int, int, int]
    tile: int = 4
    transposed: bool = False
    exprs: tuple[Expr, ...] = (Arg(0),)
    operands: tuple[GemmOperand, ...] = ()
    way: Way = "tiles"
    stride: int = 1

    def __post_init__(self) -> None:
        tiles = TILES.get(self.stride, ())
        if tiles and self.tile not in tiles:
            raise ValueError(f"expected tiles of {' or '.join(map(str, tiles))}, got {self.tile}")
        if not tiles or (self.stride == 2 and self.transposed):
            raise ValueError(f"expected strides of 1, or of 2 where nothing is transposed, got {self}")
        if min(self.pad) < 0 or min(self.batch, self.channels, self.maps, self.out_height, self.out_width) < 1:
            raise ValueError(f"expected sizes of at least one and padding of at least zero, got {self}")
        if any((n - 3) % self.stride for n in self._padded):
            raise ValueError(f"expected windows that end with the padded image, got {self}")
        if any(o.column not in (0, 1) for o in self.operands):
            raise ValueError("expected operands that are contiguous or constant along the pixels")

    @property
    def dtype(self) -> DType:
        """The only dtype: in float64 accuracy counts."""
        return F32

    @property
    def _padded(self) -> tuple[int, int]:
        return self.height + self.pad[0] + self.pad[1], self.width + self.pad[2] + self.pad[3]

    @property
    def out_height(self) -> int:
        """Rows of an output."""
        return (self._padded[0] - 3) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of an output."""
        return (self._padded[1] - 3) // self.stride + 1

    @property
    def rows(self) -> int:
        """Rows of tiles in an image."""
        return -(-self.out_height // self.tile)

    @property
    def columns(self) -> int:
        """Tiles in a row."""
        return -(-self.out_width // self.tile)

    @property
    def side(self) -> int:
        """Points along an axis."""
        return self.tile + (2 if self.stride == 1 else 1)

    @property
    def points(self) -> int:
        """Points of a tile."""
        return self.side ** 2

    @property
    def phases(self) -> int:
        """Number of phases: parts of an image that are transformed apart and added up."""
        return self.stride ** 2

    @property
    def products(self) -> int:
        """Number of products per tile, channel and output channel."""
        return self.points if self.stride == 1 else (2 * self.side - 1) ** 2

    @property
    def flops(self) -> int:
        """Operations of all products."""
        return 2 * self.batch * self.rows * self.columns * self.products * self.channels * self.maps

    @property
    def tap_steps(self) -> tuple[int, int]:
        """Elements of the weights from an output channel to the next one, and from a channel."""
        return (9, 9 * self.maps) if self.transposed else (9 * self.channels, 9)

    @property
    def step(self) -> int:
        """Pixels from a tile of the image to its neighbour."""
        return self.tile * self.stride

    @property
    def extent(self) -> int:
        """Pixels of a tile of the image along an axis."""
        return (self.tile - 1) * self.stride + 3


def round_up(n: int, multiple: int) -> int:
    """The next multiple."""
    return -(-n // multiple) * multiple


def row_stride(n: int, lanes: int) -> int:
    """Elements between rows of ``n`` floats: whole vectors, not a power of two that would meet in few cache sets."""
    stride = round_up(n, lanes)
    return stride + 16 if stride % 512 == 0 else stride


@dataclass(frozen=True)
class Tiling:
    """Register tiles of ``rows x vectors``; at most ``tile_rows`` rows of tiles of the image at a time."""

    lanes: int
    rows: int
    vectors: int
    tile_rows: int

    @property
    def panel(self) -> int:
        """Output channels of a register tile."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Blocking(Tiling):
    """The tiling of the products of a convolution if threads share the tiles, of which ``most`` are transformed."""

    most: int


def _largest(target: Target, vectors: int) -> int:
    return min(MOST_TILE_ROWS, (target.registers - 2 - vectors) // vectors)


def tiles_worth(channels: int, maps: int, points: int, target: Target) -> int:
    """Number of tiles to transform before multiplying.

    As many as stay in the second-level cache; more if there are many channels, so that reading the transformed weights
    (or sums) again for every block does not cost more than the tiles that leave the cache.
    """
    near = target.l2_bytes // 2 // (4 * points * (channels + maps))
    return max(1, near, min(channels * maps // (2 * (channels + maps)), 32))


def blocking(spec: WinogradSpec, target: Target) -> Blocking:
    """Return the tiling of the products of a convolution."""
    lanes = target.lanes(4)
    vectors = 2 if spec.maps > lanes else 1
    worth = tiles_worth(spec.channels * spec.phases, spec.maps, spec.points, target)
    total = spec.batch * spec.rows
    tile_rows = max(1, min(worth // spec.columns, -(-total // 2)))
    tiles = tile_rows * spec.columns
    largest = _largest(target, vectors)
    rows = min(range(min(largest, max(4, largest - 7)), largest + 1),
               key=lambda rows: -(-tiles // rows) * step_cycles(rows, vectors))
    return Blocking(lanes, rows, vectors, tile_rows, round_up(tiles, rows))


@dataclass(frozen=True)
class MapsBlocking(Tiling):
    """The tiling of the products of a convolution if threads share the output channels ("maps").

    The weights of a panel of output channels are transformed ``chunk`` channels at a time, and multiplied by
    ``tile_rows`` rows of tiles; images are transformed ``window_rows`` rows of tiles at a time.
    """

    chunk: int
    chunks: int
    window_rows: int


def maps_blocking(spec: WinogradSpec, target: Target) -> MapsBlocking:
    """Return the tiling with a panel's transformed weights and the sums of a block in the second-level cache.

    If not all channels fit, all tiles are one block, whose sums are read again for every chunk. The weights of the next
    chunk are fetched into that cache, too; chunks are not made smaller than 64 channels for them, as there are more
    sums to be read then. With phases chunks are equal, and vectors whole.
    """
    lanes = target.lanes(4)
    vectors = 2 if spec.maps >= 8 * lanes else 1  # panels enough for some threads
    total = spec.batch * spec.rows
    near = target.l2_bytes * 3 // 8 // (4 * vectors * lanes)
    room = near // spec.products
    if spec.phases > 1:
        groups = spec.channels // lanes
        even = [n for n in range(1, groups + 1) if groups % n == 0]
        chunks = next((n for n in even if spec.channels // n <= room), groups)
    else:
        room = max(near // (spec.products + 2 * 9), min(room, 64))
        chunks = -(-spec.channels // max(room, 16))
    worth = max(1, room // spec.columns) if chunks == 1 else total
    tile_rows = -(-total // -(-total // min(worth, total)))
    tiles = tile_rows * spec.columns
    largest = _largest(target, vectors)
    rows = min(range(min(largest, tiles), max(0, min(largest, tiles) - 8), -1),
               key=lambda rows: -(-tiles // rows) * step_cycles(rows, vectors))
    breadth = (spec.columns - 1) * spec.step + spec.extent
    window_rows = max(1, min(spec.rows, ((64 << 10) // (4 * lanes * breadth) + spec.step - spec.extent) // spec.step))
    return MapsBlocking(lanes, rows, vectors, tile_rows, -(-spec.channels // chunks), chunks, window_rows)


@dataclass(frozen=True)
class GradientBlocking(Tiling):
    """The tiling of the gradient of the weights.

    ``owned``: all tiles are transformed first, into memory that the threads share, and then every thread computes some
    of the weights. Otherwise every thread transforms ``tile_rows`` rows of tiles at a time and adds their products to
    sums of its own. Register tiles are ``rows`` channels x ``vectors`` vectors of output channels.
    """

    owned: bool


def gradient_blocking(spec: WinogradSpec, target: Target) -> GradientBlocking:
    """Return the tiling that moves fewer bytes between caches."""
    lanes = target.lanes(4)
    vectors = 2 if spec.maps > lanes else 1
    rows = min(8 if target.registers >= 32 else 4, lanes)
    total = spec.batch * spec.rows
    tile = 4 * spec.points * (round_up(spec.channels, lanes) + round_up(spec.maps, lanes))
    sums = 4 * spec.points * round_up(spec.channels, rows) * round_up(spec.maps, vectors * lanes)
    worth = max((target.l2_bytes * 3 // 4 - sums) // tile, min(sums // tile, 128), 8)
    tile_rows = max(1, min(worth // spec.columns, total))
    transformed = tile * total * spec.columns
    again = transformed * spec.channels // (spec.channels + spec.maps) * -(-spec.maps // (vectors * lanes))
    apart = sums * (4 + 2 * -(-total // tile_rows)) if sums > target.l2_bytes // 2 else 0
    return GradientBlocking(lanes, rows, vectors, tile_rows, transformed <= 12 << 20 and transformed + again < apart)
