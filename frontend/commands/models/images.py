"""Convolutional models."""

from __future__ import annotations

from typing import Any

from ... import Chain, ChainList, optimizers
from ... import functions as F
from ... import links as L
from .definition import label_sets, model, normal


def image_data(random: Any, batch: int, channels: int, side: int, classes: int, **_: Any) -> Any:
    """Pictures and labels."""
    return (normal(random, batch, channels, side, side),), label_sets(random, classes, batch)


def momentum() -> Any:
    """The optimizer of all of them."""
    return optimizers.MomentumSGD(0.01, 0.9)


class Classifier(Chain):
    """A network whose loss is softmax cross entropy."""

    forward: Any

    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)


@model("lenet_cnn", momentum, image_data, dict(batch=64, channels=1, side=28, classes=10, widths=(20, 50), units=500),
       tiny=dict(batch=2, side=16, widths=(2, 3), units=5))
class LeNet(Classifier):
    """LeNet, 5 by 5 convolutions of 20 and 50 channels on 28 by 28, batch 64, momentum SGD."""

    def __init__(self, channels: int, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 2 - 4) // 2
        with self.init_scope():
            self.conv1 = L.Convolution2D(channels, widths[0], 5)
            self.conv2 = L.Convolution2D(widths[0], widths[1], 5)
            self.fc1 = L.Linear(widths[1] * last * last, units)
            self.fc2 = L.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(self.conv1(x), 2)
        h = F.max_pooling_2d(self.conv2(h), 2)
        return self.fc2(F.relu(self.fc1(h)))


class Normalized(Chain):
    """A convolution without bias, and batch normalization."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, pad: int = 0) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(n_in, n_out, size, stride, pad, nobias=True)
            self.bn = L.BatchNormalization(n_out)

    def forward(self, x: Any) -> Any:
        return self.bn(self.conv(x))


@model("vgg_cifar", momentum, image_data,
       dict(batch=32, channels=3, side=32, classes=10, widths=(64, 128, 256), units=256),
       tiny=dict(batch=2, side=8, widths=(3, 4, 5), units=6))
class VGG(Classifier):
    """VGG, six 3 by 3 convolutions with batch normalization on 32 by 32, batch 32, momentum SGD."""

    def __init__(self, channels: int, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        last = side // 2 ** len(widths)
        with self.init_scope():
            self.body = ChainList()
            for width in widths:
                self.body.append(Normalized(channels, width, 3, pad=1))
                self.body.append(Normalized(width, width, 3, pad=1))
                channels = width
            self.fc1 = L.Linear(channels * last * last, units)
            self.fc2 = L.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        for i, layer in enumerate(self.body):
            x = F.relu(layer(x))
            if i % 2:
                x = F.max_pooling_2d(x, 2)
        return self.fc2(F.relu(self.fc1(x)))


class BasicBlock(Chain):
    """Two convolutions beside a shortcut, which is a 1 by 1 convolution where the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        with self.init_scope():
            self.first = Normalized(n_in, n_out, 3, stride, 1)
            self.second = Normalized(n_out, n_out, 3, 1, 1)
            self.short = Normalized(n_in, n_out, 1, stride) if stride != 1 or n_in != n_out else None

    def forward(self, x: Any) -> Any:
        h = self.second(F.relu(self.first(x)))
        return F.relu(h + (x if self.short is None else self.short(x)))


@model("resnet18", momentum, image_data,
       dict(batch=8, channels=3, side=64, classes=1000, widths=(64, 128, 256, 512)), infer=dict(batch=1, side=224),
       tiny=dict(batch=2, side=48, classes=5, widths=(3, 4, 5, 6)))
class ResNet18(Classifier):
    """ResNet-18, training 8 pictures of 64 by 64 by momentum SGD, inference of one picture of 224 by 224."""

    def __init__(self, channels: int, classes: int, widths: Any, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = Normalized(channels, widths[0], 7, 2, 3)
            self.body = ChainList()
            n_in = widths[0]
            for i, width in enumerate(widths):
                self.body.append(BasicBlock(n_in, width, 1 if i == 0 else 2))
                self.body.append(BasicBlock(width, width, 1))
                n_in = width
            self.fc = L.Linear(n_in, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.stem(x)), 3, 2, 1, cover_all=False)
        for block in self.body:
            h = block(h)
        return self.fc(F.average_pooling_2d(h, h.shape[2:]))
