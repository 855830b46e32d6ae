"""Classes and helpers of Chainer's modules that are no classes here: ``chainer.functions.math.basic_math.AddConstant``.

A class of these makes the function node of ours, and a node is its instance if hooks know the node by its name.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from . import functions as F
from .elementwise import Elementwise, ElementwiseFunction, literal_of
from .function_names import OPERATORS, class_name, number_text
from .function_node import FunctionNode
from .functions.array.resize_images import Bilinear
from .functions.connection.convolution import ConvolutionND, DeconvolutionND
from .functions.math import arithmetic
from .functions.noise.dropout import Dropout
from .functions.normalization.normalization import BatchNormalization
from .functions.pooling.average_pooling import WindowSum
from .functions.pooling.max_pooling import MaxPoolingND
from .utils import CooMatrix, conv
from .variable import as_variable
from .variable_node import VariableNode

__all__ = ["ATTRIBUTES", "OF_AXES", "find", "node_of"]

# Attributes that code written for Chainer knows by another name: (class, its name there, its name here).
ATTRIBUTES = (
    (VariableNode, "_rank", "rank"), (VariableNode, "_requires_grad", "requires_grad"),
    (Dropout, "dropout_ratio", "ratio"), (BatchNormalization, "axis", "axes"), (BatchNormalization, "key_axis", "key"),
)  # fmt: skip


def _of_axis(name: str, axis: int) -> property:
    return property(lambda node: getattr(node, name)[axis])


# Attributes of Chainer's functions of images that are parts of tuples here: `sy` and `sx` are `stride`.
_PARTS = {"stride": "sy sx", "pad": "ph pw", "dilate": "dy dx", "ksize": "kh kw", "out": "out_H out_W"}
OF_AXES = tuple([
    (cls, part, _of_axis(name, axis))
    for cls, names in ((ConvolutionND, "stride pad dilate"), (DeconvolutionND, "stride pad dilate"),
                       (MaxPoolingND, "stride pad ksize"), (WindowSum, "stride pad ksize"), (Bilinear, "out"))
    for name in names.split() for axis, part in enumerate(_PARTS[name].split())])


class _Known(type):
    """A class of Chainer's: called, it makes what stands for its instances here."""

    make: Callable[..., Any]
    names: tuple[str, ...] = ()  # of classes that it is the base of

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, FunctionNode) and not {cls.__name__, *cls.names}.isdisjoint(
            (instance._impl_name, class_name(instance.label)))


