"""The survey: small models of many kinds, which no table of goals names. ``side_by_side.py --survey`` measures them.

Written like those of ``kusari.commands.models``, for the API of Chainer; their twins are in ``torch_survey.py``.

Invariant: nothing newer than Python 3.9 and nothing that Chainer 7 lacks. Nothing is drawn while a model runs: the
losses of all libraries are compared.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kusari import Chain, ChainList, optimizers
from kusari import functions as F
from kusari import links as L
from kusari.commands.models.definition import LABEL_SETS, Model, label_sets, model, normal, uniform
from kusari.commands.models.dense import MLP
from kusari.commands.models.images import Classifier, Normalized, image_data, momentum

SURVEY: dict[str, Model] = {}
"""Every model of the survey, by name; :mod:`.survey_sequences` adds its own."""

survey = partial(model, into=SURVEY)


def adam() -> Any:
    """The optimizer of most."""
    return optimizers.Adam(0.001)


def integers(random: Any, count: int, *shape: int) -> Any:
    """Words, actions or the like."""
    return random.randint(0, count, shape).astype(np.int32)


def vector_data(random: Any, batch: int, n_in: int, n_out: int, **_: Any) -> Any:
    """Vectors and their classes."""
    return (uniform(random, batch, n_in),), label_sets(random, n_out, batch)


@survey("wide_mlp", lambda: optimizers.SGD(0.01), vector_data, dict(batch=256, n_in=1024, units=2048, n_out=10),
        infer=dict(batch=1), tiny=dict(batch=3, n_in=7, units=6, n_out=3))
class WideMLP(MLP, Classifier):
    """MLP 1024-2048-2048-10, training a batch of 256 by SGD, inference of one vector: weights pass by once."""


@survey("batch_norm_mlp", lambda: optimizers.RMSprop(1e-4), vector_data, dict(batch=128, n_in=784, units=256, n_out=10),
        tiny=dict(batch=4, n_in=7, units=6, n_out=3))
class BatchNormMLP(Classifier):
    """MLP 784-256-256-10 with batch normalization, batch 128, RMSprop."""

    def __init__(self, n_in: int, units: int, n_out: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.bn1 = L.Linear(n_in, units), L.BatchNormalization(units)
            self.l2, self.bn2 = L.Linear(units, units), L.BatchNormalization(units)
            self.l3 = L.Linear(units, n_out)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn1(self.l1(x)))
        return self.l3(F.relu(self.bn2(self.l2(h))))


def autoencoder_data(random: Any, batch: int, n_in: int, **_: Any) -> Any:
    """Pictures as vectors, and pictures of zeros and ones."""
    return (uniform(random, batch, n_in),), label_sets(random, 2, batch, n_in)


@survey("autoencoder", adam, autoencoder_data, dict(batch=100, n_in=784, units=256, code=64),
        tiny=dict(batch=3, n_in=7, units=6, code=2))
class Autoencoder(Chain):
    """Autoencoder 784-256-64-256-784, sigmoid, batch 100, Adam."""

    def __init__(self, n_in: int, units: int, code: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(n_in, units), L.Linear(units, code)
            self.l3, self.l4 = L.Linear(code, units), L.Linear(units, n_in)

    def forward(self, x: Any) -> Any:
        h = F.sigmoid(self.l2(F.sigmoid(self.l1(x))))
        return self.l4(F.sigmoid(self.l3(h)))

    def loss(self, x: Any, t: Any) -> Any:
        return F.sigmoid_cross_entropy(self.forward(x), t)


def episode_data(random: Any, batch: int, n_in: int, actions: int, **_: Any) -> Any:
    """What is seen; what was done, and what it brought."""
    return (normal(random, batch, n_in),), [(integers(random, actions, batch), normal(random, batch))
                                            for _ in range(LABEL_SETS)]


@survey("actor_critic", adam, episode_data, dict(batch=32, n_in=8, units=64, actions=4),
        tiny=dict(batch=3, n_in=4, units=5, actions=3))
class ActorCritic(Chain):
    """Actor and critic on a perceptron 8-64-64 with an entropy bonus, batch 32, Adam: overhead."""

    def __init__(self, n_in: int, units: int, actions: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(n_in, units), L.Linear(units, units)
            self.policy, self.value = L.Linear(units, actions), L.Linear(units, 1)

    def forward(self, x: Any) -> Any:
        h = F.tanh(self.l2(F.tanh(self.l1(x))))
        return self.policy(h), self.value(h)

    def loss(self, x: Any, action: Any, gain: Any) -> Any:
        policy, value = self.forward(x)
        chances = F.log_softmax(policy)
        entropy = -F.mean(F.sum(F.exp(chances) * chances, axis=1))
        return (-F.mean(F.select_item(chances, action) * gain)
                + 0.5 * F.mean(F.square(gain - F.flatten(value))) - 0.01 * entropy)


def screen_data(random: Any, batch: int, side: int, actions: int, **_: Any) -> Any:
    """Four screens; an action and its worth."""
    return (uniform(random, batch, 4, side, side),), [(integers(random, actions, batch), normal(random, batch))
                                                      for _ in range(LABEL_SETS)]


@survey("dqn", lambda: optimizers.RMSprop(1e-4), screen_data, dict(batch=16, side=84, units=256, actions=6),
        tiny=dict(batch=2, side=20, units=5, actions=3))
class DQN(Chain):
    """Q-network, 8 by 8 and 4 by 4 convolutions with strides on 84 by 84, Huber loss, batch 16, RMSprop."""

    def __init__(self, side: int, units: int, actions: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 4 - 2) // 2
        with self.init_scope():
            self.conv1, self.conv2 = L.Convolution2D(4, 16, 8, 4), L.Convolution2D(16, 32, 4, 2)
            self.l1, self.l2 = L.Linear(32 * last * last, units), L.Linear(units, actions)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.l2(F.relu(self.l1(h)))

    def loss(self, x: Any, action: Any, worth: Any) -> Any:
        chosen = F.expand_dims(F.select_item(self.forward(x), action), 1)
        return F.mean(F.huber_loss(chosen, F.expand_dims(worth, 1), 1.0, reduce="no"))


def pair_data(random: Any, batch: int, side: int, **_: Any) -> Any:
    """Two pictures, and whether they show the same."""
    pictures = normal(random, batch, 1, side, side), normal(random, batch, 1, side, side)
    return pictures, label_sets(random, 2, batch)


@survey("siamese", momentum, pair_data, dict(batch=16, side=28, units=64), tiny=dict(batch=2, side=16, units=5))
class Siamese(Chain):
    """Two pictures of 28 by 28 through the same two 5 by 5 convolutions, contrastive loss, batch 16, momentum SGD."""

    def __init__(self, side: int, units: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 2 - 4) // 2
        with self.init_scope():
            self.conv1, self.conv2 = L.Convolution2D(1, 16, 5), L.Convolution2D(16, 32, 5)
            self.l1, self.l2 = L.Linear(32 * last * last, units), L.Linear(units, 2)

    def one(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.conv1(x)), 2)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 2)
        return self.l2(F.relu(self.l1(h)))

    def forward(self, x: Any, y: Any) -> Any:
        return self.one(x), self.one(y)

    def loss(self, x: Any, y: Any, same: Any) -> Any:
        return F.contrastive(*self.forward(x, y), same)


def volume_data(random: Any, batch: int, side: int, classes: int, **_: Any) -> Any:
    """Volumes of half the depth, and labels."""
    return (normal(random, batch, 1, side // 2, side, side),), label_sets(random, classes, batch)


@survey("conv3d", adam, volume_data, dict(batch=4, side=32, classes=10, widths=(16, 32), units=64),
        tiny=dict(batch=2, side=8, classes=3, widths=(2, 3), units=50))
class Conv3D(Classifier):
    """Two 3-D convolutions of 16 and 32 channels on 16 by 32 by 32, max pooling, batch 4, Adam."""

    def __init__(self, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution3D(1, widths[0], 3, pad=1)
            self.conv2 = L.Convolution3D(widths[0], widths[1], 3, pad=1)
            self.l1 = L.Linear(widths[1] * (side // 8) * (side // 4) ** 2, units)
            self.l2 = L.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_3d(F.relu(self.conv1(x)), 2)
        h = F.max_pooling_3d(F.relu(self.conv2(h)), 2)
        return self.l2(F.relu(self.l1(h)))


class Inverted(Chain):
    """MobileNet's block: wider, depthwise, narrower; with a shortcut where the shape stays."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        wide = 6 * n_in
        self.same = stride == 1 and n_in == n_out
        with self.init_scope():
            self.wider = Normalized(n_in, wide, 1)
            self.conv = L.Convolution2D(wide, wide, 3, stride, 1, nobias=True, groups=wide)
            self.bn = L.BatchNormalization(wide)
            self.narrower = Normalized(wide, n_out, 1)

    def forward(self, x: Any) -> Any:
        h = F.relu6(self.bn(self.conv(F.relu6(self.wider(x)))))
        h = self.narrower(h)
        return x + h if self.same else h


