"""Spatial transformers: grids of positions, and images read at them."""
from __future__ import annotations

from typing import Any

from ...structured import Structured
from ...utils import type_check
from ...variable import Variable, as_variable
from ..math.matmul import product
from ..noise.dropout import reject
from .axes import transpose
from .sample import sampled
from .shape import reshape

_REMOVED = {"use_cudnn": "use kusari.using_config('use_cudnn', ...)"}


class GridCorners(Structured):
    """Matrices (N, 2, 3), of which only the dtype is read, to the grid's homogeneous coordinates: (3, H * W)."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape = shape

    @property
    def label(self) -> str:
        return "SpatialTransformerGrid"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("theta",))
        theta, = in_types
        type_check.expect(theta.dtype.kind == "f", theta.ndim == 3, theta.shape[1] == 2, theta.shape[2] == 3)

    def lower(self, b: Any, theta: Any) -> tuple[Any, ...]:
        h, w = self.shape
        dtype = theta.tensor.dtype

        def even(n: int, shape: tuple[int, int]) -> Any:
            line = b.map(lambda i: i.astype("float64") * (2 / max(n - 1, 1)) - 1.0, b.arange(n))
            line = b.reshape(b.cast(line, dtype), shape)
            return b.reshape(b.broadcast_to(line, (h, w)), (1, h * w))
        x = even(w, (1, w))
        return b.concat([x, even(h, (h, 1)), b.full((1, h * w), 1, dtype)], 0),


def spatial_transformer_grid(theta: Any, output_shape: Any, **kwargs: Any) -> Variable:
    """Where a transformed image takes its pixels from: affine maps of a grid over the square from -1 to 1.

    Args:
        theta: Floating-point matrices (N, 2, 3).
        output_shape: Height and width of the grid.

    Returns:
        Variable: ``(N, 2, *output_shape)``; along axis 1 the horizontal position, then the vertical one.

    Raises:
        InvalidType: ``theta`` is of another shape, or not floating-point.
        ValueError: ``use_cudnn`` is given.

    See: Jaderberg et al., `Spatial Transformer Networks <https://arxiv.org/abs/1506.02025>`_, 2015.

    >>> import numpy as np

    >>> import kusari.functions as F
    >>> F.spatial_transformer_grid(np.array([[[1, 0, 0], [0, 1, 0]]], "f"), (1, 3)).array[0, 0]
    array([[-1.,  0.,  1.]], dtype=float32)
    """
    reject(kwargs, **_REMOVED)
    theta = as_variable(theta)
    h, w = int(output_shape[0]), int(output_shape[1])
    grid = GridCorners((h, w)).apply((theta,))[0]
    n = theta.shape[0]
    return reshape(product(reshape(theta, (n * 2, 3)), grid), (n, 2, h, w))


class SpatialTransformerSampler(Structured):
    """Images, of which only the shape is read, and positions from -1 to 1 to rows and columns in pixels, (N, P)."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "grid"))
        x_type, grid_type = in_types
        type_check.expect(x_type.dtype.kind == "f", grid_type.dtype == x_type.dtype, x_type.ndim == 4,
                          grid_type.ndim == 4, grid_type.shape[1] == 2, x_type.shape[0] == grid_type.shape[0])

    def lower(self, b: Any, x: Any, grid: Any) -> tuple[Any, ...]:
        n, _, h, w = grid.shape
        found: list[Any] = []
        for i in (0, 1):
            part = b.slice(grid, (0, 1 - i, 0, 0), (n, 2 - i, h, w), (1, 1, 1, 1))
            pixels = b.map(lambda at, half=(x.shape[2 + i] - 1) / 2: (at + 1.0) * half, part)
            found.append(b.reshape(pixels, (n, h * w)))
        return tuple(found)


def spatial_transformer_sampler(x: Any, grid: Any, **kwargs: Any) -> Variable:
    """Read images at the positions of a grid, between their pixels; outside they are 0.

    Args:
        x: Floating-point images (N, C, H, W).
        grid: Positions (N, 2, height, width) of the dtype of ``x``; along axis 1 the horizontal position, then the
            vertical one: -1 is the middle of the first pixel, 1 that of the last.

    Returns:
        Variable: (N, C, height, width).

    Raises:
        InvalidType: The shapes or dtypes do not fit.
        ValueError: ``use_cudnn`` is given.

    See: Jaderberg et al., `Spatial Transformer Networks <https://arxiv.org/abs/1506.02025>`_, 2015.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.array([[[[0, 10, 20]]]], "f")
    >>> F.spatial_transformer_sampler(x, np.array([[[[0.5, 1]], [[0, 0]]]], "f")).array.ravel()
    array([15., 20.], dtype=float32)
    """
    reject(kwargs, **_REMOVED)
    x, grid = as_variable(x), as_variable(grid)
    row, column = SpatialTransformerSampler().apply((x, grid))
    return reshape(transpose(sampled(x, row, column), (0, 2, 1)), (*x.shape[:2], *grid.shape[2:]))
