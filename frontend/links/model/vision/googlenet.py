"""GoogLeNet."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import functions as F
from ....initializers import LeCunUniform, Zero
from ...connection.convolution_nd import Convolution2D
from ...connection.inception import Inception
from ...connection.linear import Linear
from .pretrained import Pretrained, prepared

__all__ = ["GoogLeNet", "prepare"]

# Input channels, then those of 1 x 1, of 3 x 3 and what leads to it, of 5 x 5 and what leads to it, after pooling.
_INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64), "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64), "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128), "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}

_PARTS = {"conv1": "1x1", "proj3": "3x3_reduce", "conv3": "3x3", "proj5": "5x5_reduce", "conv5": "5x5",
          "projp": "pool_proj"}


def prepare(image: Any, size: Any = (224, 224)) -> np.ndarray:
    """Return an image as GoogLeNet expects it: blue, green and red without their means, of shape (3, height, width).

    Args:
        image: Pillow's image, or an array of shape (height, width), (height, width, 3) or (3, height, width).
        size: Width and height to which it is resized; None leaves it.
    """
    return prepared(image, size, (104.0, 117.0, 123.0))


def _pool(x: Any) -> Any:
    return F.max_pooling_2d(x, 3, 2)


def _normalize(x: Any) -> Any:
    return F.local_response_normalization(x, 5, 1, 1e-4 / 5)


def _shrink(x: Any) -> Any:
    return F.average_pooling_2d(x, 5, 3)


def _average(x: Any) -> Any:
    return F.average_pooling_2d(x, 7, 1)


def _drop(x: Any) -> Any:
    return F.dropout(x, 0.4)


class GoogLeNet(Pretrained):
    """GoogLeNet, for images of 224 x 224; ``loss1_fc2`` and ``loss2_fc2`` are its classifiers half way.

    Args:
        pretrained_model: A file of parameters that Chainer or Kusari has saved, or the published ``.caffemodel``;
            ``"auto"`` for ``bvlc_googlenet.npz`` in ``pfnet/chainer/models`` below the folder of data sets; None
            for random ones.

    Raises:
        OSError: There is no such file.

    See: Szegedy et al., `Going Deeper with Convolutions <https://arxiv.org/abs/1409.4842>`_, 2014.
    """

    branches = {"loss1_fc2": "inception_4a", "loss2_fc2": "inception_4d"}
    prepare = staticmethod(prepare)

    def __init__(self, pretrained_model: Any = "auto") -> None:
        super().__init__()
        initial = Zero() if pretrained_model else LeCunUniform(scale=1.0)

        def convolution(*arguments: Any) -> Convolution2D:
            return Convolution2D(*arguments, initialW=initial)

        def linear(size: int, out: int) -> Linear:
            return Linear(size, out, initialW=initial)
        with self.init_scope():
            self.conv1 = convolution(3, 64, 7, 2, 3)
            self.conv2_reduce = convolution(64, 64, 1)
            self.conv2 = convolution(64, 192, 3, 1, 1)
            for name, sizes in _INCEPTIONS.items():
                setattr(self, f"inc{name}", Inception(*sizes, conv_init=initial if pretrained_model else None))
            self.loss3_fc = linear(1024, 1000)
            for i, channels in ((1, 512), (2, 528)):
                setattr(self, f"loss{i}_conv", convolution(channels, 128, 1))
                setattr(self, f"loss{i}_fc1", linear(4 * 4 * 128, 1024))
                setattr(self, f"loss{i}_fc2", linear(1024, 1000))
        self.load(pretrained_model, "bvlc_googlenet.npz")

    @property
    def caffe_names(self) -> dict[str, tuple[str, ...]]:
        """The names that links have in the published model, by their paths."""
        names = {"conv1": ("conv1/7x7_s2",), "conv2_reduce": ("conv2/3x3_reduce",), "conv2": ("conv2/3x3",),
                 "loss3_fc": ("loss3/classifier",)}
        for name in _INCEPTIONS:
            names |= {f"inc{name}/{link}": (f"inception_{name}/{part}",) for link, part in _PARTS.items()}
        for i in (1, 2):
            names |= {f"loss{i}_{link}": (f"loss{i}/{part}",)
                      for link, part in (("conv", "conv"), ("fc1", "fc"), ("fc2", "classifier"))}
        return names

    @property
    def functions(self) -> dict[str, list[Callable[[Any], Any]]]:
        """The functions of each layer, by its name, in order."""
        found: dict[str, list[Callable[[Any], Any]]] = {
            "conv1": [self.conv1, F.relu], "pool1": [_pool, _normalize], "conv2_reduce": [self.conv2_reduce, F.relu],
            "conv2": [self.conv2, F.relu, _normalize], "pool2": [_pool]}
        for name in _INCEPTIONS:
            found[f"inception_{name}"] = [getattr(self, f"inc{name}")]
            if name in ("3b", "4e"):
                found[f"pool{name[0]}"] = [_pool]
        found |= {"pool5": [_average], "loss3_fc": [_drop, self.loss3_fc], "prob": [F.softmax]}
        for i in (1, 2):
            convolution, first, second = (getattr(self, f"loss{i}_{part}") for part in ("conv", "fc1", "fc2"))
            found[f"loss{i}_fc2"] = [_shrink, convolution, F.relu, first, F.relu, second]
        return found
