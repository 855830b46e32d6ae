"""`CaffeFunction`: a network of a ``.caffemodel`` file, layer by layer."""
from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import functions as F
from ...configuration import using_config
from ...functions.noise.dropout import reject
from ...link import Chain
from ...variable import as_variable
from ..connection.convolution_nd import Convolution2D
from ..connection.deconvolution_nd import Deconvolution2D
from ..connection.linear import Linear
from ..connection.scale import Scale
from ..normalization.batch_normalization import BatchNormalization
from .schema import LAYER_TYPES, messages

__all__ = ["CaffeFunction", "values_of"]

_STOCHASTIC, _WITHIN_CHANNEL, _CAFFE = 2, 1, 1  # members of the format's enumerations
_PROD, _SUM = 0, 1
_OLD_NAMES = {"SOFTMAX_LOSS": "SoftmaxWithLoss", "LRN": "LRN", "RELU": "ReLU"}
_INPUTS = ("Data", "ImageData", "HDF5Data", "WindowData", "MemoryData", "DummyData", "Input")


def __getattr__(name: str) -> Any:
    if name == "caffe_pb":  # made when it is asked for, as protobuf need not be there
        return messages()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def values_of(blob: Any) -> np.ndarray:
    """Return the numbers of a blob in its shape, which old files give as four extents."""
    values = np.array(blob.data if blob.data else blob.double_data, np.float32)
    if blob.HasField("shape"):
        shape = tuple(blob.shape.dim)
    else:
        shape = (blob.num, blob.channels, blob.height, blob.width)
    return values.reshape(shape) if values.size == np.prod(shape, dtype=int) else values


def _extent(value: Any, default: int | None = None) -> Any:
    """Return an extent of a window: one number, or those of height and width."""
    if isinstance(value, int):
        return value
    numbers = tuple(value)
    return default if not numbers else numbers[0] if len(numbers) == 1 else numbers


def _window(param: Any) -> tuple[Any, Any, Any]:
    """Return the extents of a window, its steps and the padding."""
    def extent(name: str, value: Any, default: int | None) -> Any:
        if param.HasField(f"{name}_h") or param.HasField(f"{name}_w"):
            return getattr(param, f"{name}_h"), getattr(param, f"{name}_w")
        return _extent(value, default)
    return extent("kernel", param.kernel_size, None), extent("stride", param.stride, 1), extent("pad", param.pad, 0)


def _dense(blob: Any, groups: int, window: Any) -> np.ndarray:
    """Return the weight of a convolution over all channels: between groups it is zero."""
    weight = values_of(blob)
    if weight.ndim != 4 or 0 in weight.shape:
        rows, columns = (blob.num, blob.channels) if blob.num else tuple(blob.shape.dim)[:2]
        weight = weight.reshape(rows, columns, *((window, window) if isinstance(window, int) else window))
    rows, columns = len(weight) // groups, weight.shape[1]
    dense = np.zeros((len(weight), columns * groups, *weight.shape[2:]), np.float32)
    for i in range(groups):
        part = slice(i * rows, (i + 1) * rows)
        dense[part, i * columns:(i + 1) * columns] = weight[part]
    return dense


