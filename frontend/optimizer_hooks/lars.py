"""Layer-wise adaptive rates."""

from __future__ import annotations

from typing import Any

from .. import backend

__all__ = ["GradientLARS"]


class GradientLARS:
    """Scales each parameter's gradient to the parameter's norm (LARS).

    Weight decay is added, and where the parameter's norm is above ``threshold`` the gradient is multiplied by
    ``norm(param) / (eps + norm(grad) + weight_decay * norm(param))``.
    You et al., `Large Batch Training of Convolutional Networks <https://arxiv.org/abs/1708.03888>`_ (2017).

    Args:
        threshold: The norm up to which gradients keep their size.
        weight_decay: Coefficient of weight decay.
        eps: Against division by zero.
    """

    name = "GradientLARS"
    timing = "pre"
    scaled_attributes: tuple[str, ...] = ()
    call_for_each_param = True
    needs_norm = False
    needs_own_norms = True

    def __init__(self, threshold: float = 1e-2, weight_decay: float = 0.0, eps: float = 1e-9) -> None:
        self.threshold = threshold
        self.weight_decay = weight_decay
        self.eps = eps

    def grad_expr(self, xp: Any, param: Any, grad: Any, norm: Any, grad_norm: Any) -> Any:
        """Return the new gradient, elementwise, given the norms of both: what the compiler uses."""
        rate = norm / (self.eps + grad_norm + self.weight_decay * norm)
        return (grad + self.weight_decay * param) * xp.where(norm > self.threshold, rate, 1.0)

    def __call__(self, rule: Any, param: Any) -> None:
        array, grad = backend.from_chx(param.data), backend.from_chx(param.grad)
        if array is None or grad is None:
            return
        with param.device.fallback_device.create_context():
            xp = backend.get_array_module(array)
            norm = xp.linalg.norm(array)
            grad_norm = xp.linalg.norm(grad)
            rate = norm / (self.eps + grad_norm + self.weight_decay * norm)
            grad += self.weight_decay * array
            grad *= xp.where(norm > self.threshold, rate, 1.0).astype(grad.dtype)
