"""The base of networks for images: layers with names, images as they expect them, files of parameters."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....configuration import no_backprop_mode, using_config
from ....dtypes import get_dtype
from ....functions import mean, reshape
from ....functions.noise.dropout import reject
from ....link import Chain
from ....serializers import load_npz, save_npz
from ...connection.scale import Scale
from ...normalization.batch_normalization import BatchNormalization

FOLDER = "pfnet/chainer/models"  # below the folder of data sets, where Chainer keeps them too
_SUPPORTED = {"test": "use kusari.using_config('train', ...)", "volatile": "use kusari.no_backprop_mode()"}


def prepared(image: Any, size: Any, means: Sequence[float]) -> np.ndarray:
    """Return an image as numbers: blue, green and red without their means, of shape (3, height, width)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images are prepared with Pillow, which is not installed") from error
    if isinstance(image, np.ndarray):
        if image.ndim == 3 and image.shape[0] in (1, 3):
            image = image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)
        image = Image.fromarray(image.astype(np.uint8))
    image = image.convert("RGB")
    if size:
        image = image.resize(tuple(size))
    return (np.asarray(image, get_dtype())[:, :, ::-1] - np.array(means, get_dtype())).transpose(2, 0, 1)


def crops(x: Any, height: int = 224, width: int = 224) -> np.ndarray:
    """Return the corners and the middle of images, each also mirrored: ten times as many."""
    low, right = x.shape[2] - height, x.shape[3] - width
    places = ((0, 0), (0, right), (low, 0), (low, right), (low // 2, right // 2))
    parts = [x[:, :, i:i + height, j:j + width] for i, j in places]
    return np.stack([*parts, *(p[..., ::-1] for p in parts)], 1).reshape(-1, x.shape[1], height, width)


class Pretrained(Chain):
    """A network for images whose layers have names.

    Invariant: the functions of a layer are applied to the result of the layer before, those of ``branches`` to that of
    the layer they name.
    """

    usual = "pool5"  # what is extracted where nothing is said
    branches: Mapping[str, str] = {}

    def __init__(self, pretrained_model: Any = None) -> None:
        super().__init__()  # subclasses make their links, then load

    @property
    def functions(self) -> dict[str, list[Callable[[Any], Any]]]:
        """The functions of each layer, by its name, in order."""
        raise NotImplementedError

    @property
    def available_layers(self) -> list[str]:
        """The names of the layers."""
        return list(self.functions)

    @staticmethod
    def prepare(image: Any, size: Any = (224, 224)) -> np.ndarray:
        """Return an image as the network expects it; see the function of this name in the network's module."""
        raise NotImplementedError

    def forward(self, x: Any, layers: Sequence[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the results of layers by their names.

        Args:
            x: Images of shape (N, 3, height, width), as ``prepare`` gives them.
            layers: Names among :attr:`available_layers`; by default ``"prob"`` alone.
        """
        reject(kwargs, **_SUPPORTED)
        left, found, starts = {*(("prob",) if layers is None else layers)}, {}, {}
        for name, functions in self.functions.items():
            if not left:
                break
            start = self.branches.get(name)
            if start is not None and name not in left:
                continue
            y = x if start is None else starts[start]
            for function in functions:
                y = function(y)
            if start is None:
                x = y
            if name in self.branches.values():
                starts[name] = y
            if name in left:
                found[name] = y
                left.remove(name)
        return found

    def extract(self, images: Iterable[Any], layers: Sequence[str] | None = None, size: Any = (224, 224),
                **kwargs: Any) -> dict[str, Any]:
        """Return results of layers for images that are prepared first; in training mode, if ``config.train`` says so.

        Args:
            images: Pillow's images, or arrays of shape (height, width), (height, width, 3) or (3, height, width).
            layers: Names of layers; by default the one whose results are used as features.
            size: Width and height to which images are resized; None leaves them, and all must be of one size.
        """
        reject(kwargs, **_SUPPORTED)
        x = self.xp.asarray(np.stack([self.prepare(image, size=size) for image in images]))
        return self(x, layers=[self.usual] if layers is None else layers)

    def predict(self, images: Iterable[Any], oversample: bool = True) -> Any:
        """Return the probabilities of the classes, of shape (N, 1000).

        Args:
            images: As for :meth:`extract`.
            oversample: Whether ten parts of each image are judged, and their mean is taken; if not, the middle is.
        """
        x = np.stack([self.prepare(image, size=(256, 256)) for image in images])
        x = crops(x) if oversample else x[:, :, 16:240, 16:240]
        with using_config("train", False), no_backprop_mode():
            y = self(self.xp.asarray(x), layers=["prob"])["prob"]
            return mean(reshape(y, (len(y) // 10, 10, -1)), axis=1) if oversample else y

    @classmethod
    def convert_caffemodel_to_npz(cls, path_caffemodel: Any, path_npz: Any) -> None:
        """Write the parameters of a file of Caffe's into a file that any network of this class loads.

        Args:
            path_caffemodel: The published model, or one with layers of the same names.
            path_npz: The file to write.
        """
        network = cls(pretrained_model=None)
        network.load_caffemodel(path_caffemodel)
        save_npz(path_npz, network, compression=False)

    @property
    def caffe_names(self) -> dict[str, tuple[str, ...]]:
        """The names that links have in the published model, by their paths.

        Those of a batch normalization are two: Caffe normalizes in one layer, and scales and shifts in another.
        """
        raise NotImplementedError

    def load_caffemodel(self, path: Any) -> None:
        """Copy the parameters of the published model's layers; a bias that it does not have is zero.

        Raises:
            ImportError: The package ``protobuf`` is not installed.
            KeyError: The file has no layer of a name.
        """
        from ...caffe import CaffeFunction
        source = CaffeFunction(path)
        for place, names in self.caffe_names.items():
            link = functools.reduce(operator.getitem, place.split("/"), self)
            for name in names:
                _copy(source[name], link)

    def load(self, pretrained_model: Any, name: str) -> None:
        """Load parameters: ``"auto"`` means the file ``name`` among the data sets, None nothing.

        Where that is missing, a file ``.caffemodel`` of the same name beside it is converted, once.

        Raises:
            OSError: There is no such file.
        """
        if not pretrained_model:
            return
        path = Path(pretrained_model)
        if pretrained_model == "auto":
            from ....dataset import get_dataset_directory
            path = Path(get_dataset_directory(FOLDER, create_directory=False), name)
            if not path.exists() and path.with_suffix(".caffemodel").exists():
                self.load_caffemodel(path.with_suffix(".caffemodel"))
                save_npz(path, self, compression=False)
            if not path.exists():
                raise FileNotFoundError(f"the pretrained parameters are not there: put {name}, as Chainer converts it "
                                        f"from the published model, or {path.with_suffix('.caffemodel').name} itself "
                                        f"into {path.parent}, or pass pretrained_model=None")
        if path.suffix == ".caffemodel":
            self.load_caffemodel(path)
        else:
            load_npz(path, self)


def _copy(source: Any, link: Any) -> None:
    """Copy the parameters of one of Caffe's layers."""
    if isinstance(source, BatchNormalization):
        pairs = [(source.avg_mean, link.avg_mean), (source.avg_var, link.avg_var)]
    elif isinstance(source, Scale):
        pairs = [(source.W.array, link.gamma.array), (source.bias.b.array, link.beta.array)]
    else:
        pairs = [(source.W.array, link.W.array)]
        if link.b is not None:
            pairs.append((np.zeros_like(link.b.array) if source.b is None else source.b.array, link.b.array))
    for theirs, ours in pairs:
        ours[...] = theirs.reshape(ours.shape)
