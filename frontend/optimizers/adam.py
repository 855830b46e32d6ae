"""Adam and its variants: AdamW, AMSGrad, AdaBound, AMSBound."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kusari.ir import Symbol

from .. import backend
from ..optimizer import GradientMethod, Hyperparameter, HyperparameterProxy, UpdateRule, bias_corrected
from ..utils.arrays import force_array

__all__ = ["AMSBound", "AMSGrad", "AdaBound", "Adam", "AdamRule", "AdamW"]


def _lr_is_alpha_t(owner: str) -> None:
    warnings.warn(f"{owner}.lr has been renamed to AdamRule.alpha_t. Use of {owner}.lr is deprecated in Chainer v6.",
                  DeprecationWarning, stacklevel=3)


class AdamRule(UpdateRule):
    """The update rule of :class:`Adam` and its variants.

    States: ``m`` and ``v``, averages of the gradient and of its square; with AMSGrad also ``vhat``, the largest ``v``.
    """

    is_elementwise = True
    computes_in_float32 = True

    def __init__(
        self,
        parent_hyperparam: Hyperparameter | None = None,
        alpha: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        eps: float | None = None,
        eta: float | None = None,
        weight_decay_rate: float | None = None,
        amsgrad: bool | None = None,
        adabound: bool | None = None,
        final_lr: float | None = None,
        gamma: float | None = None,
    ) -> None:
        super().__init__(parent_hyperparam)
        own = dict(
            alpha=alpha, beta1=beta1, beta2=beta2, eps=eps, eta=eta, weight_decay_rate=weight_decay_rate,
            amsgrad=amsgrad, adabound=adabound, final_lr=final_lr, gamma=gamma,
        )  # fmt: skip
        for name, value in own.items():
            if value is not None:
                setattr(self.hyperparam, name, value)
        # The bounds of AdaBound follow changes of alpha relative to what it was at first.
        self.initial_alpha = self.hyperparam.alpha

    @property
    def alpha_t(self) -> float:
        """The bias-corrected learning rate of the last update."""
        h = self.hyperparam
        return bias_corrected(h.alpha, h.beta1, h.beta2, self.t, "Adam")

    @property
    def lr(self) -> float:
        """The same as ``alpha_t`` (deprecated)."""
        _lr_is_alpha_t("AdamRule")
        return self.alpha_t

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and largest learning rate of an element in the last update of AdaBound."""
        return self._bounds(self.hyperparam.get_dict())

    def _bounds(self, h: dict[str, Any]) -> tuple[Any, Any]:
        if not isinstance(self.t, Symbol) and self.t == 0:
            raise RuntimeError("Can't determine the bounds of AdaBound because the update steps have not been started.")
        final = h["final_lr"] * h["alpha"] / self.initial_alpha
        progress = h["gamma"] * self.t
        return final * (1.0 - 1.0 / (progress + 1)), final * (1.0 + 1.0 / progress)

    def init_state(self, param: Any) -> None:
        """Start averages at zero."""
        xp = backend.get_array_module(param._array)
        with param.device.create_context():
            for name in ("m", "v", "vhat") if self.hyperparam.amsgrad else ("m", "v"):
                self.state[name] = xp.zeros_like(param._array)

    def hyper_values(self) -> dict[str, float]:
        """Return the hyperparameters and what follows from them and the number of the update."""
        h = self.hyperparam.get_dict()
        h["alpha_t"] = bias_corrected(h["alpha"], h["beta1"], h["beta2"], self.t, "Adam")
        h["rate1"] = 1 - h["beta1"]
        h["rate2"] = 1 - h["beta2"]
        h["decay"] = 1 - h["eta"] * h["weight_decay_rate"]
        if h["adabound"]:
            h["lower"], h["upper"] = self._bounds(h)
        return h

    def update_exprs(
        self, xp: Any, hyper: Any, param: Any, grad: Any, m: Any, v: Any, vhat: Any = None
    ) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        m = m + hyper.rate1 * (grad - m)
        v = v + hyper.rate2 * (grad * grad - v)
        new = {"m": m, "v": v}
        if vhat is not None:
            v = new["vhat"] = xp.maximum(vhat, v)
        step = hyper.alpha_t / (xp.sqrt(v) + hyper.eps)
        if self.hyperparam.adabound:
            step = xp.minimum(xp.maximum(step, hyper.lower), hyper.upper)
        new["param"] = hyper.decay * param - hyper.eta * (step * m)
        return new

    def update_core_cpu(self, param: Any) -> None:
        """The same, in place with one temporary array (float16: in float32, rounded where states are stored)."""
        array, grad = param._array, param.grad
        if array is None or grad is None:
            return
        state: dict[str, Any] = self.state
        h = self.hyper_values()
        if array.dtype != np.float16:
            buffer = _average(state, grad, h)
            _step(array, state, h, buffer)
            return
        wide = {name: value.astype(np.float32) for name, value in state.items()}
        buffer = _average(wide, grad.astype(np.float32), h)
        for name, value in wide.items():
            state[name][...] = value
            value[...] = state[name]
        _step(array, wide, h, buffer)