@survey("mobilenet", momentum, image_data, dict(batch=16, channels=3, side=32, classes=10, widths=(16, 24, 32, 64)),
        tiny=dict(batch=2, side=16, classes=3, widths=(2, 3, 4, 5)))
class MobileNet(Classifier):
    """MobileNet, five inverted blocks of 16 to 64 channels on 32 by 32, batch 16, momentum SGD."""

    def __init__(self, channels: int, classes: int, widths: Any, **_: Any) -> None:
        super().__init__()
        a, b, c, d = widths
        with self.init_scope():
            self.stem = Normalized(channels, a, 3, 1, 1)
            self.body = ChainList(Inverted(a, b, 2), Inverted(b, b, 1), Inverted(b, c, 2), Inverted(c, c, 1),
                                  Inverted(c, d, 2))
            self.fc = L.Linear(d, classes)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.stem(x))
        for block in self.body:
            h = block(h)
        return self.fc(F.mean(h, axis=(2, 3)))


class Dense(Chain):
    """DenseNet's layer: new channels behind the old ones."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        with self.init_scope():
            self.bn = L.BatchNormalization(n_in)
            self.conv = L.Convolution2D(n_in, growth, 3, pad=1, nobias=True)

    def forward(self, x: Any) -> Any:
        return F.concat([x, self.conv(F.relu(self.bn(x)))], axis=1)


@survey("densenet", momentum, image_data,
        dict(batch=16, channels=3, side=32, classes=10, first=16, growth=12, depth=5),
        tiny=dict(batch=2, side=8, classes=3, first=4, growth=2, depth=3))
class DenseNet(Classifier):
    """DenseNet, two blocks of five layers that add 12 channels each, on 32 by 32, batch 16, momentum SGD."""

    def __init__(self, channels: int, classes: int, first: int, growth: int, depth: int, **_: Any) -> None:
        super().__init__()
        middle = first + growth * depth
        last = middle // 2 + growth * depth
        with self.init_scope():
            self.conv = L.Convolution2D(channels, first, 3, pad=1, nobias=True)
            self.block1 = ChainList(*[Dense(first + growth * i, growth) for i in range(depth)])
            self.bn1 = L.BatchNormalization(middle)
            self.between = L.Convolution2D(middle, middle // 2, 1, nobias=True)
            self.block2 = ChainList(*[Dense(middle // 2 + growth * i, growth) for i in range(depth)])
            self.bn2 = L.BatchNormalization(last)
            self.fc = L.Linear(last, classes)

    def forward(self, x: Any) -> Any:
        h = self.conv(x)
        for layer in self.block1:
            h = layer(h)
        h = F.average_pooling_2d(self.between(F.relu(self.bn1(h))), 2)
        for layer in self.block2:
            h = layer(h)
        return self.fc(F.mean(F.relu(self.bn2(h)), axis=(2, 3)))


class Twice(Chain):
    """Two 3 by 3 convolutions with batch normalization and ReLU."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        with self.init_scope():
            self.first, self.second = Normalized(n_in, n_out, 3, pad=1), Normalized(n_out, n_out, 3, pad=1)

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))))


