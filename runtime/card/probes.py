"""Epilogues that cuBLASLt does not document: tried on prepared values before they are used.

Which bit a ReLU keeps for zero and NaN, which formula GELU is, and how precise, is nowhere said. So each is tried once
for each card, on small products whose results are known, between guards that show writes to other memory. An epilogue
that has other results than kernels of ours, or fails, is left to them.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from kusari.ir.gelu import CUBE, SCALE
from kusari.ir.product import Rounding

from .cublaslt import GELU_ELEMENTS, Function, Library, Product, Work, alignment_of
from .kernels import cupy
from .launches import Refused

#: Rows, columns and terms of the products: less than a tile, odd, and several tiles.
SHAPES = ((5, 7, 3), (33, 139, 17), (130, 257, 40))
#: How far a GELU may be from the exact one: ulps of its argument, and of the gradient that its own is a multiple of.
#: In float32 the formula itself is up to 1 and 10.3 away.
GELU_ULPS, GRADIENT_ULPS = 4, 16
Probe = Literal["gradient of ReLU", "gradient of ReLU with sums", "GELU", "GELU with its gradient",
                "GELU with its gradient and sums"]
_PLAIN = 90  # the most that values are which are not apart
_GUARD_BYTES = 256  # in front of each array and behind it
_SINGLE = np.dtype(np.float32)
_EPSILON = float(np.finfo(np.float32).eps)
_TINY = float(np.finfo(np.float32).tiny)


class Probed(Refused):
    """An epilogue is not used: what it does was found out."""


def require(library: Library, device: int, what: Probe, rounding: Rounding, room: int) -> None:
    """Raise ``Probed`` if the library has not passed a probe of `PROBES` on the current card.

    It runs once, on the current stream, and waits for it; one without memory, or in a capture, is tried again later.
    """
    key = device, what, rounding
    if key not in library.probed:
        if cupy().cuda.get_current_stream().is_capturing():
            raise Refused("a graph is being captured")
        try:
            PROBES[what](_Trial(library, device, rounding, room))
        except cupy().cuda.memory.OutOfMemoryError as error:
            raise Refused(f"no memory is left to try its epilogues: {error}") from error
        except Probed as error:
            library.probed[key] = str(error)
        except (Refused, RuntimeError) as error:  # of the library's or of CuPy's
            library.probed[key] = f"cuBLASLt's failed when it was tried: {error}"
        else:
            library.probed[key] = ""
    if library.probed[key]:
        raise Probed(library.probed[key])


class _Trial:
    """Products of a library on one card, in memory of their own."""

    def __init__(self, library: Library, device: int, rounding: Rounding, room: int) -> None:
        self._library, self._device, self._room = library, device, room
        self._rounding: Rounding = rounding

    def run(self, shape: tuple[int, int, int], function: Function, factors: tuple[Any, Any], vector: Any = None,
            given: Any = None, keeps: bool = False, totals: bool = False) -> tuple[Any, Any, Any]:
        """Multiply with a function behind; returns the result, the values that it keeps, and its sums by columns.

        ``vector`` is a bias; a gradient reads ``given``, the values that its function has kept.
        """
        m, n, k = shape
        forward = given is None
        work = Work(m, n, k, False, forward, 1, m * k, n * k, _SINGLE, _SINGLE, bias=vector is not None,
                    function=function, keeps=keeps, totals=totals, rounding=self._rounding)
        product = Product(self._library, self._device, work)
        a, b = factors
        result, sums = np.full((m, n), 7, _SINGLE), np.full(n, 7, _SINGLE)
        kept = np.full(work.mask_bytes if function == "relu" else m * n * 4, 7, np.uint8) if keeps else given
        arrays = [np.ascontiguousarray(a, _SINGLE), np.ascontiguousarray(b.T if forward else b, _SINGLE), result]
        arrays += [vector.astype(_SINGLE)] if vector is not None else [sums] * totals
        arrays += [kept] * (kept is not None)
        written = [2, *[3] * totals, *[len(arrays) - 1] * keeps]

        def call(addresses: Sequence[int], workspace: int, stream: int) -> None:
            first, second, to = addresses[:3]
            side = addresses[3] if vector is not None or totals else 0
            aux = addresses[-1] if kept is not None else 0
            product.prepare(self._room, tuple([alignment_of(x) for x in (first, second, to, to, side, aux)]))
            product(first, second, to, to, side, aux, workspace, self._room, stream)
        found = _on_the_card(arrays, written, self._room, call)
        return found[2], found[-1] if keeps else None, found[3] if totals else None


def _on_the_card(arrays: list[Any], written: Sequence[int], room: int, call: Callable[..., None]) -> list[Any]:
    """Arrays after a call on their addresses, which may have changed the ``written`` ones, and nothing else."""
    starts, end = list[int](), _GUARD_BYTES
    for array in arrays:
        starts.append(end)
        end += -(-array.nbytes // _GUARD_BYTES) * _GUARD_BYTES + _GUARD_BYTES
    host = np.full(end, 165, np.uint8)
    for start, array in zip(starts, arrays, strict=True):
        host[start:start + array.nbytes] = array.reshape(-1).view(np.uint8)
    before = host.copy()
    stream = cupy().cuda.get_current_stream()
    memory = cupy().cuda.alloc(end + _GUARD_BYTES + room)
    base = -memory.ptr % _GUARD_BYTES
    stream.synchronize()  # the memory may have been another's
    (memory + base).copy_from_host(ctypes.c_void_p(host.ctypes.data), end)
    call([memory.ptr + base + start for start in starts], memory.ptr + base + end, stream.ptr)
    (memory + base).copy_to_host_async(ctypes.c_void_p(host.ctypes.data), end, stream)
    stream.synchronize()
    found: list[Any] = []
    for i, (start, array) in enumerate(zip(starts, arrays, strict=True)):
        part = slice(start, start + array.nbytes)
        found.append(host[part].view(array.dtype).reshape(array.shape).copy())
        if i in written:
            host[part] = before[part]
    if (host != before).any():
        raise Probed("cuBLASLt's writes to memory that is not its own")
    return found


def _factors(first: Any, n: int, k: int, seed: int) -> tuple[Any, Any, Any]:
    """Factors, and their product, which is exact: each row has a value, and small multiples of 1/8 if that is one, too.

    All values have few digits, so that rounded factors are what they were.
    """
    draw = np.random.default_rng(seed)
    a, b = np.zeros((first.size, k), _SINGLE), np.zeros((k, n), _SINGLE)
    a[:, 0], b[0] = first, 1
    eighths = [0 < abs(v) < _PLAIN and v * 8 == round(v * 8) for v in first.tolist()]
    a[:, 1], b[1] = draw.integers(-8, 9, first.size) * eighths, draw.integers(-8, 9, n) / 8
    with np.errstate(all="ignore"):
        return a, b, a[:, :1] + a[:, 1:2] * b[1]


def _values(m: int, special: bool, seed: int) -> Any:
    """Values of ``m`` rows: multiples of 1/8, and some that are apart."""
    draw = np.random.default_rng(seed)
    found = (draw.integers(-40, 41, m) / 8).astype(_SINGLE)
    if special:
        small, large = 2.0 ** -100, 2.0 ** 100
        apart = [0, np.nan, np.inf, -np.inf, 2.0 ** -130, -2.0 ** -130, small, -small, large, -large]
        found[::2] = np.resize(np.array(apart, _SINGLE), found[::2].size)
    return found


def _same(found: Any, expected: Any) -> bool:
    """Whether all bits are the same, but for those of NaN."""
    number = ~np.isnan(expected)
    return bool((np.isnan(found) == ~number).all() and
                (found[number].view(np.uint32) == expected[number].view(np.uint32)).all())


def _relu(trial: _Trial, totals: bool = False) -> None:
    """A gradient is that of the product where the ReLU's result is positive, and zero elsewhere."""
    for seed, (m, n, k) in enumerate(SHAPES):
        for special in (False, True):
            a, b, x = _factors(_values(m, special, seed), n, k, seed)
            bias = None if seed % 2 else np.zeros(n, _SINGLE)
            y, mask, _ = trial.run((m, n, k), "relu", (a, b), bias, keeps=True)
            if not _same(y, np.maximum(x, _SINGLE.type(0))) and not (
                    special and _same(y, np.where(np.abs(x) < _TINY, 0, np.maximum(x, 0)).astype(_SINGLE))):
                raise Probed("cuBLASLt's ReLU that keeps bits has other results")
            c, d, product = _factors(_values(m, special, seed + 7)[::-1], n, k + 1, seed + 1)
            found, _, sums = trial.run((m, n, k + 1), "gradient of relu", (c, d), given=mask, totals=totals)
            small: Any = (np.abs(product) < _TINY) & (found == 0)  # which may be zero in a product
            if not _same(found, np.where((y > 0) & ~small, product, _SINGLE.type(0))):
                raise Probed("cuBLASLt's gradient of ReLU is not zero where, and only where, the ReLU is not positive")
            if sums is not None and not special and not np.array_equal(sums, found.sum(0, "d")):  # which is exact
                raise Probed("cuBLASLt's sums of a gradient of ReLU are others")


