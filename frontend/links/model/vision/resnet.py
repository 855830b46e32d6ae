"""Residual networks."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import functions as F
from ....initializers import HeNormal, Zero
from ....link import Chain
from ....serializers import save_npz
from ...connection.convolution_nd import Convolution2D
from ...connection.linear import Linear
from ...normalization.batch_normalization import BatchNormalization
from .pretrained import Pretrained, prepared

__all__ = ["BottleneckA", "BottleneckB", "BuildingBlock", "ResNet50Layers", "ResNet101Layers", "ResNet152Layers",
           "ResNetLayers", "prepare"]

_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def prepare(image: Any, size: Any = (224, 224)) -> np.ndarray:
    """Return an image as the networks expect it: blue, green and red without their means, of shape (3, height, width).

    Args:
        image: Pillow's image, or an array of shape (height, width), (height, width, 3) or (3, height, width).
        size: Width and height to which it is resized; None leaves it.
    """
    return prepared(image, size, (103.063, 115.903, 123.152))


def _average(x: Any) -> Any:
    n, channels, height, width = x.shape
    return F.reshape(F.average_pooling_2d(x, (height, width), stride=1), (n, channels))


class BottleneckB(Chain):
    """Three convolutions whose result is added to the input: inputs and outputs of ``in_channels`` channels."""

    def __init__(self, in_channels: int, mid_channels: int, initialW: Any = None) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = Convolution2D(in_channels, mid_channels, 1, 1, 0, True, initialW)
            self.bn1 = BatchNormalization(mid_channels)
            self.conv2 = Convolution2D(mid_channels, mid_channels, 3, 1, 1, True, initialW)
            self.bn2 = BatchNormalization(mid_channels)
            self.conv3 = Convolution2D(mid_channels, in_channels, 1, 1, 0, True, initialW)
            self.bn3 = BatchNormalization(in_channels)

    def forward(self, x: Any) -> Any:
        """Return images of the same size."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + x)


