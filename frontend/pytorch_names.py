"""PyTorch's names for things with other names here: an attribute error says what to write instead."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

_GPU = 'to_device("@cupy:0")'
_IN_PLACE = "x = x + y: functions make new Variables, nothing changes one in place"
_CAST = "F.cast(x, {0!r})"
_TRAIN = 'kusari.config.train = True, which is the default'
_EVAL = 'with kusari.using_config("train", False), kusari.no_backprop_mode(): ...'


def _functions(*names: str) -> dict[str, str]:
    return {name: f"F.{name}(x)" for name in names}


# Each table: PyTorch's name -> what to write. F is kusari.functions, L is kusari.links, np is numpy.
VARIABLE = {
    **_functions("argmax", "argmin", "cos", "cumsum", "exp", "log", "logsumexp", "max", "min", "prod",
                 "relu", "sigmoid", "sin", "sqrt", "squeeze", "sum", "tanh"),
    "abs": "abs(x)",
    "add_": _IN_PLACE,
    "any": "(x.array != 0).any()",
    "argsort": "np.argsort(x.array)",
    "bmm": "F.matmul(x, y)",
    "chunk": "F.split_axis(x, n, axis=0)",
    "clamp": "F.clip(x, 0.0, 1.0)",
    "clone": "F.identity(x), or x.array.copy() for the values alone",
    "contiguous": "x: it may be left out",
    "copy_": "x.array[...] = values, between iterations",
    "cpu": "x.array for the values, or x.to_device(\"@numpy\")",
    "cuda": f"x.{_GPU}",
    "detach": "x.array for the values, or kusari.Variable(x.array)",
    "dim": "x.ndim",
    "div_": _IN_PLACE,
    "double": _CAST.format("float64"),
    "eq": "x.array == y.array",
    "expand": "F.broadcast_to(x, shape)",
    "expand_as": "F.broadcast_to(x, y.shape)",
    "flatten": "F.flatten(x), or F.reshape(x, (len(x), -1)) to keep the batch",
    "float": _CAST.format("float32"),
    "gather": "F.select_item(x, t) for one element of each row",
    "grad_fn": "x.creator",
    "half": _CAST.format("float16"),
    "is_leaf": "x.creator is None",
    "log_softmax": "F.log_softmax(x, axis=-1)",
    "long": "x.array.astype(np.int32)",
    "masked_fill": "F.where(mask, -1e9, x)",
    "matmul": "F.matmul(x, y)",
    "mm": "F.matmul(x, y)",
    "mul_": _IN_PLACE,
    "norm": "F.sqrt(F.sum(x ** 2))",
    "numel": "x.size",
    "numpy": "x.array",
    "permute": "x.transpose(0, 2, 1)",
    "pow": "x ** 2",
    "repeat": "F.tile(x, (2, 1)); F.repeat repeats each element",
    "requires_grad_": "kusari.Variable(array, requires_grad=False); for a link model.disable_update()",
    "retain_grad": "loss.backward(retain_grad=True)",
    "softmax": "F.softmax(x, axis=-1)",
    "sort": "F.permutate(x, np.argsort(x.array)) of one axis",
    "split": "F.split_axis(x, [2, 5], axis=0): counts of parts, or where they begin",
    "std": "F.sqrt(F.mean((x - F.mean(x)) ** 2))",
    "sub_": _IN_PLACE,
    "t": "x.T",
    "to": "x.to_device(\"@numpy\") for another device, F.cast(x, \"float16\") for another dtype",
    "tolist": "x.array.tolist()",
    "topk": "np.argsort(-x.array)[..., :k] for the indices",
    "type": 'F.cast(x, "float16")',
    "type_as": "F.cast(x, y.dtype)",
    "unbind": "F.separate(x, axis=0)",
    "unsqueeze": "F.expand_dims(x, axis)",
    "var": "F.mean((x - F.mean(x)) ** 2)",
    "view": "F.reshape(x, shape)",
    "view_as": "F.reshape(x, y.shape)",
    "zero_": "x.cleargrad() for a gradient, x.array[...] = 0 for the values of a parameter",
}  # fmt: skip
LINK = {
    "add_module": "model.add_link(name, link), or self.name = link inside init_scope()",
    "apply": "for link in model.links(): ...",
    "bias": "link.b; link.beta of a normalization",
    "cpu": "model.to_device(\"@numpy\")",
    "cuda": f"model.{_GPU}",
    "double": "with kusari.using_config(\"dtype\", np.float64): when the model is made",
    "eval": _EVAL,
    "half": "with kusari.using_config(\"dtype\", np.float16): when the model is made",
    "load_state_dict": 'kusari.serializers.load_npz("model.npz", model)',
    "modules": "model.links()",
    "named_modules": "model.namedlinks()",
    "named_parameters": "model.namedparams()",
    "parameters": "model.params(); an optimizer is given the model: kusari.optimizers.Adam().setup(model)",
    "register_buffer": "model.add_persistent(name, value)",
    "register_parameter": "self.name = kusari.Parameter(...) inside init_scope()",
    "requires_grad_": "model.disable_update()",
    "state_dict": 'kusari.serializers.save_npz("model.npz", model), or dict(model.namedparams())',
    "to": f"model.{_GPU}, or model.to_device(\"@numpy\")",
    "train": _TRAIN,
    "training": "kusari.config.train, which is one for all links",
    "weight": "link.W; link.gamma of a normalization",
    "zero_grad": "model.cleargrads()",
}  # fmt: skip
OPTIMIZER = {
    "load_state_dict": 'kusari.serializers.load_npz("optimizer.npz", optimizer)',
    "param_groups": "optimizer.hyperparam for all parameters, param.update_rule.hyperparam for one",
    "state_dict": 'kusari.serializers.save_npz("optimizer.npz", optimizer)',
    "step": "optimizer.update()",
    "zero_grad": "model.cleargrads()",
}
PACKAGE = {
    **{name: f"F.{name}" for name in ("exp", "log", "matmul", "relu", "sigmoid", "softmax", "stack", "tanh", "where")},
    "DataLoader": "kusari.iterators.SerialIterator, or MultiprocessIterator for workers",
    "FloatTensor": "an array of NumPy's: np.asarray(values, np.float32)",
    "LongTensor": "an array of NumPy's: np.asarray(labels, np.int32)",
    "Module": "kusari.Chain",
    "Tensor": "kusari.Variable",
    "amp": 'kusari.using_config("dtype", kusari.mixed16), and optimizer.loss_scaling()',
    "arange": "np.arange(n, dtype=np.float32)",
    "autograd": "kusari.grad, or y.backward() of a Variable",
    "bmm": "F.matmul",
    "cat": "F.concat(xs, axis=1)",
    "compile": "@kusari.static_graph above forward, or above the method that computes the loss",
    "einsum": "F.einsum",
    "enable_grad": "kusari.force_backprop_mode()",
    "float16": "np.float16",
    "float32": "np.float32",
    "float64": "np.float64",
    "from_numpy": "the array itself: functions take arrays of NumPy's",
    "inference_mode": "kusari.no_backprop_mode()",
    "int64": "np.int64",
    "jit": "kusari.static_graph to compile, kusari.onnx.export to write a file",
    "load": "kusari.serializers.load_npz",
    "manual_seed": "np.random.seed(0)",
    "nn": "kusari.links for layers, kusari.functions for the rest, kusari.Chain for Module",
    "no_grad": "kusari.no_backprop_mode()",
    "ones": "np.ones(shape, np.float32)",
    "optim": "kusari.optimizers",
    "randn": "np.random.randn(2, 3).astype(np.float32)",
    "save": "kusari.serializers.save_npz",
    "seed": "np.random.seed()",
    "set_grad_enabled": 'kusari.using_config("enable_backprop", False)',
    "set_num_threads": "KUSARI_NUM_THREADS in the environment",
    "tensor": "an array of NumPy's: np.asarray(values, np.float32), labels as np.int32",
    "zeros": "np.zeros(shape, np.float32)",
}  # fmt: skip
FUNCTIONS = {
    "adaptive_avg_pool2d": "F.mean(x, axis=(2, 3)) for one value per channel",
    "adaptive_max_pool2d": "F.max(x, axis=(2, 3)) for one value per channel",
    "avg_pool2d": "F.average_pooling_2d",
    "batch_norm": "L.BatchNormalization, or F.batch_normalization",
    "binary_cross_entropy": "F.sigmoid_cross_entropy, of the scores before the sigmoid",
    "binary_cross_entropy_with_logits": "F.sigmoid_cross_entropy",
    "bmm": "F.matmul",
    "cat": "F.concat(xs, axis=1)",
    "clamp": "F.clip",
    "conv1d": "F.convolution_1d",
    "conv2d": "F.convolution_2d",
    "conv3d": "F.convolution_3d",
    "conv_transpose2d": "F.deconvolution_2d",
    "cross_entropy": "F.softmax_cross_entropy(y, t), which ignores labels of -1",
    "ctc_loss": "F.connectionist_temporal_classification",
    "embedding": "F.embed_id",
    "gelu": "0.5 * x * (1 + F.erf(x / 2 ** 0.5))",
    "glu": "a * F.sigmoid(b), where a, b = F.split_axis(x, 2, axis=-1)",
    "grid_sample": "F.spatial_transformer_sampler",
    "group_norm": "L.GroupNormalization, or F.group_normalization",
    "hardtanh": "F.clip(x, -1.0, 1.0)",
    "instance_norm": "F.group_normalization(x, x.shape[1], gamma, beta)",
    "interpolate": "F.resize_images",
    "kl_div": "F.sum(t * (F.log(t) - y)) / len(t), of log-probabilities y",
    "l1_loss": "F.mean_absolute_error",
    "layer_norm": "L.LayerNormalization, or F.layer_normalization",
    "logsigmoid": "-F.softplus(-x)",
    "max_pool2d": "F.max_pooling_2d",
    "mse_loss": "F.mean_squared_error",
    "nll_loss": "-F.mean(F.select_item(y, t))",
    "one_hot": "np.eye(classes, dtype=np.float32)[t]",
    "permute": "F.transpose",
    "pixel_shuffle": "F.depth2space",
    "scaled_dot_product_attention": "F.matmul(F.softmax(F.matmul(q, k, transb=True) / d ** 0.5, axis=-1), v)",
    "silu": "x * F.sigmoid(x)",
    "smooth_l1_loss": "F.huber_loss(y, t, delta=1.0)",
    "unfold": "F.im2col",
    "unsqueeze": "F.expand_dims",
    "upsample": "F.resize_images, or F.unpooling_2d for the nearest",
    "view": "F.reshape",
}  # fmt: skip
LINKS = {
    "AdaptiveAvgPool2d": "F.mean(x, axis=(2, 3)) for one value per channel",
    "AvgPool2d": "F.average_pooling_2d",
    "BCEWithLogitsLoss": "F.sigmoid_cross_entropy",
    "BatchNorm1d": "L.BatchNormalization",
    "BatchNorm2d": "L.BatchNormalization",
    "Conv1d": "L.Convolution1D",
    "Conv2d": "L.Convolution2D",
    "Conv3d": "L.Convolution3D",
    "ConvTranspose2d": "L.Deconvolution2D",
    "CrossEntropyLoss": "F.softmax_cross_entropy",
    "Dropout": "F.dropout(x, ratio)",
    "Embedding": "L.EmbedID",
    "Flatten": "F.reshape(x, (len(x), -1))",
    "GELU": "0.5 * x * (1 + F.erf(x / 2 ** 0.5))",
    "GRUCell": "L.StatelessGRU",
    "GroupNorm": "L.GroupNormalization",
    "Identity": "F.identity",
    "InstanceNorm2d": "L.GroupNormalization(channels)",
    "LSTMCell": "L.StatelessLSTM",
    "LayerNorm": "L.LayerNormalization",
    "LeakyReLU": "F.leaky_relu",
    "MSELoss": "F.mean_squared_error",
    "MaxPool1d": "F.max_pooling_1d",
    "MaxPool2d": "F.max_pooling_2d",
    "Module": "kusari.Chain",
    "ModuleDict": "kusari.Chain, whose links have names",
    "ModuleList": "kusari.ChainList",
    "MultiheadAttention": "L.Linear, F.matmul and F.softmax: docs/pytorch.md has it in full",
    "NLLLoss": "-F.mean(F.select_item(y, t))",
    "RNN": "L.NStepRNNTanh",
    "ReLU": "F.relu",
    "Sequential": "kusari.Sequential",
    "Sigmoid": "F.sigmoid",
    "Softmax": "F.softmax(x, axis=-1)",
    "Tanh": "F.tanh",
    "Transformer": "L.Linear, F.matmul and F.softmax: docs/pytorch.md has attention in full",
    "TransformerEncoder": "L.Linear, F.matmul and F.softmax: docs/pytorch.md has attention in full",
    "Upsample": "F.resize_images",
}

CUDA = {"is_available": "kusari.cuda.available"}
DATASETS = {
    "Subset": "kusari.datasets.SubDataset",
    "TensorDataset": "kusari.datasets.TupleDataset",
    "random_split": "kusari.datasets.split_dataset_random",
}
OPTIMIZERS = {"lr_scheduler": "assign optimizer.lr (alpha of Adam); in a Trainer, "
                              "kusari.training.extensions.ExponentialShift"}


def hint(name: str, table: Mapping[str, str]) -> str:
    """Return the end of a message on a missing attribute: what to write for a name of PyTorch's; else empty.

    >>> hint("eval", LINK)
    ', which is PyTorch\\'s; here: with kusari.using_config("train", False), kusari.no_backprop_mode(): ...'
    """
    return f", which is PyTorch's; here: {table[name]}" if name in table else ""


class _Elsewhere:
    # No data descriptor, so that attributes of users win. Classes behind the owner may define the name as well.

    def __init__(self, owner: type, name: str, table: Mapping[str, str]) -> None:
        self._owner, self._name, self._table = owner, name, table

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        name, mro = self._name, kind.__mro__
        for base in mro[mro.index(self._owner) + 1:]:
            if name in vars(base):
                found = vars(base)[name]
                return found.__get__(instance, kind) if hasattr(type(found), "__get__") else found
        subject = f"type object {kind.__name__!r}" if instance is None else f"{kind.__name__!r} object"
        raise AttributeError(f"{subject} has no attribute {name!r}{hint(name, self._table)}")


def answer(owner: type, table: Mapping[str, str]) -> None:
    """Let instances of a class, which lack these names as before, say so with what to write instead."""
    def names(self: Any) -> list[str]:
        return [name for name in super(owner, self).__dir__() if name not in table or hasattr(self, name)]

    for name in table:
        setattr(owner, name, _Elsewhere(owner, name, table))
    owner.__dir__ = names  # pyright: ignore[reportAttributeAccessIssue]


def answer_in_module(names: dict[str, Any], table: Mapping[str, str]) -> None:
    """The same for a module, by its ``__getattr__``, which type checkers need not know of."""
    def missing(name: str) -> NoReturn:
        raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}{hint(name, table)}")
    names["__getattr__"] = missing