def _gelu_values(m: int, n: int, seed: int) -> Any:
    """Values of rows whose products go from -16 to 16, and some that are apart."""
    values = np.linspace(-16, 16, m).astype(_SINGLE)
    values = (np.round(values * 8) / 8).astype(_SINGLE)
    if seed == 1:
        apart = [0, np.nan, np.inf, -np.inf, 2.0 ** -130, 2.0 ** -100, -2.0 ** -20, 2.0 ** -8, 2.0 ** 70, -2.0 ** 70]
        values[:len(apart)] = apart
    return values


def _gelu_of(x: Any) -> tuple[Any, Any]:
    """GELU by tanh and its derivative, in double precision."""
    x = x.astype("d")
    with np.errstate(all="ignore"):
        t = np.tanh(SCALE * (x + CUBE * x ** 3))
        inner = SCALE * (1 + 3 * CUBE * x * x)
        return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner


def _near(found: Any, expected: Any, scale: Any, ulps: int) -> bool:
    """Whether numbers are so near, and others are the same."""
    number = np.isfinite(expected)
    with np.errstate(all="ignore"):
        near = np.abs(found[number] - expected[number]) <= ulps * _EPSILON * np.abs(scale[number]) + _TINY
    return bool(near.all()) and np.array_equal(found[~number], expected[~number].astype(_SINGLE), equal_nan=True)