def _average(state: dict[str, Any], grad: Any, h: dict[str, Any]) -> Any:
    """Update the averages; returns an array that may be overwritten."""
    m, v = state["m"], state["v"]
    buffer = force_array(grad - m)
    buffer *= h["rate1"]
    m += buffer
    np.multiply(grad, grad, out=buffer)
    buffer -= v
    buffer *= h["rate2"]
    v += buffer
    if "vhat" in state:
        np.maximum(state["vhat"], v, out=state["vhat"])
    return buffer


def _step(array: Any, state: dict[str, Any], h: dict[str, Any], buffer: Any) -> None:
    """Move the parameter, given the averages."""
    np.sqrt(state["vhat"] if "vhat" in state else state["v"], out=buffer)
    buffer += h["eps"]
    np.divide(h["alpha_t"], buffer, out=buffer)
    if h["adabound"]:
        np.maximum(buffer, h["lower"], out=buffer)
        np.minimum(buffer, h["upper"], out=buffer)
    buffer *= state["m"]
    if h["eta"] != 1:
        buffer *= h["eta"]
    if h["decay"] != 1:
        array *= h["decay"]
    array -= buffer


class Adam(GradientMethod):
    """Adam, with the parameters of its variants.

    Kingma & Ba, `Adam: A Method for Stochastic Optimization <https://arxiv.org/abs/1412.6980>`_ (2014). With
    ``weight_decay_rate`` it is :class:`AdamW`, with ``amsgrad`` :class:`AMSGrad`, with ``adabound``
    :class:`AdaBound`, with both of these :class:`AMSBound`.

    Args:
        alpha: Learning rate.
        beta1: Decay rate of the average of the gradient.
        beta2: Decay rate of the average of its square.
        eps: Added to the root of that average.
        eta: Factor of the whole step, for schedules.
        weight_decay_rate: Share of the parameter taken away in each step (times ``eta``).
        amsgrad: Whether to divide by the largest average of the square so far.
        adabound: Whether to keep each element's rate between bounds that close in on ``final_lr``.
        final_lr: The rate in the end.
        gamma: How quickly the bounds close in.
    """

    alpha = HyperparameterProxy("alpha")
    beta1 = HyperparameterProxy("beta1")
    beta2 = HyperparameterProxy("beta2")
    eps = HyperparameterProxy("eps")
    eta = HyperparameterProxy("eta")
    weight_decay_rate = HyperparameterProxy("weight_decay_rate")
    amsgrad = HyperparameterProxy("amsgrad")
    adabound = HyperparameterProxy("adabound")
    final_lr = HyperparameterProxy("final_lr")
    gamma = HyperparameterProxy("gamma")

    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        eta: float = 1.0,
        weight_decay_rate: float = 0,
        amsgrad: bool = False,
        adabound: bool = False,
        final_lr: float = 0.1,
        gamma: float = 0.001,
    ) -> None:
        super().__init__()
        h = self.hyperparam
        h.alpha, h.beta1, h.beta2, h.eps, h.eta, h.weight_decay_rate = alpha, beta1, beta2, eps, eta, weight_decay_rate
        h.amsgrad, h.adabound, h.final_lr, h.gamma = amsgrad, adabound, final_lr, gamma

    def create_update_rule(self) -> AdamRule:
        """Return a new update rule."""
        return AdamRule(self.hyperparam)

    @property
    def alpha_t(self) -> float:
        """The bias-corrected learning rate of the last update."""
        h = self.hyperparam
        return bias_corrected(h.alpha, h.beta1, h.beta2, self.t, "Adam")

    @property
    def lr(self) -> float:
        """The same as ``alpha_t`` (deprecated)."""
        _lr_is_alpha_t("Adam")
        return self.alpha_t


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Loshchilov & Hutter, `Decoupled Weight Decay Regularization <https://arxiv.org/abs/1711.05101>`_ (2017). For the
    arguments see :class:`Adam`.
    """

    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        eta: float = 1.0,
        weight_decay_rate: float = 0,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps, eta, weight_decay_rate)


class AMSGrad(Adam):
    """Adam that divides by the largest average of the square so far.

    Reddi et al., `On the Convergence of Adam and Beyond <https://arxiv.org/abs/1904.09237>`_ (2018). For the
    arguments see :class:`Adam`.
    """

    def __init__(
        self, alpha: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, eta: float = 1.0
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps, eta, amsgrad=True)


class AdaBound(Adam):
    """Adam whose rates are kept between bounds that close in on those of SGD.

    Luo et al., `Adaptive Gradient Methods with Dynamic Bound of Learning Rate <https://arxiv.org/abs/1902.09843>`_
    (2019). For the arguments see :class:`Adam`.
    """

    _amsgrad = False

    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        final_lr: float = 0.1,
        gamma: float = 0.001,
        eps: float = 1e-8,
        eta: float = 1.0,
    ) -> None:
        super().__init__(
            alpha, beta1, beta2, eps, eta, amsgrad=self._amsgrad, adabound=True, final_lr=final_lr, gamma=gamma
        )


class AMSBound(AdaBound):
    """:class:`AdaBound` and :class:`AMSGrad` together, from the paper of the former."""

    _amsgrad = True


AdamRule.defaults = Adam().hyperparam