class _Applied:
    """A function with its attributes bound, to be applied to inputs as a node is."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._call = lambda *inputs: function(inputs, *args, **kwargs)

    def apply(self, inputs: Iterable[Any]) -> tuple[Any, ...]:
        """Return the outputs."""
        y = self._call(*inputs)
        return y if isinstance(y, tuple) else (y,)


def _named(inputs: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(("x", "W", "b"), inputs, strict=False))


def _coo_mat_mul(inputs: Any, row: Any, col: Any, shape: Any, order: str = "other", transa: bool = False,
                 transb: bool = False, transc: bool = False, dtype: Any = None) -> Any:
    data, dense = map(as_variable, inputs)
    a = CooMatrix(data.array, row, col, shape, order)
    a.data = data
    y = F.sparse_matmul(a, dense, transa, transb)
    y = F.swapaxes(y, -1, -2) if transc else y
    return y if dtype is None else F.cast(y, dtype)


def _diag_einsum(inputs: Any, in_subs: str, out_sub: str, out_shape: Any = None) -> Any:
    known = "".join([c for c in out_sub if c in in_subs])
    y = F.einsum(f"{in_subs}->{known}", *inputs)
    if known == out_sub:
        return y
    shape = tuple([n if c in known else 1 for c, n in zip(out_sub, out_shape, strict=True)])
    return F.broadcast_to(F.reshape(y, shape), out_shape)


def _strided(array: Any, shape: Any, strides: Any, offset: int) -> Any:
    array = array if array.base is None or array.base.size < array.size else array.base
    return F.as_strided(array, shape, strides, offset).array


# Classes that our nodes have labels of: how the function is called, with the inputs, then with what the class takes.
_CALLS: dict[str, Callable[..., Any]] = {
    "AveragePooling2D": lambda xs, *a, **k: F.average_pooling_2d(*xs, *a, **k),
    "Convolution2DFunction": lambda xs, stride=1, pad=0, cover_all=False, **k: F.convolution_2d(
        **_named(xs), stride=stride, pad=pad, cover_all=cover_all, **k),
    "CooMatMul": _coo_mat_mul,
    "Deconvolution2DFunction": lambda xs, stride=1, pad=0, outsize=None, **k: F.deconvolution_2d(
        **_named(xs), stride=stride, pad=pad, outsize=outsize, **k),
    "DiagEinSum": _diag_einsum,
    "EmbedIDFunction": lambda xs, ignore_label=None: F.embed_id(*xs, ignore_label=ignore_label),
    "FixedBatchNormalization": lambda xs, *a, **k: F.fixed_batch_normalization(*xs, *a, **k),
    "LocalConvolution2DFunction": lambda xs, stride=1: F.local_convolution_2d(**_named(xs), stride=stride),
    "MaxPooling2D": lambda xs, *a, **k: F.max_pooling_2d(*xs, *a, **k),
    "Unpooling2D": lambda xs, *a, **k: F.unpooling_2d(*xs, *a, **k),
}
# Classes that are called as their functions are, with the inputs first; ``*`` marks functions that take their inputs as
# one list. Many of these functions are made of others here, whose nodes are not instances of the class.
_AS_FUNCTIONS = {
    "AveragePoolingND": "average_pooling_nd", "ROIAverageAlign2D": "roi_average_align_2d",
    "ROIAveragePooling2D": "roi_average_pooling_2d", "UnpoolingND": "unpooling_nd",
    "BatchDet": "batch_det", "BatchInv": "batch_inv", "BatchL2NormSquared": "batch_l2_norm_squared",
    "BatchMatMul": "batch_matmul", "BilinearFunction": "bilinear", "Broadcast": "broadcast", "CReLU": "crelu",
    "Cast": "cast", "ConnectionistTemporalClassification": "connectionist_temporal_classification",
    "Contrastive": "contrastive", "CrossCovariance": "cross_covariance", "DeCov": "decov",
    "DecorrelatedBatchNormalization": "decorrelated_batch_normalization",
    "DiscriminativeMarginBasedClusteringLoss": "discriminative_margin_based_clustering_loss", "Dstack": "*dstack",
    "FixedDecorrelatedBatchNormalization": "fixed_decorrelated_batch_normalization", "FlipLR": "fliplr",
    "FlipUD": "flipud", "GroupNormalization": "group_normalization", "Hstack": "*hstack", "Im2Col": "im2col",
    "LocalResponseNormalization": "local_response_normalization", "Moveaxis": "moveaxis",
    "NegativeSamplingFunction": "negative_sampling", "NormalizeL2": "normalize", "PadSequence": "*pad_sequence",
    "Permutate": "permutate", "R2_score": "r2_score", "RReLU": "rrelu", "Repeat": "repeat",
    "ResizeImages": "resize_images", "Rollaxis": "rollaxis", "Shift": "shift", "SumTo": "sum_to",
    "SpatialTransformerGrid": "spatial_transformer_grid", "Swapaxes": "swapaxes", "TensorDot": "tensordot",
    "Tile": "tile", "TransposeSequence": "*transpose_sequence", "Triplet": "triplet", "Upsampling2D": "upsampling_2d",
    "Vstack": "*vstack",
}
_HELPERS: dict[str, Any] = {
    "_broadcast_to": np.broadcast_to,
    "_convert_value_to_string": lambda value: (
        "constant array" if (number := literal_of(value)) is None else number_text(number)),
    "_flip": np.flip,
    "col2im_cpu": conv.col2im,
    "col2im_gpu": conv.col2im,
    "col2im_nd_cpu": conv.col2im_nd,
    "col2im_nd_gpu": conv.col2im_nd,
    "im2col_gpu": conv.im2col,
    "im2col_nd_cpu": conv.im2col_nd,
    "im2col_nd_gpu": conv.im2col_nd,
    "_stride_array": _strided,
}
_BASES = {"Pooling2D": ("AveragePooling2D", "MaxPooling2D")}  # classes that are only there to be asked for
_classes: dict[str, type] = {}


def find(name: str, modules: Iterable[ModuleType]) -> Any:
    """Return what stands for a name of Chainer's, whose module is now spread over some of ours, or None."""
    if name in _HELPERS:
        return _HELPERS[name]
    if name not in _classes and (made := _class_of(name, modules)) is not None:
        _classes[name] = made
    return _classes.get(name)


