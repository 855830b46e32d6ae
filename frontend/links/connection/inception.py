"""Inception modules, of GoogLeNet and with batch normalization."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...errors import ArgumentError
from ...link import Chain
from ..normalization.batch_normalization import BatchNormalization
from .convolution_nd import Convolution2D

__all__ = ["Inception", "InceptionBN"]


class Inception(Chain):
    """Convolutions of sizes 1, 3 and 5 and a pooling in parallel, with 1 by 1 convolutions before or after.

    Szegedy et al., `Going Deeper with Convolutions <https://arxiv.org/abs/1409.4842>`_ (2014).

    Args:
        in_channels: Number of channels of the input, or None.
        out1: Channels of the 1 by 1 convolution.
        proj3: Channels before the 3 by 3 convolution.
        out3: Channels of the 3 by 3 convolution.
        proj5: Channels before the 5 by 5 convolution.
        out5: Channels of the 5 by 5 convolution.
        proj_pool: Channels after the pooling.
        conv_init: Initializer of the filters.
        bias_init: Initializer of the biases.

    >>> L.Inception(3, 4, 2, 4, 2, 4, 1)(np.ones((1, 3, 6, 6), "float32")).shape
    (1, 13, 6, 6)
    """

    def __init__(
        self,
        in_channels: int | None,
        out1: int,
        proj3: int,
        out3: int,
        proj5: int,
        out5: int,
        proj_pool: int,
        conv_init: Any = None,
        bias_init: Any = None,
    ) -> None:
        super().__init__()
        more = {"initialW": conv_init, "initial_bias": bias_init}
        with self.init_scope():
            self.conv1 = Convolution2D(in_channels, out1, 1, **more)
            self.proj3 = Convolution2D(in_channels, proj3, 1, **more)
            self.conv3 = Convolution2D(proj3, out3, 3, pad=1, **more)
            self.proj5 = Convolution2D(in_channels, proj5, 1, **more)
            self.conv5 = Convolution2D(proj5, out5, 5, pad=2, **more)
            self.projp = Convolution2D(in_channels, proj_pool, 1, **more)

    def forward(self, x: Any) -> Any:
        """Apply the module to images of shape (N, in channels, height, width)."""
        out1 = self.conv1(x)
        out3 = self.conv3(F.relu(self.proj3(x)))
        out5 = self.conv5(F.relu(self.proj5(x)))
        pool = self.projp(F.max_pooling_2d(x, 3, stride=1, pad=1))
        return F.relu(F.concat((out1, out3, out5, pool), axis=1))


class InceptionBN(Chain):
    """The module of the batch-normalized GoogLeNet: two 3 by 3 convolutions in place of the 5 by 5 one.

    Ioffe & Szegedy, `Batch Normalization <https://arxiv.org/abs/1502.03167>`_ (2015).

    Args:
        in_channels: Number of channels of the input, or None.
        out1: Channels of the 1 by 1 convolution; 0 to leave it out.
        proj3: Channels before the single 3 by 3 convolution.
        out3: Channels of that convolution.
        proj33: Channels before the two 3 by 3 convolutions.
        out33: Channels of both.
        pooltype: ``"max"`` or ``"avg"``.
        proj_pool: Channels after the pooling; None to leave the convolution out, where ``out1`` is 0.
        stride: Step of the last convolutions and of the pooling; more than 1 only where ``out1`` is 0.
        conv_init: Initializer of the filters.
        dtype: Data type of the batch normalizations.

    Raises:
        NotImplementedError: ``pooltype`` is none of the two.
        ArgumentError: ``out1`` does not fit ``stride`` and ``proj_pool`` (also ValueError).
    """

    def __init__(
        self,
        in_channels: int | None,
        out1: int,
        proj3: int,
        out3: int,
        proj33: int,
        out33: int,
        pooltype: str,
        proj_pool: int | None = None,
        stride: int = 1,
        conv_init: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if pooltype not in ("max", "avg"):
            raise NotImplementedError(f"pooltype must be 'max' or 'avg', got {pooltype!r}")
        if out1 > 0 and (stride != 1 or proj_pool is None):
            raise ArgumentError(f"out1 > 0 needs stride == 1 and a proj_pool, got {stride} and {proj_pool}")
        self.out1, self.proj_pool, self.pooltype, self.stride = out1, proj_pool, pooltype, stride

        def convolution(n_in: int | None, n_out: int, ksize: int, step: int = 1) -> Convolution2D:
            return Convolution2D(n_in, n_out, ksize, step, ksize // 2, nobias=True, initialW=conv_init)

        with self.init_scope():
            self.proj3 = convolution(in_channels, proj3, 1)
            self.conv3 = convolution(proj3, out3, 3, stride)
            self.proj33 = convolution(in_channels, proj33, 1)
            self.conv33a = convolution(proj33, out33, 3)
            self.conv33b = convolution(out33, out33, 3, stride)
            self.proj3n = BatchNormalization(proj3, dtype=dtype)
            self.conv3n = BatchNormalization(out3, dtype=dtype)
            self.proj33n = BatchNormalization(proj33, dtype=dtype)
            self.conv33an = BatchNormalization(out33, dtype=dtype)
            self.conv33bn = BatchNormalization(out33, dtype=dtype)
            if out1 > 0:
                self.conv1 = convolution(in_channels, out1, 1)
                self.conv1n = BatchNormalization(out1, dtype=dtype)
            if proj_pool is not None:
                self.poolp = convolution(in_channels, proj_pool, 1)
                self.poolpn = BatchNormalization(proj_pool, dtype=dtype)

    def forward(self, x: Any) -> Any:
        """Apply the module to images of shape (N, in channels, height, width)."""
        outs: list[Any] = []
        if self.out1 > 0:
            outs.append(F.relu(self.conv1n(self.conv1(x))))
        h3 = F.relu(self.proj3n(self.proj3(x)))
        outs.append(F.relu(self.conv3n(self.conv3(h3))))
        h33 = F.relu(self.proj33n(self.proj33(x)))
        h33 = F.relu(self.conv33an(self.conv33a(h33)))
        outs.append(F.relu(self.conv33bn(self.conv33b(h33))))
        pooling = F.max_pooling_2d if self.pooltype == "max" else F.average_pooling_2d
        pool = pooling(x, 3, stride=self.stride, pad=1, **({"cover_all": False} if self.pooltype == "max" else {}))
        if self.proj_pool is not None:
            pool = F.relu(self.poolpn(self.poolp(pool)))
        return F.concat((*outs, pool), axis=1)