def mask_data(random: Any, batch: int, channels: int, side: int, classes: int, **_: Any) -> Any:
    """Pictures, and the class of each pixel."""
    return (normal(random, batch, channels, side, side),), label_sets(random, classes, batch, side, side)


@survey("unet", adam, mask_data, dict(batch=4, channels=3, side=64, classes=2, width=16),
        tiny=dict(batch=2, side=8, width=3))
class UNet(Classifier):
    """U-Net, three levels of 16 to 64 channels on 64 by 64, deconvolutions, a class per pixel, batch 4, Adam."""

    def __init__(self, channels: int, classes: int, width: int, **_: Any) -> None:
        super().__init__()
        a, b, c = width, 2 * width, 4 * width
        with self.init_scope():
            self.down1, self.down2, self.middle = Twice(channels, a), Twice(a, b), Twice(b, c)
            self.up2, self.up1 = L.Deconvolution2D(c, b, 2, 2), L.Deconvolution2D(b, a, 2, 2)
            self.join2, self.join1 = Twice(c, b), Twice(b, a)
            self.out = L.Convolution2D(a, classes, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(F.max_pooling_2d(first, 2))
        h = self.up2(self.middle(F.max_pooling_2d(second, 2)))
        h = self.up1(self.join2(F.concat([h, second], axis=1)))
        return self.out(self.join1(F.concat([h, first], axis=1)))
