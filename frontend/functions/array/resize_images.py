"""Images at another size."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import maximum, minimum

from ...structured import Structured
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable
from ..connection.windows import expect_axes, spread

Size = tuple[int, ...]


class _Resize(Structured):
    """A resize from ``size`` to ``out`` and its gradient."""

    def __init__(self, size: Size, out: Size, align: bool) -> None:
        super().__init__()
        self.size = size
        self.out = out
        self.align = align

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[0].ndim == 4)

    def _source(self, axis: int) -> tuple[float, float]:
        """Position in the input of output pixel ``o``, before clipping: ``scale * o + shift``."""
        n, o = self.size[axis], self.out[axis]
        if self.align:
            return (n - 1) / (o - 1) if o > 1 else 0.0, 0.0
        return n / o, 0.5 * n / o - 0.5

    def _lowered_matrix(self, b: Any, axis: int, dtype: Any) -> Any:
        n, o = self.size[axis], self.out[axis]
        scale, shift = self._source(axis)

        def weight(row: Any, column: Any) -> Any:
            place = minimum(maximum(row.astype(np.float64) * scale + shift, 0.0), float(n - 1))
            return maximum(1.0 - abs(place - column.astype(np.float64)), 0.0)
        return b.cast(b.map(weight, b.reshape(b.arange(o), (o, 1)), b.reshape(b.arange(n), (1, n))), dtype)


class Bilinear(_Resize):
    """Each output pixel from the four pixels around its position: a product with a matrix on either side."""

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        rows, columns = (self._lowered_matrix(b, i, x.tensor.dtype) for i in (0, 1))
        return b.matmul(rows, b.matmul(x, columns, False, True)),

    def onnx(self, g: Any, x: str) -> Any:
        mode = "align_corners" if self.align else "half_pixel"
        return _onnx(g, x, self.out, mode="linear", coordinate_transformation_mode=mode)


class Nearest(_Resize):
    """Each output pixel from one input pixel."""

    def _lowered_indices(self, b: Any) -> Any:
        """The number of the pixel in the flattened image."""
        (h, w), (oh, ow) = self.size, self.out

        return b.map(lambda i, j: (i * h // oh) * w + j * w // ow,
                     b.reshape(b.arange(oh), (oh, 1)), b.reshape(b.arange(ow), (1, ow)))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        n, c, h, w = x.shape
        pixels = b.transpose(b.reshape(x, (n * c, h * w)), (1, 0))
        y = b.transpose(b.take(pixels, self._lowered_indices(b)), (2, 0, 1))
        return b.reshape(y, (n, c, *self.out)),

    def onnx(self, g: Any, x: str) -> Any:
        return _onnx(g, x, self.out, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _onnx(g: Any, x: str, out: Size, **attributes: str) -> Any:
    if g.opset < 11:
        return NotImplemented
    shape = g.type(x).shape
    return g.Resize(x, None, None, g.const(np.array((*shape[:2], *out), np.int64)), **attributes)


@for_arrays
def resize_images(x: Any, output_shape: Any, *, mode: str = "bilinear", align_corners: bool = True) -> Variable:
    """Resize images.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        output_shape: Height and width of the result.
        mode: ``"bilinear"``, or ``"nearest"``, which takes the pixel at or before each position.
        align_corners: Whether corner pixels stay in the corners (bilinear only); else the borders of the images are
            aligned.

    Returns:
        Variable: Of shape ``(N, C, *output_shape)``.

    Raises:
        ValueError: The mode is another one, or a size is not positive.
        InvalidType: ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.resize_images(np.array([[[[0, 2]]]], "f"), (1, 3)).array.tolist()
    [[[[0.0, 1.0, 2.0]]]]
    """
    expect_axes(x, 2)
    out = spread(output_shape, 2, "output_shape")
    if min(out) < 1:
        raise ValueError(f"output_shape must be positive, got {out}")
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"mode must be 'bilinear' or 'nearest', got {mode!r}")
    kind = Bilinear if mode == "bilinear" else Nearest
    return kind(tuple(x.shape[2:]), out, bool(align_corners)).apply((x,))[0]
