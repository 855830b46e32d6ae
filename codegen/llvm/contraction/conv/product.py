"""Convolutions whose windows are single elements: each sample is a product of matrices in place."""
from __future__ import annotations

from dataclasses import dataclass, replace

from ....target import Target
from ...text.emitter import Emitter
from ..gemm.outer import Shape, choose_shape, write_outer
from ..operand import Matrices
from .geometry import gathering
from .panel_shape import matrices
from .spec import ConvSpec


@dataclass(frozen=True)
class ProductShape:
    """The product of one sample, and its tiling."""

    work: Matrices
    tiles: Shape
    cycles: float


def choose_product(spec: ConvSpec, target: Target) -> ProductShape:
    """The tile with the fewest cycles, as products count them."""
    g = gathering(spec)
    work = replace(matrices(spec, g), a_k=g.channel_step, b_k=g.positions, b_batch=g.depth * g.positions)
    tiles = choose_shape(work, target)
    return ProductShape(work, tiles, spec.n * tiles.cycles)


def write_product(em: Emitter, shape: ProductShape) -> int:
    """Write the convolution; returns the bytes of scratch each thread needs."""
    return write_outer(em, shape.work, shape.tiles)