class CaffeFunction(Chain):
    """A network that Caffe has saved, which computes and trains as any other link.

    Layers that have no equivalent here are passed over, with a warning; so are those without results, and, in a call,
    layers whose inputs are not there. With ``protobuf`` installed (``pip install "kusari[caffe]"``).

    Args:
        model_path: A binary file of Caffe's, old (V1) or new.

    Attributes:
        layers: The name, the inputs and the outputs of each layer, in order.
        split_map: The names of values that are other names of one value, with that value's.

    Raises:
        ImportError: ``protobuf`` is not installed.
        RuntimeError: A layer is set in a way that is not supported, as pooling that draws random numbers.

    Example::

        net = L.caffe.CaffeFunction("bvlc_reference_caffenet.caffemodel")
        y, = net(inputs={"data": x}, outputs=["fc8"])
    """

    def __init__(self, model_path: Any) -> None:
        super().__init__()
        net = messages().NetParameter()
        net.ParseFromString(Path(model_path).read_bytes())
        self._functions: dict[str, Callable[..., Any]] = {}  # of layers without parameters
        self._arguments: dict[str, dict[str, Any]] = {}  # with which the links of layers are called
        self._evaluated: set[str] = set()  # layers that are never in training mode
        self.split_map: dict[str, str] = {}
        self.layers: list[tuple[str, list[str], list[str]]] = []
        for layer in net.layer or net.layers:
            kind = layer.type if isinstance(layer.type, str) else _new_name(LAYER_TYPES[layer.type])
            setup = _SETUPS.get(kind)
            if setup is not None:
                setup(self, layer)
            elif kind not in _INPUTS:
                warnings.warn(f"Skip the layer {layer.name!r}: CaffeFunction has no layers of the type {kind}")

    def forward(self, inputs: Mapping[str, Any], outputs: Iterable[str], disable: Iterable[str] = (),
                **kwargs: Any) -> tuple[Any, ...]:
        """Compute results of layers.

        Args:
            inputs: Variables or arrays by the names of values in the network.
            outputs: The names of the values to return.
            disable: The names of layers to leave out.
        """
        reject(kwargs, train="use kusari.using_config('train', ...)")
        values = {name: as_variable(x) for name, x in inputs.items()}
        left_out, functions = set(disable), self.forwards
        for name, bottoms, tops in self.layers:
            if name in left_out or any(b not in values for b in bottoms):
                continue
            results = functions[name](*[values[b] for b in bottoms])
            values.update(zip(tops, results if isinstance(results, tuple) else (results,), strict=True))
        return tuple([values[self._origin(name)] for name in outputs])

    @property
    def forwards(self) -> dict[str, Callable[..., Any]]:
        """The function of each layer, by the layer's name."""
        return self._functions | {name: functools.partial(self._call, name) for name in self._arguments}

    def _call(self, name: str, *xs: Any) -> Any:
        if name not in self._evaluated:
            return self[name](*xs, **self._arguments[name])
        with using_config("train", False):
            return self[name](*xs, **self._arguments[name])

    def _origin(self, name: str) -> str:
        while name in self.split_map:
            name = self.split_map[name]
        return name

    def _append(self, layer: Any) -> None:
        self.layers.append((layer.name, [self._origin(b) for b in layer.bottom], list(layer.top)))

    def _add(self, layer: Any, function: Callable[..., Any]) -> None:
        self._functions[layer.name] = function
        self._append(layer)

    def _add_link(self, layer: Any, link: Any, **kwargs: Any) -> None:
        with self.init_scope():
            setattr(self, layer.name, link)
        self._arguments[layer.name] = kwargs
        self._append(layer)

    # Layers, by the types of which they are.

    def _setup_concat(self, layer: Any) -> None:
        param = layer.concat_param
        axis = param.axis if param.HasField("axis") or not param.HasField("concat_dim") else param.concat_dim
        self._add(layer, lambda *xs: F.concat(xs, axis=axis))

    def _setup_convolution(self, layer: Any) -> None:
        param = layer.convolution_param
        window, stride, pad = _window(param)
        weight = _dense(layer.blobs[0], param.group, window)
        dilate = _extent(param.dilation, 1)
        link = Convolution2D(weight.shape[1], len(weight), weight.shape[2:], stride, pad, nobias=not param.bias_term,
                             initialW=weight, initial_bias=_bias(layer), dilate=dilate)
        self._add_link(layer, link)

    def _setup_deconvolution(self, layer: Any) -> None:
        param = layer.convolution_param
        window, stride, pad = _window(param)
        weight = _dense(layer.blobs[0], param.group, window)
        link = Deconvolution2D(len(weight), weight.shape[1], weight.shape[2:], stride, pad, nobias=not param.bias_term,
                               initialW=weight, initial_bias=_bias(layer))
        self._add_link(layer, link)

    def _setup_dropout(self, layer: Any) -> None:
        ratio = layer.dropout_param.dropout_ratio
        self._add(layer, lambda x: F.dropout(x, ratio=ratio))

    def _setup_inner_product(self, layer: Any) -> None:
        param = layer.inner_product_param
        if param.axis != 1:
            raise RuntimeError(f"{layer.name}: products along axis {param.axis} are not supported, only along 1")
        blob = layer.blobs[0]
        shape = tuple(blob.shape.dim) if blob.HasField("shape") else (1, 1, blob.height, blob.width)
        if len(shape) not in (2, 4):
            raise RuntimeError(f"{layer.name}: a weight has 2 or 4 axes, not {len(shape)}")
        rows, columns = shape[-2:]
        weight = values_of(blob).reshape(rows, columns)
        self._add_link(layer, Linear(columns, rows, not param.bias_term, weight, _bias(layer)))

    def _setup_lrn(self, layer: Any) -> None:
        param = layer.lrn_param
        if param.norm_region == _WITHIN_CHANNEL:
            raise RuntimeError(f"{layer.name}: normalization within channels is not supported")
        size, k, alpha, beta = param.local_size, param.k, param.alpha / param.local_size, param.beta
        self._add(layer, lambda x: F.local_response_normalization(x, n=size, k=k, alpha=alpha, beta=beta))

    def _setup_pooling(self, layer: Any) -> None:
        param = layer.pooling_param
        if param.pool == _STOCHASTIC:
            raise RuntimeError(f"{layer.name}: stochastic pooling is not supported")
        name = ("max_pooling_2d", "average_pooling_2d")[param.pool]
        if param.global_pooling:
            self._add(layer, lambda x: getattr(F, name)(x, x.shape[2:], stride=1, pad=0))
        else:
            window, stride, pad = _window(param)
            self._add(layer, lambda x: getattr(F, name)(x, window, stride=stride, pad=pad))

    def _setup_relu(self, layer: Any) -> None:
        slope = layer.relu_param.negative_slope
        self._add(layer, (lambda x: F.leaky_relu(x, slope=slope)) if slope else lambda x: F.relu(x))

    def _setup_reshape(self, layer: Any) -> None:
        shape = list(layer.reshape_param.shape.dim)
        self._add(layer, lambda x: F.reshape(x, shape=_without_zeros(shape, x.shape)))

    def _setup_batch_norm(self, layer: Any) -> None:
        param, (mean, variance, *rest) = layer.batch_norm_param, map(values_of, layer.blobs)
        factor = rest[0].ravel()[0] if rest and rest[0].size else 1  # the sum of weights that sums are to be divided by
        scale = np.float32(1 / factor if factor else 0)
        link = BatchNormalization(mean.size, param.moving_average_fraction, param.eps, use_gamma=False, use_beta=False)
        link.avg_mean[...] = mean.ravel() * scale
        link.avg_var[...] = variance.ravel() * scale
        self._add_link(layer, link, finetune=False)
        if param.use_global_stats:
            self._evaluated.add(layer.name)

    def _setup_eltwise(self, layer: Any) -> None:
        operation, factors = layer.eltwise_param.operation, list(layer.eltwise_param.coeff)
        if operation == _PROD:
            self._add(layer, lambda *xs: functools.reduce(operator.mul, xs))
        elif operation != _SUM:
            self._add(layer, lambda *xs: functools.reduce(F.maximum, xs))
        elif factors:
            self._add(layer, functools.partial(_weighted_sum, factors))
        else:
            self._add(layer, lambda *xs: functools.reduce(operator.add, xs))

    def _setup_scale(self, layer: Any) -> None:
        param, blobs = layer.scale_param, list(map(values_of, layer.blobs))
        weight = None if len(layer.bottom) > 1 else blobs.pop(0)
        bias = blobs[0] if param.bias_term else None
        link = Scale(param.axis, None if weight is None else weight.shape, param.bias_term,
                     None if bias is None else bias.shape)
        if weight is not None:
            link.W.array[...] = weight
        if bias is not None:
            link.bias.b.array[...] = bias
        self._add_link(layer, link)

    def _setup_slice(self, layer: Any) -> None:
        param = layer.slice_param
        axis = param.axis if param.HasField("axis") or not param.HasField("slice_dim") else param.slice_dim
        parts = list(param.slice_point) or len(layer.top)
        self._add(layer, lambda x: F.split_axis(x, indices_or_sections=parts, axis=axis))

    def _setup_softmax(self, layer: Any) -> None:
        _check_softmax(layer)
        cudnn = "never" if layer.softmax_param.engine == _CAFFE else None

        def softmax(x: Any) -> Any:
            if cudnn is None:
                return F.softmax(x)
            with using_config("use_cudnn", cudnn):
                return F.softmax(x)
        self._add(layer, softmax)

    def _setup_softmax_with_loss(self, layer: Any) -> None:
        _check_softmax(layer)
        self._add(layer, lambda *xs: F.softmax_cross_entropy(*xs))

    def _setup_sigmoid(self, layer: Any) -> None:
        self._add(layer, lambda x: F.sigmoid(x))

    def _setup_split(self, layer: Any) -> None:
        self.split_map.update(dict.fromkeys(layer.top, layer.bottom[0]))


