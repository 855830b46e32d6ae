"""The fully connected layer."""
from __future__ import annotations

from math import prod
from typing import Any

from ...callsite import user_location
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.half import dot
from ...variable import Variable, as_variable
from ..array.cast import cast
from ..array.shape import reshape
from ..math.matmul import product
from ..math.reduction import sum as sum_


class LinearFunction(FunctionNode):
    """``x W^T + b`` of a batch of vectors."""

    def check_type_forward(self, in_types: Any) -> None:
        count = len(in_types)
        type_check.argname(in_types, ("x", "W", "b")[:max(2, count)])
        x_type, w_type = in_types[0], in_types[1]
        type_check.expect(x_type.dtype.kind == "f", w_type.dtype.kind == "f", x_type.ndim == 2, w_type.ndim == 2,
                          x_type.shape[1] == w_type.shape[1])
        if count == 3:
            b_type = in_types[2]
            type_check.expect(b_type.dtype == x_type.dtype, b_type.ndim == 1, b_type.shape[0] == w_type.shape[0])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        x, W = inputs[0], inputs[1]
        y = dot(x, W.T)
        if y.dtype != x.dtype:
            y = y.astype(x.dtype)
        if len(inputs) == 3:
            y += inputs[2]
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, W = self.get_retained_inputs()
        gy, = grad_outputs
        grads: list[Any] = []
        for i in indexes:
            if i == 2:
                grads.append(sum_(gy, axis=0))
                continue
            g, like = (product(gy, W), x) if i == 0 else (product(gy, x, True), W)
            if g.dtype != like.dtype:
                g = cast(g, like.dtype)
            grads.append(g)
        return tuple(grads)

    def lower(self, b: Any, x: Any, W: Any, bias: Any = None) -> tuple[Any, ...]:
        y = b.cast(b.matmul(x, W, False, True), x.tensor.dtype)
        return (y if bias is None else b.call("add", y, bias)),

    def onnx(self, g: Any, *inputs: str) -> Any:
        return g.Gemm(*inputs, transB=1)


@for_arrays
def linear(x: Any, W: Any, b: Any = None, n_batch_axes: int = 1) -> Variable:
    """Fully connected layer, ``y = x W^T + b``.

    Args:
        x: Floating-point input; its first ``n_batch_axes`` axes are the batch, the others are flattened.
        W: Weights of shape (out size, in size).
        b: Bias of shape (out size,), or None.
        n_batch_axes: Number of batch axes.

    Returns:
        Variable: Of shape (batch axes…, out size).

    Raises:
        InvalidType: The shapes or dtypes do not fit.
        ValueError: ``n_batch_axes`` is less than 1.
    """
    if n_batch_axes <= 0:
        raise ValueError(f"n_batch_axes should be greater than 0, got {n_batch_axes}")
    shape = x.shape
    if n_batch_axes > 1:
        x = reshape(as_variable(x), (prod(shape[:n_batch_axes]), prod(shape[n_batch_axes:])))
    elif len(shape) > 2:
        if len(W.shape) == 2 and prod(shape[1:]) != W.shape[1] == shape[-1]:
            raise type_check.InvalidType(
                "x.shape[1] == W.shape[1]", f"{prod(shape[1:])} != {W.shape[1]}",
                f"\nInvalid operation is performed in: LinearFunction (Forward)\n\nThe axes of x, {shape}, are taken "
                f"together but for the first {n_batch_axes}. n_batch_axes={len(shape) - 1} applies the layer to the "
                "last one.", user_location())
        x = reshape(as_variable(x), (shape[0], prod(shape[1:])))
    y = LinearFunction().apply((x, W) if b is None else (x, W, b))[0]
    return reshape(y, (*shape[:n_batch_axes], y.shape[1])) if n_batch_axes > 1 else y
