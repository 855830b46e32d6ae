"""Further convolutional models, whose memory ``memory.py`` measures: no table of times names them.

Written like those of ``kusari.commands.models``, for the API of Chainer.

Invariant: nothing newer than Python 3.9 and nothing that Chainer 7 lacks. Nothing is drawn while a model runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kusari import Chain, ChainList
from kusari import functions as F
from kusari import links as L
from kusari.commands.models.definition import Model, label_sets, model, uniform
from kusari.commands.models.images import Classifier, Normalized, image_data, momentum

from .survey import adam, volume_data

FURTHER: dict[str, Model] = {}
"""Every model of this file, by name."""

further = partial(model, into=FURTHER)


@further("inception", momentum, image_data, dict(batch=16, channels=3, side=32, classes=10, width=8),
         tiny=dict(batch=2, side=16, classes=3, width=2))
class InceptionNet(Classifier):
    """GoogLeNet's kind: a stem, four inception blocks, pooling between them, on 32 by 32, batch 16, momentum SGD."""

    def __init__(self, channels: int, classes: int, width: int, **_: Any) -> None:
        super().__init__()
        w = width
        with self.init_scope():
            self.stem = L.Convolution2D(channels, 8 * w, 3, pad=1)
            self.a = L.Inception(8 * w, 4 * w, 4 * w, 6 * w, w, 2 * w, 2 * w)
            self.b = L.Inception(14 * w, 6 * w, 6 * w, 8 * w, 2 * w, 4 * w, 4 * w)
            self.c = L.Inception(22 * w, 8 * w, 6 * w, 12 * w, 2 * w, 4 * w, 4 * w)
            self.d = L.Inception(28 * w, 8 * w, 8 * w, 16 * w, 2 * w, 4 * w, 4 * w)
            self.fc = L.Linear(32 * w, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.stem(x)), 3, stride=2)
        h = self.b(self.a(h))
        h = self.d(self.c(F.max_pooling_2d(h, 3, stride=2)))
        return self.fc(F.mean(h, axis=(2, 3)))


def picture_data(random: Any, batch: int, channels: int, side: int, **_: Any) -> Any:
    """Pictures, and pictures of zeros and ones."""
    return (uniform(random, batch, channels, side, side),), label_sets(random, 2, batch, channels, side, side)


class Stage(Chain):
    """A convolution of some kind, batch normalization and a leaky ReLU."""

    def __init__(self, conv: Any, n_out: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        with self.init_scope():
            self.conv, self.bn = conv, L.BatchNormalization(n_out)

    def forward(self, x: Any) -> Any:
        return F.leaky_relu(self.bn(self.conv(x)), self.slope) if self.slope else F.relu(self.bn(self.conv(x)))


@further("conv_autoencoder", adam, picture_data, dict(batch=32, channels=3, side=64, width=32),
         tiny=dict(batch=2, side=16, width=3))
class ConvAutoencoder(Chain):
    """Three convolutions with strides and three deconvolutions, batch normalization, on 64 by 64, batch 32, Adam."""

    def __init__(self, channels: int, width: int, **_: Any) -> None:
        super().__init__()
        a, b, c = width, 2 * width, 4 * width
        down = [Stage(L.Convolution2D(n, m, 4, 2, 1), m, 0.2) for n, m in ((channels, a), (a, b), (b, c))]
        up = [Stage(L.Deconvolution2D(n, m, 4, 2, 1), m, 0.0) for n, m in ((c, b), (b, a))]
        with self.init_scope():
            self.stages = ChainList(*down, *up)
            self.out = L.Deconvolution2D(a, channels, 4, 2, 1)

    def forward(self, x: Any) -> Any:
        h = x
        for stage in self.stages:
            h = stage(h)
        return self.out(h)

    def loss(self, x: Any, t: Any) -> Any:
        return F.sigmoid_cross_entropy(self.forward(x), t)


@further("volumes", adam, volume_data, dict(batch=2, side=48, classes=10, widths=(16, 32, 64)),
         tiny=dict(batch=2, side=8, classes=3, widths=(2, 3, 4)))
class Volumes(Classifier):
    """Three 3-D convolutions with batch normalization and max pooling on 24 by 48 by 48, batch 2, Adam."""

    def __init__(self, classes: int, widths: Any, **_: Any) -> None:
        super().__init__()
        a, b, c = widths
        with self.init_scope():
            self.stages = ChainList(*[Stage(L.Convolution3D(n, m, 3, pad=1, nobias=True), m, 0.0)
                                      for n, m in ((1, a), (a, b), (b, c))])
            self.fc = L.Linear(c, classes)

    def forward(self, x: Any) -> Any:
        h = x
        for stage in self.stages:
            h = F.max_pooling_3d(stage(h), 2)
        return self.fc(F.mean(h, axis=(2, 3, 4)))


class Bottleneck(Chain):
    """A bottleneck whose middle convolution is dilated."""

    def __init__(self, wide: int, narrow: int, dilate: int) -> None:
        super().__init__()
        with self.init_scope():
            self.first = Normalized(wide, narrow, 1)
            self.second = Stage(L.DilatedConvolution2D(narrow, narrow, 3, 1, dilate, dilate, nobias=True), narrow, 0.0)
            self.third = Normalized(narrow, wide, 1)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.third(self.second(F.relu(self.first(x)))))


@further("dilated", momentum, image_data, dict(batch=8, channels=3, side=64, classes=10, width=16),
         tiny=dict(batch=2, side=16, classes=3, width=2))
class Dilated(Classifier):
    """Three bottlenecks, dilated by 1, 2 and 4, behind average pooling, on 64 by 64, batch 8, momentum SGD."""

    def __init__(self, channels: int, classes: int, width: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = Normalized(channels, 4 * width, 3, 1, 1)
            self.blocks = ChainList(*[Bottleneck(4 * width, width, dilate) for dilate in (1, 2, 4)])
            self.fc = L.Linear(4 * width, classes)

    def forward(self, x: Any) -> Any:
        h = F.average_pooling_2d(F.relu(self.stem(x)), 2)
        for block in self.blocks:
            h = block(h)
        return self.fc(F.mean(h, axis=(2, 3)))