def _new_name(old: str) -> str:
    """Return the type that a layer of an old file has in new ones: ``SOFTMAX_LOSS`` is ``SoftmaxWithLoss``."""
    return _OLD_NAMES.get(old) or "".join(word.capitalize() for word in old.split("_"))


def _names() -> Iterator[tuple[str, str]]:
    for name in ("Concat", "Convolution", "Deconvolution", "Dropout", "Eltwise", "Pooling", "Reshape", "Scale", "Slice",
                 "Softmax", "Sigmoid", "Split"):
        yield name, name.lower()
    yield from (("BatchNorm", "batch_norm"), ("InnerProduct", "inner_product"), ("LRN", "lrn"), ("ReLU", "relu"),
                ("SoftmaxWithLoss", "softmax_with_loss"))


_SETUPS: dict[str, Callable[[CaffeFunction, Any], None]] = {
    kind: getattr(CaffeFunction, f"_setup_{name}") for kind, name in _names()}


def _bias(layer: Any) -> np.ndarray | None:
    return values_of(layer.blobs[1]).ravel() if len(layer.blobs) > 1 else None


def _without_zeros(shape: list[int], known: tuple[int, ...]) -> Any:
    """Return a shape with the extents of another in the place of zeros."""
    return [n or known[i] for i, n in enumerate(shape)]


def _check_softmax(layer: Any) -> None:
    if layer.softmax_param.axis != 1:
        raise RuntimeError(f"{layer.name}: softmax along axis {layer.softmax_param.axis} is not supported, only 1")


def _weighted_sum(factors: list[float], *xs: Any) -> Any:
    if len(factors) != len(xs):
        raise AssertionError(f"a sum of {len(xs)} values has {len(factors)} factors")
    return functools.reduce(operator.add, [x * factor for x, factor in zip(xs, factors, strict=True)])
