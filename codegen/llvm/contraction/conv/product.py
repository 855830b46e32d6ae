"""Convolutions whose windows are single elements: each sample is a product of matrices in place."""
from __future__ import annotations

from typing import NamedTuple

from ....contractions import ConvSpec
from ....target import Target
from ..gemm import outer
from ..operand import Matrices
from .geometry import gathering
from .writer import ConvWriter, results


class ProductShape(NamedTuple):
    """The product of one sample, and its tiling."""

    work: Matrices
    tiles: outer.Shape
    cycles: float


def choose(spec: ConvSpec, target: Target) -> ProductShape:
    """Return the tile of the fewest cycles by count: those of the product of each sample."""
    g = gathering(spec)
    work = Matrices(**vars(results(spec)), k=g.depth, a_slot=1, b_slot=0, a_row=g.row_step, a_k=g.channel_step,
                    b_k=g.positions, b_column=1, a_batch=0, b_batch=g.depth * g.positions)
    tiles = outer.choose(work, target)
    return ProductShape(work, tiles, spec.n * tiles.products)


class Product(ConvWriter[ProductShape]):
    """Writes a convolution or the gradient of its input."""

    def write(self) -> int:
        return outer.Outer(self.em, self.plan.work, self.plan.tiles).write()
