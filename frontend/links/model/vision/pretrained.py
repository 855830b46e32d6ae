"""The base of networks for images: layers with names, images as they expect them, files of parameters."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....configuration import no_backprop_mode, using_config
from ....dtypes import get_dtype
from ....functions import mean, reshape
from ....functions.noise.dropout import reject
from ....link import Chain
from ....serializers import load_npz

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


def crops(x: Any, size: int = 224) -> np.ndarray:
    """Return the corners and the middle of images, each also mirrored: ten times as many."""
    height, width = x.shape[2:]
    low, right = height - size, width - size
    places = ((0, 0), (0, right), (low, 0), (low, right), (low // 2, right // 2))
    parts = [x[:, :, i:i + size, j:j + size] for i, j in places]
    return np.stack([*parts, *(p[..., ::-1] for p in parts)], 1).reshape(-1, x.shape[1], size, size)


class Pretrained(Chain):
    """A network for images whose layers have names.

    Invariant: the functions of a layer are applied to the result of the layer before, those of ``branches`` to that of
    the layer they name.
    """

    usual = "pool5"  # what is extracted where nothing is said
    branches: Mapping[str, str] = {}

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
    def convert_caffemodel_to_npz(cls, path_caffemodel: str, path_npz: str) -> None:
        """Raise ``NotImplementedError``: Kusari does not read Caffe's files.

        What Chainer has converted is loaded as it is.
        """
        raise NotImplementedError(f"Caffe's files are not read: convert {path_caffemodel} with Chainer once")

    def load(self, pretrained_model: Any, name: str) -> None:
        """Load parameters: ``"auto"`` means the file ``name`` among the data sets, None nothing.

        Raises:
            OSError: There is no such file.
            NotImplementedError: It is Caffe's.
        """
        if not pretrained_model:
            return
        path = Path(pretrained_model)
        if pretrained_model == "auto":
            from ....dataset import get_dataset_directory
            path = Path(get_dataset_directory(FOLDER, create_directory=False), name)
            if not path.exists():
                raise FileNotFoundError(f"the pretrained parameters are not there: put {name}, as Chainer converts it "
                                        f"from the published model, into {path.parent}, or pass pretrained_model=None")
        elif path.suffix == ".caffemodel":
            self.convert_caffemodel_to_npz(str(path), str(path.with_suffix(".npz")))
        load_npz(path, self)