class BottleneckA(Chain):
    """Three convolutions whose result is added to a fourth one's: to ``out_channels``, and smaller by ``stride``.

    With ``downsample_fb`` the second convolution steps, otherwise the first one.
    """

    def __init__(self, in_channels: int | None, mid_channels: int, out_channels: int, stride: Any = 2,
                 initialW: Any = None, downsample_fb: bool = False) -> None:
        super().__init__()
        first, second = (1, stride) if downsample_fb else (stride, 1)
        with self.init_scope():
            self.conv1 = Convolution2D(in_channels, mid_channels, 1, first, 0, True, initialW)
            self.bn1 = BatchNormalization(mid_channels)
            self.conv2 = Convolution2D(mid_channels, mid_channels, 3, second, 1, True, initialW)
            self.bn2 = BatchNormalization(mid_channels)
            self.conv3 = Convolution2D(mid_channels, out_channels, 1, 1, 0, True, initialW)
            self.bn3 = BatchNormalization(out_channels)
            self.conv4 = Convolution2D(in_channels, out_channels, 1, stride, 0, True, initialW)
            self.bn4 = BatchNormalization(out_channels)

    def forward(self, x: Any) -> Any:
        """Return smaller images of more channels."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.bn4(self.conv4(x)))


class BuildingBlock(Chain):
    """One :class:`BottleneckA` and ``n_layers - 1`` times :class:`BottleneckB`.

    ``n_layer`` is another word for ``n_layers`` (deprecated).
    """

    def __init__(self, n_layers: int | None = None, in_channels: int | None = None, mid_channels: int | None = None,
                 out_channels: int | None = None, stride: Any = None, initialW: Any = None, downsample_fb: bool = False,
                 *, n_layer: int | None = None) -> None:  # fmt: skip
        if n_layer is not None:
            warnings.warn("Argument `n_layer` is deprecated. Please use `n_layers` instead", DeprecationWarning, 2)
            n_layers = n_layer
        if n_layers is None or mid_channels is None or out_channels is None or stride is None:
            raise TypeError("BuildingBlock needs n_layers, in_channels, mid_channels, out_channels and stride")
        super().__init__()
        with self.init_scope():
            self.a = BottleneckA(in_channels, mid_channels, out_channels, stride, initialW, downsample_fb)
            for i in range(1, n_layers):
                setattr(self, f"b{i}", BottleneckB(out_channels, mid_channels, initialW))
        self._rest = [f"b{i}" for i in range(1, n_layers)]

    def forward(self, x: Any) -> Any:
        """Apply them one after the other."""
        x = self.a(x)
        for name in self._rest:
            x = self[name](x)
        return x


class ResNetLayers(Pretrained):
    """A residual network of 50, 101 or 152 layers; see :class:`ResNet50Layers`."""

    prepare = staticmethod(prepare)

    def __init__(self, pretrained_model: Any, n_layers: int, downsample_fb: bool = False) -> None:
        super().__init__()
        if n_layers not in _BLOCKS:
            raise ValueError(f"the n_layers argument should be either 50, 101, or 152, but {n_layers} was given.")
        self.n_layers = n_layers
        counts = _BLOCKS[n_layers]
        initial: Any = Zero() if pretrained_model else HeNormal(scale=1.0)
        with self.init_scope():
            self.conv1 = Convolution2D(3, 64, 7, 2, 3, initialW=initial)
            self.bn1 = BatchNormalization(64)
            self.res2 = BuildingBlock(counts[0], 64, 64, 256, 1, initial)
            self.res3 = BuildingBlock(counts[1], 256, 128, 512, 2, initial, downsample_fb)
            self.res4 = BuildingBlock(counts[2], 512, 256, 1024, 2, initial, downsample_fb)
            self.res5 = BuildingBlock(counts[3], 1024, 512, 2048, 2, initial, downsample_fb)
            self.fc6 = Linear(2048, 1000, initialW=initial if pretrained_model else None)
        self.load(pretrained_model, f"ResNet-{n_layers}-model.npz")

    @classmethod
    def convert_caffemodel_to_npz(cls, path_caffemodel: Any, path_npz: Any, n_layers: int = 50) -> None:
        """Write the parameters of a file of Caffe's into a file that networks of so many layers load.

        Args:
            path_caffemodel: The published model, or one with layers of the same names.
            path_npz: The file to write.
            n_layers: 50, 101 or 152.
        """
        network = ResNetLayers(None, n_layers)
        network.load_caffemodel(path_caffemodel)
        save_npz(path_npz, network, compression=False)

    @property
    def caffe_names(self) -> dict[str, tuple[str, ...]]:
        """The names that links have in the published model, by their paths."""
        names = {"conv1": ("conv1",), "bn1": ("bn_conv1", "scale_conv1"), "fc6": ("fc1000",)}
        counts = _BLOCKS[self.n_layers]
        for stage, count in enumerate(counts, 2):
            numbered = self.n_layers > 50 and stage in (3, 4)  # b1, b2 … in place of b, c …
            for i in range(count):
                block = "a" if i == 0 else f"b{i}" if numbered else "abcdef"[i]
                place = f"res{stage}/{'a' if i == 0 else f'b{i}'}"
                for k, branch in enumerate(("2a", "2b", "2c", "1")[:4 if i == 0 else 3], 1):
                    end = f"{stage}{block}_branch{branch}"
                    names |= {f"{place}/conv{k}": (f"res{end}",), f"{place}/bn{k}": (f"bn{end}", f"scale{end}")}
        return names

    @property
    def functions(self) -> dict[str, list[Callable[[Any], Any]]]:
        """The functions of each layer, by its name, in order."""
        return {"conv1": [self.conv1, self.bn1, F.relu], "pool1": [lambda x: F.max_pooling_2d(x, 3, 2)],
                "res2": [self.res2], "res3": [self.res3], "res4": [self.res4], "res5": [self.res5],
                "pool5": [_average], "fc6": [self.fc6], "prob": [F.softmax]}


class ResNet50Layers(ResNetLayers):
    """A residual network of 50 layers, for images of 224 x 224.

    Args:
        pretrained_model: A file of parameters that Chainer or Kusari has saved, or the published ``.caffemodel``;
            ``"auto"`` for ``ResNet-50-model.npz`` in ``pfnet/chainer/models`` below the folder of data sets; None
            for random ones.
        downsample_fb: Whether the 3 x 3 convolutions take the steps, not the 1 x 1 ones before them.

    Raises:
        OSError: There is no such file.

    See: He et al., `Deep Residual Learning for Image Recognition <https://arxiv.org/abs/1512.03385>`_, 2015.
    """

    def __init__(self, pretrained_model: Any = "auto", downsample_fb: bool = False) -> None:
        super().__init__(pretrained_model, 50, downsample_fb)


class ResNet101Layers(ResNetLayers):
    """A residual network of 101 layers; see :class:`ResNet50Layers`."""

    def __init__(self, pretrained_model: Any = "auto", downsample_fb: bool = False) -> None:
        super().__init__(pretrained_model, 101, downsample_fb)


class ResNet152Layers(ResNetLayers):
    """A residual network of 152 layers; see :class:`ResNet50Layers`."""

    def __init__(self, pretrained_model: Any = "auto", downsample_fb: bool = False) -> None:
        super().__init__(pretrained_model, 152, downsample_fb)
