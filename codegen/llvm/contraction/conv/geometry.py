"""The operands of convolutions in memory: images laid out so that neighbouring windows are neighbours.

An image is copied ("staged") into zeros, and elements that are ``stride`` apart become neighbours: for each axis the
staged image has one plane for every remainder by the stride that windows touch. Then the element ``t`` of window ``o``
is at ``tap offset of t + o`` along every axis, whatever stride, padding and dilation are.
"""
from __future__ import annotations

from math import prod
from typing import NamedTuple

from kusari.ir import Windows

from ....contractions import ConvSpec
from ...text.tiles import full_tiles


class StagedAxis(NamedTuple):
    """One axis of ``size`` elements: element ``h`` is at position ``(h + pad) // stride`` of plane
    ``(h + pad) % stride``.

    Only ``planes``, the remainders that windows touch, are kept; each has ``length`` positions.
    """

    size: int
    pad: int
    stride: int
    planes: tuple[int, ...]
    length: int

    def inside(self, plane: int) -> range:
        """The positions of a plane that hold elements of the image; the others are padding."""
        first = max(-(-(self.pad - plane) // self.stride), 0)
        end = -(-(self.size + self.pad - plane) // self.stride)
        return range(first, max(first, min(end, self.length)))


class Image(NamedTuple):
    """One channel, staged: planes of all axes, then positions of all axes."""

    axes: tuple[StagedAxis, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions along each axis."""
        return tuple(a.length for a in self.axes)

    @property
    def steps(self) -> tuple[int, ...]:
        """Elements from one position to the next along each axis."""
        return tuple(prod(self.lengths[i + 1:]) for i in range(len(self.axes)))

    @property
    def size(self) -> int:
        """Elements of a channel."""
        return prod(len(a.planes) for a in self.axes) * prod(self.lengths)

    @property
    def source(self) -> int:
        """Elements of a channel before it is staged."""
        return prod(a.size for a in self.axes)

    def offset(self, places: tuple[int, ...]) -> int:
        """Elements from the first window to the elements at ``places``, which are not yet divided by the stride."""
        plane = 0
        for a, u in zip(self.axes, places, strict=True):
            plane = plane * len(a.planes) + a.planes.index(u % a.stride)
        return plane * prod(self.lengths) + sum(
            u // a.stride * s for a, u, s in zip(self.axes, places, self.steps, strict=True))


class Gathering(NamedTuple):
    """A convolution seen from its results: each is a sum over channels of ``image`` and ``taps``.

    Taps are pairs: the offset of the element in a filter, and that in the staged image. ``rows`` results per position
    and group from ``depth`` channels; in the filters of a group, a step of row and channel is ``row_step`` and
    ``channel_step`` elements.
    """

    image: Image
    taps: tuple[tuple[int, int], ...]
    size: tuple[int, ...]
    rows: int
    depth: int
    row_step: int
    channel_step: int

    @property
    def positions(self) -> int:
        """Results of one channel."""
        return prod(self.size)

    @property
    def height(self) -> int:
        """Rows of results along the axis before the last."""
        return self.size[-2] if len(self.size) > 1 else 1

    @property
    def line(self) -> int:
        """Elements between two such rows in the image."""
        return self.image.steps[-2] if len(self.size) > 1 else 0


def staged_windows(w: Windows) -> tuple[Image, tuple[int, ...]]:
    """The image that windows slide over, staged, and the offset of every tap."""
    axes: list[StagedAxis] = []
    for n, k, s, p, d, r in zip(w.size, w.kernel, w.stride, w.pad, w.dilate, w.reach, strict=True):
        planes = tuple(sorted({t * d % s for t in range(k)}))
        axes.append(StagedAxis(n, p, s, planes, -(-r // s)))
    return _with_taps(Image(tuple(axes)), w)


def whole_image(w: Windows, breadth: int = 1) -> tuple[Image, tuple[int, ...]]:
    """The image to which windows are added, all elements of x in it, and the offset of every tap.

    Its rows are at least ``breadth`` positions long.
    """
    axes = [StagedAxis(n, p, s, tuple(range(s)), -(-max(r, n + p) // s))
            for n, p, s, r in zip(w.size, w.pad, w.stride, w.reach, strict=True)]
    axes[-1] = axes[-1]._replace(length=max(axes[-1].length, breadth))
    return _with_taps(Image(tuple(axes)), w)


def _with_taps(image: Image, w: Windows) -> tuple[Image, tuple[int, ...]]:
    return image, tuple([image.offset(tuple([t * d for t, d in zip(tap, w.dilate, strict=True)])) for tap in w.taps()])


def gathering(spec: ConvSpec) -> Gathering:
    """The geometry of a convolution, or of the gradient of its input where windows are not strided."""
    if spec.direction == "forward":
        image, offsets = staged_windows(spec.windows)
        return Gathering(image, tuple(enumerate(offsets)), spec.out, spec.features, spec.channels,
                         spec.channels * spec.taps, spec.taps)
    assert set(spec.stride) == {1}
    # Element h of x was seen by window h + pad - t * dilate: the gradient of y is padded by that of the last tap.
    reach = [(k - 1) * d for k, d in zip(spec.kernel, spec.dilate, strict=True)]
    image = Image(tuple(StagedAxis(o, r - p, 1, (0,), n + r) for n, o, r, p in zip(
        spec.size, spec.out, reach, spec.pad, strict=True)))
    offsets = [image.offset(tuple(r - t * d for r, t, d in zip(reach, tap, spec.dilate, strict=True)))
               for tap in spec.windows.taps()]
    return Gathering(image, tuple(enumerate(offsets)), spec.size, spec.channels, spec.features, spec.taps,
                     spec.channels * spec.taps)


def panels_of(n: int, positions: int, columns: int, width: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Samples that share a panel of ``columns`` positions, blocks of so many samples, and all panels.

    Those are the numbers of equal ones, and the vectors of each. Blocks are as few and as even as can be.
    """
    most = 1 if positions > columns else max(1, min(n, columns // max(positions, 1)))
    samples = -(-n // -(-n // most))
    blocks = -(-n // samples)
    return samples, blocks, [(t.count * blocks, -(-t.size // width)) for t in full_tiles(samples * positions, columns)]
