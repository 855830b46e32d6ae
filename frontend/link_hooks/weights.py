"""Link hooks that change a weight for the time of a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functions as F
from ..configuration import config, using_config
from ..link.namespace import entries_of
from ..link_hook import ForwardPostprocessArgs, ForwardPreprocessArgs, LinkHook
from ..links import DeconvolutionND
from ..parameter import Parameter

__all__ = ["SpectralNormalization", "WeightStandardization"]


class _WeightHook(LinkHook):
    """Puts a function of a parameter in its place while the link computes.

    Invariant: outside of calls the link has its own parameter.
    """

    name = "WeightHook"

    def __init__(self, weight_name: str, name: str | None) -> None:
        self.weight_name = weight_name
        if name is not None:
            self.name = name
        self._own: list[Any] = []

    def added(self, link: Any) -> None:
        """Check that the link has the weight.

        Raises:
            NotImplementedError: It is to be every link.
            ValueError: It has none of this name.
        """
        if link is None:
            raise NotImplementedError(f"{type(self).__name__} belongs to one link: register it with link.add_hook(...)")
        if not isinstance(getattr(link, self.weight_name, None), Parameter):
            raise ValueError(f"{type(link).__name__} has no parameter {self.weight_name!r} to normalize")

    def of(self, link: Any, weight: Any) -> Any:
        """Return what to compute with instead of the weight."""
        raise NotImplementedError

    def forward_preprocess(self, cb_args: ForwardPreprocessArgs) -> None:
        """Put the changed weight in place."""
        link = cb_args.link
        weight = getattr(link, self.weight_name)
        if not weight.is_initialized:
            self._initialize(link, cb_args)
        self._own.append(weight)
        # Past the link's own bookkeeping, which takes nothing but parameters for a parameter.
        entries_of(link)[self.weight_name] = self.of(link, weight)

    def _initialize(self, link: Any, args: ForwardPreprocessArgs) -> None:
        # A link sees the shapes of its parameters at its first call.
        with config_without_graph():
            link.forward(*args.args, **args.kwargs)

    def forward_postprocess(self, cb_args: ForwardPostprocessArgs) -> None:
        """Put the parameter back."""
        self._abandon(cb_args)

    def _abandon(self, args: ForwardPreprocessArgs) -> None:
        entries_of(args.link)[self.weight_name] = self._own.pop()


def config_without_graph() -> Any:
    """Return a context in which a call leaves no trace: no graph, and no statistics taken."""
    import contextlib

    stack = contextlib.ExitStack()
    stack.enter_context(using_config("enable_backprop", False))
    stack.enter_context(using_config("train", False))
    return stack


class SpectralNormalization(_WeightHook):
    """Divides a weight by its greatest singular value, as estimated by power iteration.

    Args:
        n_power_iteration: Number of iterations in each call.
        eps: Keeps the lengths of the iteration's vectors from zero.
        use_gamma: Whether the link gets a parameter ``gamma`` that the weight is multiplied by; it begins as the
            greatest singular value.
        factor: Number that the weight is multiplied by; None: 1.
        weight_name: Name of the parameter.
        name: Name of the hook, ``"SpectralNormalization"``.

    The estimate's vector is the link's persistent value ``<weight_name>_u``; it moves on while training.

    Attributes:
        v: The other vector of the last estimate; recomputations (of :func:`~kusari.functions.forget`) take both.

    Raises:
        ValueError: The link has no such parameter, or one without outputs; or an option is not positive.

    See: Miyato et al., `Spectral Normalization for Generative Adversarial Networks
    <https://arxiv.org/abs/1802.05957>`_, 2018.

    >>> link = L.Linear(2, 2, initialW=np.diag([3, 1])).add_hook(kusari.link_hooks.SpectralNormalization(50))
    >>> link(np.eye(2, dtype="float32")).array.round(3)
    array([[1.   , 0.   ],
           [0.   , 0.333]], dtype=float32)
    """

    name = "SpectralNormalization"

    def __init__(self, n_power_iteration: int = 1, eps: float = 1e-6, use_gamma: bool = False,
                 factor: float | None = None, weight_name: str = "W", name: str | None = None) -> None:
        if n_power_iteration < 1:
            raise ValueError(f"n_power_iteration must be at least 1, got {n_power_iteration}")
        super().__init__(weight_name, name)
        self.n_power_iteration = n_power_iteration
        self.eps = eps
        self.use_gamma = use_gamma
        self.factor = factor
        self.vector_name = f"{weight_name}_u"
        self.axis = 0
        self.v: Any = None

    def added(self, link: Any) -> None:
        """Give the link the iteration's vector, at the latest when the weight has its shape."""
        super().added(link)
        self.axis = 1 if isinstance(link, DeconvolutionND) else 0  # outputs are along axis 1 there
        weight = getattr(link, self.weight_name)
        if weight.is_initialized:
            self._prepare(link, weight)

    def deleted(self, link: Any) -> None:
        """Take from the link what it was given."""
        for name in (self.vector_name, "gamma") if self.use_gamma else (self.vector_name,):
            if hasattr(link, name):
                delattr(link, name)

    def _prepare(self, link: Any, weight: Any) -> None:
        if not weight.shape[self.axis]:
            raise ValueError(f"{self.weight_name} needs outputs to be normalized, got the shape {weight.shape}")
        u = np.random.normal(size=weight.shape[self.axis]).astype(weight.dtype)
        with link.init_scope():
            setattr(link, self.vector_name, link.device.send(u))
            link.register_persistent(self.vector_name)
            if self.use_gamma:
                matrix = self.reshape_W(weight.array)
                link.gamma = Parameter(link.device.send(np.asarray(link.xp.linalg.svd(matrix)[1][0]))
                                       .astype(weight.dtype).reshape(()))

    def reshape_W(self, W: Any) -> Any:
        """Return the weight as a matrix with a row per output."""
        if self.axis:
            W = W.swapaxes(0, 1) if hasattr(W, "swapaxes") else F.swapaxes(W, 0, 1)
        return W.reshape((W.shape[0], -1)) if W.ndim != 2 else W

    def of(self, link: Any, weight: Any) -> Any:
        """Return the weight over its singular value."""
        if not hasattr(link, self.vector_name):
            self._prepare(link, weight)
        return self.normalize_weight(link)

    def normalize_weight(self, link: Any) -> Any:
        """Return the normalized weight of a link, and move its vector on while training."""
        weight = getattr(link, self.weight_name)
        u, matrix = getattr(link, self.vector_name), self.reshape_W(weight.array)
        xp, v = link.xp, self.v
        if v is None or not config.in_recomputing:
            for _ in range(self.n_power_iteration):
                v = self._unit(xp, matrix.T.dot(u))
                u = self._unit(xp, matrix.dot(v))
            self.v = v
            if config.train:
                getattr(link, self.vector_name)[...] = u
        sigma = F.matmul(F.matmul(u, self.reshape_W(weight)), v)
        if self.factor is not None:
            sigma = sigma / self.factor
        scale = link.gamma / sigma if self.use_gamma else 1 / sigma
        return F.broadcast_to(F.reshape(scale, (1,) * weight.ndim), weight.shape) * weight

    def _unit(self, xp: Any, v: Any) -> Any:
        return v / (xp.sqrt((v * v).sum()) + self.eps)


