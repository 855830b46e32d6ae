"""VGG."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import functions as F
from ....initializers import Normal, Zero
from ...connection.convolution_nd import Convolution2D
from ...connection.linear import Linear
from .pretrained import Pretrained, prepared

__all__ = ["VGG16Layers", "VGG19Layers", "VGGLayers", "prepare"]

_BLOCKS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_CHANNELS = (64, 128, 256, 512, 512)


def prepare(image: Any, size: Any = (224, 224)) -> np.ndarray:
    """Return an image as VGG expects it: blue, green and red without their means, of shape (3, height, width).

    Args:
        image: Pillow's image, or an array of shape (height, width), (height, width, 3) or (3, height, width).
        size: Width and height to which it is resized; None leaves it.
    """
    return prepared(image, size, (103.939, 116.779, 123.68))


def _pool(x: Any) -> Any:
    return F.max_pooling_2d(x, 2)


class VGGLayers(Pretrained):
    """VGG with 16 or 19 layers that have parameters; see :class:`VGG16Layers`."""

    usual = "fc7"
    prepare = staticmethod(prepare)

    def __init__(self, pretrained_model: Any = "auto", n_layers: int = 16) -> None:
        super().__init__()
        if n_layers not in _BLOCKS:
            raise ValueError(f"VGG has 16 or 19 layers, not {n_layers}")
        initial = Zero() if pretrained_model else Normal(0.01)
        channels = 3
        self._layers: list[str] = []
        with self.init_scope():
            for block, (count, out) in enumerate(zip(_BLOCKS[n_layers], _CHANNELS, strict=True), 1):
                for i in range(1, count + 1):
                    self._layers.append(f"conv{block}_{i}")
                    setattr(self, self._layers[-1], Convolution2D(channels, out, 3, 1, 1, initialW=initial))
                    channels = out
                self._layers.append(f"pool{block}")
            self.fc6 = Linear(512 * 7 * 7, 4096, initialW=initial)
            self.fc7 = Linear(4096, 4096, initialW=initial)
            self.fc8 = Linear(4096, 1000, initialW=initial)
        self.load(pretrained_model, f"VGG_ILSVRC_{n_layers}_layers.npz")

    @property
    def caffe_names(self) -> dict[str, tuple[str, ...]]:
        """The names that links have in the published model: their own."""
        return {child.name: (child.name,) for child in self.children() if child.name}

    @property
    def functions(self) -> dict[str, list[Callable[[Any], Any]]]:
        """The functions of each layer, by its name, in order."""
        convolutions: dict[str, list[Callable[[Any], Any]]] = {
            name: [_pool] if name.startswith("pool") else [getattr(self, name), F.relu] for name in self._layers}
        return {**convolutions, "fc6": [self.fc6, F.relu, F.dropout], "fc7": [self.fc7, F.relu, F.dropout],
                "fc8": [self.fc8], "prob": [F.softmax]}


class VGG16Layers(VGGLayers):
    """VGG with 16 layers that have parameters, for images of 224 x 224.

    Args:
        pretrained_model: A file of parameters that Chainer or Kusari has saved, or the published ``.caffemodel``;
            ``"auto"`` for ``VGG_ILSVRC_16_layers.npz`` in ``pfnet/chainer/models`` below the folder of data sets; None
            for random ones.

    Raises:
        OSError: There is no such file.

    See: Simonyan and Zisserman, `Very Deep Convolutional Networks for Large-Scale Image Recognition
    <https://arxiv.org/abs/1409.1556>`_, 2014.
    """

    def __init__(self, pretrained_model: Any = "auto") -> None:
        super().__init__(pretrained_model, 16)


class VGG19Layers(VGGLayers):
    """VGG with 19 layers that have parameters; see :class:`VGG16Layers`."""

    def __init__(self, pretrained_model: Any = "auto") -> None:
        super().__init__(pretrained_model, 19)
