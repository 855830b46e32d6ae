"""Batch normalization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import functions as F
from ...configuration import config
from ...dtypes import get_dtype
from ...initializers import _with_dtype, generate_array
from ...link import Link
from ...parameter import Parameter
from ...tape import active, constant

__all__ = ["BatchNormalization"]


class BatchNormalization(Link):
    """Normalizes each channel to zero mean and unit variance, then scales and shifts it.

    Ioffe & Szegedy, `Batch Normalization <https://arxiv.org/abs/1502.03167>`_ (2015).

    While training (``config.train``) it uses the statistics of the batch, and keeps moving averages of them, or (with
    ``finetune=True``) their exact mean over all batches since :meth:`start_finetuning`.  Otherwise it uses those.

    Args:
        size: Number of channels, or shape of the channel dimensions; None to see it from the first input.
        decay: Decay rate of the moving averages.
        eps: Added to the variance.
        dtype: Dtype of parameters and statistics; by default ``config.dtype``, float32 under ``mixed16``.
        use_gamma: Whether to scale.
        use_beta: Whether to shift.
        initial_gamma: Initializer of the scale; by default 1.
        initial_beta: Initializer of the shift; by default 0.
        axis: The axes to take statistics over; by default all but the channel dimensions, which follow the first one.
        initial_avg_mean: Initializer of the mean; by default 0.
        initial_avg_var: Initializer of the variance; by default 1.

    Attributes:
        gamma: Scale; None without it.
        beta: Shift; None without it.
        avg_mean: Mean used outside training; a persistent value.
        avg_var: Variance used outside training; a persistent value.
        N: Number of batches seen by fine-tuning; a persistent value.

    Raises:
        RuntimeError: Neither ``size`` nor ``axis`` is given.

    >>> x = np.arange(12, dtype="float32").reshape(4, 3) ** 2
    >>> bn = L.BatchNormalization(3)
    >>> np.allclose(bn(x).array, (x - x.mean(0)) / np.sqrt(x.var(0) + 2e-5), atol=1e-5)
    True
    >>> bn.avg_mean
    array([3.15, 4.15, 5.35], dtype=float32)
    """

    gamma: Any = None
    beta: Any = None
    avg_mean: Any = None
    avg_var: Any = None

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        decay: float = 0.9,
        eps: float = 2e-5,
        dtype: Any = None,
        use_gamma: bool = True,
        use_beta: bool = True,
        initial_gamma: Any = None,
        initial_beta: Any = None,
        axis: int | tuple[int, ...] | None = None,
        initial_avg_mean: Any = None,
        initial_avg_var: Any = None,
    ) -> None:
        super().__init__()
        if size is None and axis is None:
            raise RuntimeError("size or axis is required: BatchNormalization(10), or BatchNormalization(axis=0)")
        self.decay = decay
        self.eps = eps
        self.axis = (axis,) if isinstance(axis, int) else axis
        self.N = 0
        self.register_persistent("N")
        self._dtype = get_dtype(dtype, map_mixed16="float32")
        self._initial_avg_mean = initial_avg_mean
        self._initial_avg_var = initial_avg_var
        with self.init_scope():
            if use_gamma:
                self.gamma = self._parameter(1 if initial_gamma is None else initial_gamma)
            if use_beta:
                self.beta = self._parameter(0 if initial_beta is None else initial_beta)
        self.avg_mean = None
        self.avg_var = None
        self.register_persistent("avg_mean")
        self.register_persistent("avg_var")
        if size is not None:
            self._initialize_params(size)

    def _parameter(self, initial: Any) -> Parameter:
        return Parameter(_with_dtype(initial, self._dtype))

    def _initialize_params(self, size: int | tuple[int, ...]) -> None:
        # Initializers may draw: statistics first.
        self.avg_mean = self._statistics(0 if self._initial_avg_mean is None else self._initial_avg_mean, size)
        self.avg_var = self._statistics(1 if self._initial_avg_var is None else self._initial_avg_var, size)
        for param in (self.gamma, self.beta):
            if param is not None and not param.is_initialized:
                param.initialize(size)

    def _statistics(self, initial: Any, size: int | tuple[int, ...]) -> Any:
        return generate_array(_with_dtype(initial, self._dtype), size, device=self.device)

    @property
    def printable_specs(self) -> Iterator[tuple[str, Any]]:
        """The settings that ``str(link)`` shows."""
        size = None if self.avg_mean is None else self.avg_mean.shape
        yield "size", size[0] if size is not None and len(size) == 1 else size
        yield from (("decay", self.decay), ("eps", self.eps), ("dtype", self._dtype))
        yield from (("use_gamma", self.gamma is not None), ("use_beta", self.beta is not None))

    def forward(self, x: Any, *, finetune: bool = False, **kwargs: Any) -> Any:
        """Normalize ``x``.

        Args:
            x: Input, batch first.
            finetune: While training, take exact means of the statistics instead of moving averages.
        """
        if kwargs:
            if "test" in kwargs:
                raise ValueError("test argument is not supported anymore. Use kusari.using_config('train', False)")
            raise TypeError(f"forward() got unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        if self.avg_mean is None:
            axes = self.axis or ()
            self._initialize_params(
                tuple(n for i, n in enumerate(x.shape) if i not in axes and i - len(x.shape) not in axes))
            if (recording := active()) is not None:
                recording.link(self)  # which knows of no statistics of this link yet
        gamma, beta = self._scale_and_shift()
        if not config.train:
            return F.fixed_batch_normalization(x, gamma, beta, self.avg_mean, self.avg_var, self.eps, axis=self.axis)
        if finetune:
            self.N += not config.in_recomputing
            decay = 1.0 - 1.0 / self.N
        else:
            decay = self.decay
        mean, var = self.avg_mean, self.avg_var
        return F.batch_normalization(
            x, gamma, beta, eps=self.eps, running_mean=mean, running_var=var, decay=decay, axis=self.axis
        )

    def _scale_and_shift(self) -> tuple[Any, Any]:
        gamma, beta = self.gamma, self.beta
        if gamma is None or beta is None:
            dtype, shape = self.avg_mean.dtype, self.avg_mean.shape
            with self.device.create_context():
                gamma = constant(self.xp.ones(shape, dtype)) if gamma is None else gamma
                beta = constant(self.xp.zeros(shape, dtype)) if beta is None else beta
        return gamma, beta

    def start_finetuning(self) -> None:
        """Forget the batches that fine-tuning has seen."""
        self.N = 0

    def serialize(self, serializer: Any) -> None:
        """Save or load parameters and statistics, also where either side does not know its size yet."""
        super().serialize(serializer)
        if self.avg_mean is not None:
            self.avg_mean = self.device.send(self.avg_mean)
            self.avg_var = self.device.send(self.avg_var)