class WeightStandardization(_WeightHook):
    """Gives every filter of a weight zero mean and unit variance.

    Args:
        eps: Added to the variances.
        weight_name: Name of the parameter, of two axes or more.
        name: Name of the hook, ``"WeightStandardization"``.

    Raises:
        ValueError: The link has no such parameter.

    See: Qiao et al., `Weight Standardization <https://arxiv.org/abs/1903.10520>`_, 2019.

    >>> link = L.Linear(3, 1, initialW=np.array([[0, 1, 2]])).add_hook(kusari.link_hooks.WeightStandardization())
    >>> link(np.eye(3, dtype="float32")).array.round(3).ravel()
    array([-1.225,  0.   ,  1.225], dtype=float32)
    """

    name = "WeightStandardization"

    def __init__(self, *, eps: float = 1e-5, weight_name: str = "W", name: str | None = None) -> None:
        super().__init__(weight_name, name)
        self.eps = eps

    def of(self, link: Any, weight: Any) -> Any:
        """Return the standardized weight."""
        axes = tuple(range(1, weight.ndim))
        centred = weight - F.broadcast_to(F.mean(weight, axis=axes, keepdims=True), weight.shape)
        scale = F.rsqrt(F.mean(F.square(centred), axis=axes, keepdims=True) + self.eps)
        return centred * F.broadcast_to(scale, weight.shape)
