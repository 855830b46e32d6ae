"""Loop nests without reductions: neighbouring threads have neighbouring points, and each several at once."""
from __future__ import annotations

from contextlib import AbstractContextManager

from kusari.ir import Kernel
from kusari.ir.nest import Nest

from ...sweeps import cost
from .layout import BLOCK_THREADS, MOST_BLOCKS, lanes_of
from .points import Points, text_of


def pointwise_kernel(nest: Nest) -> Kernel:
    """The kernel of a nest without reduced dims; its slots are the operands, then the outputs."""
    lanes = lanes_of(nest, with_rest=True)
    text = text_of(nest, "map", BLOCK_THREADS)
    points, size = Points(text, nest), nest.size
    once = [k for k, s in enumerate(nest.steps) if not s.dims]
    if size:
        points.steps(once)
        start = f"BLOCK * ({text.index}){BLOCK_THREADS} + THREAD"
        if lanes > 1:
            text.line(f"{text.index} done = 0;")
            with text.block(f"if ({points.aligned(lanes)})"):
                with _turns(points, start, size // lanes):
                    _neighbours(points, lanes, once)
                text.line(f"done = {size // lanes * lanes};")
            start = f"done + {start}"
        with _turns(points, start, size):
            points.indices("u", range(len(nest.dims)))
            points.steps([k for k in range(len(nest.steps)) if k not in once])
            for o in range(len(nest.outputs)):
                points.store(o)
    blocks = min(MOST_BLOCKS, -(-size // (lanes * BLOCK_THREADS)))
    return text.kernel(blocks, sum(map(cost, nest.steps)) * size, nest.traffic)


def _turns(points: Points, start: str, end: int) -> AbstractContextManager[None]:
    """A loop over the points of this thread."""
    text = points.text
    return text.block(f"for ({text.index} u = {start}; u < {end}; u += BLOCKS * ({text.index}){BLOCK_THREADS})")


def _neighbours(points: Points, lanes: int, once: list[int]) -> None:
    """The points of one pack."""
    nest, text = points.nest, points.text
    points.indices("u", range(len(nest.dims)), lanes)
    inside = [k for k, s in enumerate(nest.steps) if points.last in s.dims]
    outputs = range(len(nest.outputs))
    points.load_packs(inside, lanes)
    points.steps([k for k in range(len(nest.steps)) if k not in inside and k not in once])
    points.declare_results(outputs, lanes)
    with text.block(f"UNROLL for (int lane = 0; lane < {lanes}; ++lane)"):
        points.steps(inside, lanes)
        points.put_results(outputs)
    points.store_packs(outputs, lanes)