def node_of(name: str, attributes: dict[str, Any]) -> FunctionNode | None:
    """Return a node of the class of this name, with what it takes of the attributes; None where there is no such class.

    >>> node_of("AddConstant", {"value": 2}).label
    '_ + 2'
    """
    known = find(name, (F, arithmetic))
    make = known.make if isinstance(known, _Known) else next(
        (kind for kind in _kinds(FunctionNode) if kind.__name__ == name), None)
    if make is None:
        return None
    parameters = inspect.signature(make).parameters
    try:
        node = make(**{k: v for k, v in attributes.items() if k in parameters})
    except TypeError:  # without an attribute that it needs
        return None
    return node if isinstance(node, FunctionNode) else None


def _kinds(kind: type[FunctionNode]) -> Iterator[type[FunctionNode]]:
    """Kusari's classes of functions."""
    for below in kind.__subclasses__():
        if below.__module__.startswith("kusari.functions."):
            yield below
        yield from _kinds(below)


def _applying(name: str) -> Callable[..., Any] | None:
    """The function of a class that is called as it is; None for other classes."""
    if name not in _AS_FUNCTIONS:
        return None
    function, listed = getattr(F, _AS_FUNCTIONS[name].strip("*")), _AS_FUNCTIONS[name].startswith("*")
    return lambda xs, *a, **k: function(xs, *a, **k) if listed else function(*xs, *a, **k)


def _class_of(name: str, modules: Iterable[ModuleType]) -> type | None:
    if name in _BASES:
        return _Known(name, (), {"make": staticmethod(functools.partial(_refuse, name)), "names": _BASES[name]})
    function = _CALLS.get(name) or _applying(name)
    if function is not None:
        return _Known(name, (), {"make": staticmethod(lambda *a, **k: _Applied(function, a, k))})
    for module in modules:
        for f in vars(module).values():
            if isinstance(f, ElementwiseFunction):
                make = _maker(f, name)
                if make is not None:
                    return _Known(name, (), {"make": staticmethod(make), "__doc__": f.__doc__})
    return None


def _refuse(name: str, *_: Any, **__: Any) -> Any:
    raise TypeError(f"{name} is the base of {' and '.join(_BASES[name])}; make one of these")


def _maker(f: ElementwiseFunction, name: str) -> Callable[..., Any] | None:
    """How a class of this name makes nodes of an elementwise function; None where the function is another."""
    if f.label in OPERATORS:
        for place in (1, 0):
            if name == class_name(f.label, (None, 1)[::1 if place else -1]):
                return lambda value: Elementwise(f.body((None, literal_of(value))[::1 if place else -1], {}))
    if name != class_name(f.label):
        return None
    signature = inspect.Signature([
        inspect.Parameter(k, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for k, v in f.defaults.items()])

    def make(*args: Any, **kwargs: Any) -> Elementwise:
        given = {k: literal_of(v) for k, v in signature.bind(*args, **kwargs).arguments.items()}
        return Elementwise(f.body((None,) * len(f.inputs), {**f.defaults, **given}))
    return make