def _gelu(trial: _Trial, keeps: bool = False, totals: bool = False) -> None:
    """GELU is the formula by tanh to 4 ulps of its argument; its gradient to 16 of the one that is multiplied."""
    for seed, (m, n, k) in enumerate(SHAPES):
        n = -(-n // GELU_ELEMENTS) * GELU_ELEMENTS
        a, b, x = _factors(_gelu_values(m, n, seed), n, k, seed)
        bias = None if seed % 2 else np.zeros(n, _SINGLE)
        y, kept, _ = trial.run((m, n, k), "gelu", (a, b), bias, keeps=keeps)
        exact, slope = _gelu_of(x)
        if not _near(y, exact, x, GELU_ULPS):
            raise Probed(f"cuBLASLt's GELU is not the one by tanh to {GELU_ULPS} ulps of its argument")
        if kept is None:
            continue
        argument = kept.view(_SINGLE).reshape(m, n)
        if not _same(argument, x) and not _same(argument, np.where(np.abs(x) < _TINY, 0, x).astype(_SINGLE)):
            raise Probed("cuBLASLt's GELU keeps something else than its argument")
        c, d, g = _factors(_values(m, False, seed + 7), n, k + 1, seed + 1)
        found, _, sums = trial.run((m, n, k + 1), "gradient of gelu", (c, d), given=kept, totals=totals)
        slope = np.where(np.abs(x) < 2.0 ** 40, slope, np.where(np.isnan(found), np.nan, x > 0))  # inf * 0, or exact
        if not _near(found, slope * g, g, GRADIENT_ULPS) or not np.isnan(found[np.isnan(x)]).all():
            raise Probed(f"cuBLASLt's gradient of GELU is not that of the one by tanh to {GRADIENT_ULPS} ulps")
        if sums is not None and not np.allclose(sums, found.astype("d").sum(0), rtol=1e-5, atol=1e-3, equal_nan=True):
            raise Probed("cuBLASLt's sums of a gradient of GELU are others")


PROBES: dict[Probe, Callable[[_Trial], None]] = {
    "gradient of ReLU": _relu, "gradient of ReLU with sums": lambda trial: _relu(trial, True),
    "GELU": _gelu, "GELU with its gradient": lambda trial: _gelu(trial, True),
    "GELU with its gradient and sums": lambda trial: _gelu(trial, True, True)}
