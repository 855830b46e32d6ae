"""Gradients of inputs, of windows that are not strided, where filters are no finite numbers.

Sums run over all taps, also those whose windows do not exist: their terms are zero times a weight, NaN if that is
infinite or NaN. So kernels look at the filters first and, if one is so, take the results one by one, of the taps that
count.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....contractions import ConvSpec
from ...text.array import Array
from ...text.emitter import Carried, Emitter, Index
from ...text.lanes import Lanes
from ...text.tiles import each_tile
from ...text.types import splat
from ..epilogue import Epilogue
from ..tile import Tile
from .writer import ConvWriter


def meets_padding(spec: ConvSpec) -> bool:
    """Whether a result is a sum over windows that do not exist."""
    axes = zip(spec.size, spec.out, spec.kernel, spec.pad, spec.dilate, strict=True)
    return spec.direction == "input" and any(p - (k - 1) * d < 0 or n - 1 + p >= o for n, o, k, p, d in axes)


def guarded(writer: ConvWriter[Any], compute: Callable[[], None]) -> None:
    """Write ``compute()``, in front of which filters are looked at if that matters."""
    em, spec = writer.em, writer.spec
    if not meets_padding(spec):
        compute()
        return
    unbounded = any_unbounded(writer.array(writer.slots[1]), spec.k * spec.channels * spec.taps)
    for is_unbounded in em.either(unbounded, rare=True):
        if is_unbounded:
            _one_by_one(writer)
        else:
            compute()


def any_unbounded(array: Array, size: int) -> str:
    """An i1: whether an element of an array is infinite or NaN."""
    em, element, width = array.em, array.element, array.width
    tile, zero = Tile(em, element, width), splat(element, width, 0.0)
    sums = tile.carried([zero] * 4)   # additions that wait for each other take four cycles
    for i, count in each_tile(em, size, 4 * width, sums):
        xs = (array.load(i + place, count - place) for place in range(0, count, width))
        found = tile.add(xs, [zero], sums.values)   # NaN, once it is
        sums.values[:len(found)] = found
    a, b, c, d = (Lanes(em, element, width, x) for x in sums.values)
    return (a.compare("uno", b) | c.compare("uno", d)).any()


def _one_by_one(writer: ConvWriter[Any]) -> None:
    """The results of this thread's images."""
    em, spec = writer.em, writer.spec
    for i in em.each(*em.chunk(spec.n * spec.groups)):
        sample, group = em.divmod(i, spec.groups)
        source = writer.array(writer.slots[0]).at(i * (spec.features * spec.positions))
        epilogue = writer.epilogue(sample, group, i)
        em.call(_exact_function(writer, epilogue), source, writer.filters(group), *epilogue.arguments)


def _exact_function(writer: ConvWriter[Any], epilogue: Epilogue) -> Emitter:
    """``exact(from, filters, …)``: the results of one group of a sample."""
    em, inner = epilogue.function("exact", ["ptr %from", "ptr %filters"])
    source, filters, spec = writer.array("%from", em), writer.array("%filters", em), writer.spec
    for c in em.each(0, spec.channels):
        weights = filters.at(c * spec.taps)
        for place in _each_place(em, spec.size):
            inner.store(_sum(spec, source, weights, place), c, _flat(place, spec.size), 1, None)
    return em


def _sum(spec: ConvSpec, source: Array, weights: Array, place: Sequence[Index]) -> str:
    """The sum of an element over the taps whose windows exist; once it is NaN it stays so."""
    em, element = source.em, source.element
    sums = Carried([element], ["0.0"])

    def stop(sums: list[str]) -> str:
        return em.value(f"fcmp uno {element} {sums[0]}, {sums[0]}")

    def channels(weight: Array, x: Array) -> list[str]:
        for k in em.each(0, spec.features, carried=sums, until=stop):
            factors = weight.one(k * (spec.channels * spec.taps)), x.one(k * spec.positions)
            sums.values = Tile(em, element, 1).add(factors[:1], factors[1:], sums.values)
        return sums.values
    for tap in _each_place(em, spec.kernel, sums, stop):
        exists, window = "true", list[Index]()
        for h, t, o, p, d in zip(place, tap, spec.out, spec.pad, spec.dilate, strict=True):
            window.append(h + p - t * d)
            exists = em.value(f"and i1 {exists}, {em.compare('ult', window[-1], o)}")
        near = weights.at(_flat(tap, spec.kernel)), source.at(_flat(window, spec.out))
        before = sums.values
        sums.values = em.when(exists, lambda near=near: channels(*near), lambda before=before: before, [element])
    return sums.values[0]


def _each_place(em: Emitter, extents: Sequence[int], carried: Carried | None = None,
                until: Callable[[list[str]], str] | None = None) -> Iterator[list[Index]]:
    """Nested loops over ``extents``: the index along each axis."""
    if not extents:
        yield []
        return
    for i in em.each(0, extents[0], carried=carried, until=until):
        yield from ([i, *rest] for rest in _each_place(em, extents[1:], carried, until))


def _flat(place: Sequence[Index], extents: Sequence[int]) -> Index:
    """The number of an element in C order."""
    number: Index = 0
    for i, n in zip(place, extents, strict=True):
        number = number * n + i
    return number
