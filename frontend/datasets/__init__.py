"""Ready-made datasets: combinations of other datasets, files, and handwritten digits and their relatives."""

from ..pytorch_names import DATASETS as _DATASETS
from ..pytorch_names import answer_in_module as _answer
from .cifar import get_cifar10, get_cifar100
from .concatenated_dataset import ConcatenatedDataset
from .dict_dataset import DictDataset
from .digits import get_mnist_sample
from .fashion_mnist import get_fashion_mnist, get_fashion_mnist_labels
from .image_dataset import (
    ImageDataset,
    LabeledImageDataset,
    LabeledZippedImageDataset,
    MultiZippedImageDataset,
    ZippedImageDataset,
)
from .kuzushiji_mnist import get_kuzushiji_mnist, get_kuzushiji_mnist_labels
from .mnist import get_mnist
from .pickle_dataset import PickleDataset, PickleDatasetWriter, open_pickle_dataset, open_pickle_dataset_writer
from .ptb import get_ptb_words, get_ptb_words_vocabulary
from .sub_dataset import (
    SubDataset,
    get_cross_validation_datasets,
    get_cross_validation_datasets_random,
    split_dataset,
    split_dataset_n,
    split_dataset_n_random,
    split_dataset_random,
)
from .svhn import get_svhn
from .text_dataset import TextDataset
from .transform_dataset import TransformDataset
from .tuple_dataset import TupleDataset

__all__ = [
    "ConcatenatedDataset",
    "DictDataset",
    "ImageDataset",
    "LabeledImageDataset",
    "LabeledZippedImageDataset",
    "MultiZippedImageDataset",
    "PickleDataset",
    "PickleDatasetWriter",
    "SubDataset",
    "TextDataset",
    "TransformDataset",
    "TupleDataset",
    "ZippedImageDataset",
    "get_cifar10",
    "get_cifar100",
    "get_cross_validation_datasets",
    "get_cross_validation_datasets_random",
    "get_fashion_mnist",
    "get_fashion_mnist_labels",
    "get_kuzushiji_mnist",
    "get_kuzushiji_mnist_labels",
    "get_mnist",
    "get_mnist_sample",
    "get_ptb_words",
    "get_ptb_words_vocabulary",
    "get_svhn",
    "open_pickle_dataset",
    "open_pickle_dataset_writer",
    "split_dataset",
    "split_dataset_n",
    "split_dataset_n_random",
    "split_dataset_random",
]

_answer(globals(), _DATASETS)
