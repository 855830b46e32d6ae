"""Links of the losses that sample words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import functions as F
from ...device_resident import DeviceResidentsVisitor
from ...functions.loss import negative_sampling
from ...initializers import Constant
from ...link import Link
from ...parameter import Parameter
from ...utils.walker_alias import WalkerAlias

__all__ = ["BlackOut", "NegativeSampling"]


class _Sampling(Link):
    """A link with a sampler."""

    sampler: WalkerAlias

    def device_resident_accept(self, visitor: DeviceResidentsVisitor) -> None:
        """Show a visitor the sampler, too."""
        super().device_resident_accept(visitor)
        self.sampler.device_resident_accept(visitor)


class NegativeSampling(_Sampling):
    """Logistic loss of the labelled word against a few others, drawn in proportion to a power of their counts.

    Args:
        in_size: Size of the vectors.
        counts: How often each word occurs, by its label.
        sample_size: Number of words to draw for each label.
        power: The power of the counts.
        dtype: Data type of ``W``; by default that of ``config.dtype``.

    Attributes:
        W: One vector for every word, zero at first.
        sampler: The :class:`~kusari.utils.WalkerAlias` that draws.

    See: :func:`~kusari.functions.negative_sampling`.
    """

    def __init__(
        self, in_size: int, counts: Sequence[int] | Mapping[int, int], sample_size: int, power: float = 0.75,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        values = [counts[i] for i in range(len(counts))]
        self.sample_size = sample_size
        self.sampler = WalkerAlias(np.power(np.array(values, np.float32), np.float32(power)))
        with self.init_scope():
            self.W = Parameter(_zeros(dtype), (len(values), in_size))

    def forward(self, x: Any, t: Any, reduce: str = "sum", **kwargs: Any) -> Any:
        """Return the loss of vectors ``x``, (N, in_size), and labels ``t``, (N,); -1 is left out.

        Args:
            x: Vectors.
            t: Labels.
            reduce: ``"sum"`` or ``"no"``.
            kwargs: ``return_samples=True`` also returns the words.
        """
        # By its module, where programs put samplers of their own in its place.
        return negative_sampling.negative_sampling(
            x, t, self.W, self.sampler.sample, self.sample_size, reduce=reduce, **kwargs)


class BlackOut(_Sampling):
    """Cross entropy of the labelled word among a few others, drawn in proportion to their counts.

    Args:
        in_size: Size of the vectors.
        counts: How often each word occurs, by its label.
        sample_size: Number of words to draw for each label.

    Attributes:
        W: One vector for every word, zero at first.
        sample_data: Words to take in place of drawn ones, (N, sample_size), if it is set.

    See: :func:`~kusari.functions.black_out`.
    """

    sample_data: Any = None

    def __init__(self, in_size: int, counts: Sequence[int] | Mapping[int, int], sample_size: int) -> None:
        super().__init__()
        values = [counts[i] for i in range(len(counts))]
        self.sample_size = sample_size
        self.sampler = WalkerAlias(values)
        with self.init_scope():
            self.W = Parameter(0, (len(values), in_size))

    def forward(self, x: Any, t: Any) -> Any:
        """Return the mean loss of vectors ``x``, (N, in_size), and labels ``t``, (N,)."""
        words = self.sample_data
        if words is None:
            words = negative_sampling.DrawSamples(self.sampler.sample, self.sample_size).apply((t,))[0]
        return F.black_out(x, t, self.W, words)


def _zeros(dtype: Any) -> Any:
    return Constant(0, dtype)
