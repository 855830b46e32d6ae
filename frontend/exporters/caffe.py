"""Models as Caffe's files: the network as text, and the network with its parameters."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import cuda
from ..configuration import using_config
from ..elementwise import Elementwise
from ..function_hook import FunctionHook
from ..links.caffe.schema import fill, messages
from ..variable import Variable, as_variable

__all__ = ["export"]

PROTOTXT, CAFFEMODEL = "chainer_model.prototxt", "chainer_model.caffemodel"


class _Applied:
    """A function that was applied, with the nodes and the arrays that it read."""

    def __init__(self, function: Any, arrays: Sequence[Any]) -> None:
        self.function = function
        self.arrays = arrays

    @property
    def kind(self) -> str:
        """The name of the function's class, as hooks know it."""
        return self.function._impl_name

    @property
    def inputs(self) -> Sequence[Any]:
        """The nodes it has read."""
        return self.function.inputs or ()


class _Applications(FunctionHook):
    """Keeps every function that is applied, in order."""

    name = "KusariCaffeExport"

    def __init__(self) -> None:
        self.found: list[_Applied] = []

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Keep an application."""
        self.found.append(_Applied(function, in_data))


class _Net:
    """The network on its way into a message: layers are added in order, each named like its result."""

    def __init__(self, name: str, export_params: bool) -> None:
        self.message = messages().NetParameter(name=name)
        self.export_params = export_params
        self.names: dict[int, str] = {}  # of nodes, by their ids
        self._counts: dict[str, int] = {}

    def add(self, kind: str, bottoms: Sequence[str] = (), blobs: Sequence[Any] = (), name: str | None = None,
            **params: Any) -> str:
        """Add a layer and return its name; ``convolution_param={…}`` and its like set its fields."""
        if name is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}{self._counts[kind]}"
        layer = self.message.layer.add(name=name, type=kind, bottom=bottoms, top=[name])
        for field, values in params.items():
            getattr(layer, field).CopyFrom(type(getattr(layer, field))(**values))
        for blob in blobs if self.export_params else ():
            fill(layer.blobs.add(), np.asarray(cuda.to_cpu(blob)))
        return name


_Writer = Callable[[_Net, _Applied, list[str]], str]


def _pair(name: str, values: Sequence[int]) -> dict[str, int]:
    return {f"{name}_h": values[0], f"{name}_w": values[1]}


def _convolution(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    f, (weight, *bias) = applied.function, applied.arrays[1:]
    transposed = applied.kind.startswith("De")
    params = {"num_output": weight.shape[1] * f.groups if transposed else len(weight), "bias_term": bool(bias),
              "group": f.groups, **_pair("kernel", weight.shape[2:]), **_pair("stride", f.stride),
              **_pair("pad", f.pad)}
    if any(n != 1 for n in f.dilate):
        params["dilation"] = list(f.dilate)
    return net.add("Deconvolution" if transposed else "Convolution", bottoms, (weight, *bias), convolution_param=params)


def _linear(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    weight, *bias = applied.arrays[1:]
    return net.add("InnerProduct", bottoms, (weight, *bias),
                   inner_product_param={"num_output": len(weight), "bias_term": bool(bias)})


def _pooling(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    f, extents = applied.function, applied.arrays[0].shape[2:]
    covered = getattr(f, "cover_all", False)
    spare = [(n + 2 * p - k) % s for n, k, s, p in zip(extents, f.ksize, f.stride, f.pad, strict=True)]
    if not covered and any(spare):
        raise ValueError(f"Caffe's pooling covers all of an image: windows of {f.ksize} in steps of {f.stride} leave "
                         f"{max(spare)} of {extents} out here")
    return net.add("Pooling", bottoms, pooling_param={
        "pool": 0 if applied.kind.startswith("Max") else 1, **_pair("kernel", f.ksize), **_pair("stride", f.stride),
        **_pair("pad", f.pad)})


def _normalization(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    gamma, beta, mean, variance = applied.arrays[1:]
    name = net.add("BatchNorm", bottoms, (mean, variance, np.ones(1)),
                   batch_norm_param={"use_global_stats": True, "eps": applied.function.eps})
    return net.add("Scale", [name], (gamma, beta), scale_param={"axis": 1, "bias_term": True})


def _leaky(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    return net.add("ReLU", bottoms, relu_param={"negative_slope": applied.function.body.attrs["slope"]})


def _concat(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    return net.add("Concat", bottoms, concat_param={"axis": applied.function.axis})


def _softmax(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    return net.add("Softmax", bottoms, softmax_param={"axis": applied.function.axis})


def _reshape(net: _Net, applied: _Applied, bottoms: list[str]) -> str:
    name = net.add("Reshape", bottoms)
    net.message.layer[-1].reshape_param.shape.dim.extend(applied.function.shape)
    return name


def _eltwise(operation: int) -> _Writer:
    return lambda net, applied, bottoms: net.add("Eltwise", bottoms, eltwise_param={"operation": operation})


# How functions are written, by the names that hooks know them by, with the number of inputs that are values.
_WRITERS: dict[str, tuple[int | None, _Writer]] = {
    "Add": (2, _eltwise(1)), "Mul": (2, _eltwise(0)), "Maximum": (2, _eltwise(2)),
    "AveragePooling2D": (1, _pooling), "MaxPooling2D": (1, _pooling),
    "Concat": (None, _concat), "Convolution2DFunction": (1, _convolution), "Deconvolution2DFunction": (1, _convolution),
    "FixedBatchNormalization": (1, _normalization), "LeakyReLU": (1, _leaky), "LinearFunction": (1, _linear),
    "ReLU": (1, lambda net, applied, bottoms: net.add("ReLU", bottoms)), "Reshape": (1, _reshape),
    "Sigmoid": (1, lambda net, applied, bottoms: net.add("Sigmoid", bottoms)), "Softmax": (1, _softmax),
}


class _ResponseNormalization:
    """The functions that `local_response_normalization` consists of, found from the last of them backwards."""

    def __init__(self, made_by: dict[int, _Applied], last: _Applied) -> None:
        self._made_by = made_by
        self.x = last.inputs[0]
        power = self._before(last, 1, "PowVarConst")
        added = self._before(power, 0, "AddConstant")
        scaled = self._before(added, 0, "MulConstant")
        self.size, part = 1, scaled and made_by.get(id(scaled.inputs[0]))
        while part and part.kind == "Add":
            self.size, part = self.size + 1, made_by.get(id(part.inputs[0]))
        square = self._before(self._before(part, 0, "Pad"), 0, "Square")
        self.found = bool(square and square.inputs[0] is self.x and part and part.kind == "GetItem")
        self._constants = [_literal(step) for step in (scaled, added, power)] if self.found else []

    def _before(self, applied: _Applied | None, index: int, kind: str) -> _Applied | None:
        found = self._made_by.get(id(applied.inputs[index])) if applied else None
        return found if found and found.kind == kind else None

    def write(self, net: _Net, bottoms: list[str]) -> str:
        """Add the layer."""
        alpha, k, exponent = self._constants
        return net.add("LRN", bottoms, lrn_param={"local_size": self.size, "alpha": alpha * self.size, "k": k,
                                                  "beta": -exponent})


def _literal(applied: Any) -> float:
    """Return the constant of an operator with one."""
    return next(value for value in applied.function.body.literals if value is not None)


def _steps(found: Sequence[_Applied], outputs: Sequence[Any]) -> list[tuple[_Applied, Sequence[Any], Any]]:
    """Return the functions that the outputs depend on, with the nodes that are values and how each is written."""
    made_by = {id(node): applied for applied in found for ref in applied.function.outputs or ()
               if (node := ref()) is not None}
    needed, steps = {id(node) for node in outputs}, []
    for applied in reversed(found):
        if not needed & {id(ref()) for ref in applied.function.outputs or () if ref() is not None}:
            continue
        pattern = _ResponseNormalization(made_by, applied) if applied.kind == "Mul" else None
        if pattern and pattern.found:
            values, writer = [pattern.x], lambda net, _, bottoms, pattern=pattern: pattern.write(net, bottoms)
        elif applied.kind in _WRITERS:
            count, writer = _WRITERS[applied.kind]
            values = applied.inputs[:count]
        else:
            raise NotImplementedError(f"Caffe's files have no layer for {applied.function.label}; there are layers for "
                                      f"{', '.join(sorted(_WRITERS))} and LocalResponseNormalization")
        _check_shapes(applied)
        needed |= {id(node) for node in values}
        steps.append((applied, values, writer))
    return steps[::-1]


def _check_shapes(applied: _Applied) -> None:
    """Refuse operands that are broadcast, which layers are not."""
    shapes = {array.shape for array in applied.arrays}
    if isinstance(applied.function, Elementwise) and len(shapes) > 1:
        raise NotImplementedError(f"Caffe's layers take operands of one shape; {applied.function.label} has {shapes}")


def export(model: Any, args: Sequence[Any], directory: Any = None, export_params: bool = True,
           graph_name: str = "Graph") -> Any:
    """Write a model as Caffe's files, in evaluation mode.

    ``chainer_model.prototxt`` describes the network as text, ``chainer_model.caffemodel`` has its parameters as well.
    There are layers for linear functions, convolutions (transposed ones too), pooling, batch normalization, local
    response normalization, ReLU, leaky ReLU, sigmoid, softmax, concatenation, reshaping, sums, products and maxima.

    Args:
        model: A link, or any function of Variables.
        args: Its arguments, Variables or arrays; their shapes are the network's, which calls them ``data`` (or
            ``data0``, ``data1`` … where there are several).
        directory: The folder of the files; None writes none.
        export_params: Whether to write the parameters. Without them there is no caffemodel.
        graph_name: The name of the network.

    Returns:
        The network as protobuf's message ``NetParameter``.

    Raises:
        ImportError: The package ``protobuf`` is not installed.
        NotImplementedError: The model uses a function for which Caffe has no layer.
        ValueError: Pooling leaves a part of the image out, which Caffe's does not.

    Example::

        kusari.exporters.caffe.export(model, [x], "folder")
    """
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args should be a list or tuple of Variables, but it is a {type(args).__name__}")
    net = _Net(graph_name, export_params)
    inputs = [Variable(as_variable(x).array, requires_grad=True) for x in args]
    applications = _Applications()
    with using_config("train", False), using_config("enable_backprop", True), applications:
        results = model(*inputs)
    outputs = [y.node for y in (results if isinstance(results, (list, tuple)) else [results])]
    for i, x in enumerate(inputs):
        name = f"data{i}" if len(inputs) > 1 else "data"
        net.names[id(x.node)] = net.add("Input", name=name, input_param={"shape": [{"dim": x.shape}]})
    for applied, values, writer in _steps(applications.found, outputs):
        unknown = [node for node in values if id(node) not in net.names]
        if unknown:
            raise NotImplementedError(f"{applied.function.label} reads an array that is neither an argument nor "
                                      "computed: Caffe's layers take constants as parameters only")
        name = writer(net, applied, [net.names[id(node)] for node in values])
        net.names.update({id(node): name for ref in applied.function.outputs if (node := ref()) is not None})
    if directory is not None:
        _write(net.message, Path(directory), export_params)
    return net.message


def _write(message: Any, folder: Path, export_params: bool) -> None:
    from google.protobuf import text_format

    description = type(message)()
    description.CopyFrom(message)
    for layer in description.layer:
        del layer.blobs[:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROTOTXT).write_text(text_format.MessageToString(description), encoding="utf-8")
    if export_params:
        (folder / CAFFEMODEL).write_bytes(message.SerializeToString())
