"""Chainer's modules of which there is no file here: ``chainer.functions.activation.relu``, ``links.connection.linear``.

Scripts import names from them, and pickles name them. Each stands for its folder: it has what the folder's modules
have, and all that is public in the package the folder belongs to. Modules of ours that are called like one of
Chainer's have all that as well, while the import names lead here.
"""
from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import compat_classes

__all__ = ["Gathered", "GatheredModules", "serve", "withdraw"]

_FOLDED = ("functions", "links")  # their modules stand in folders
_FLAT = ("distributions", "link_hooks", "optimizer_hooks", "optimizers")
# Most modules are called like a function or class in them; these are not.
_OTHERS = frozenset({
    "basic_math", "discriminative_loss", "exponential_m1", "hyperbolic", "logarithm_1p", "minmax", "squared_error",
    "pooling_2d", "trigonometric", "mgu", "peephole", "zoneoutlstm",
})  # fmt: skip


def _sources(module: str) -> Iterator[ModuleType]:
    """The modules that have the names of a module of Chainer's now."""
    if module in _RENAMED or module in _RENAMED.values():
        yield importlib.import_module(_RENAMED.get(module, module))
        return
    yield importlib.import_module(".".join(module.split(".")[:2]))
    folder = module.rpartition(".")[0]
    for found in pkgutil.iter_modules(importlib.import_module(folder).__path__):
        yield importlib.import_module(f"{folder}.{found.name}")


def _gathered(module: str, name: str) -> Any:
    """The value of a name in a module of Chainer's."""
    if f"{module}.{name}" in _NAMES or f"{module}.{name}" in _OPTIONAL:
        return _elsewhere(module, name)
    if not name.startswith("__"):
        for source in _sources(module):
            if name in vars(source):
                return vars(source)[name]
        if (found := compat_classes.find(name, _sources(module))) is not None:
            return found
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _submodule(package: str, name: str) -> Any:
    """A module of Chainer's as an attribute of its folder."""
    qualified = f"{package}.{name}"
    if not name.startswith("_") and _package(qualified) is not None:
        return importlib.import_module(qualified)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _elsewhere(module: str, name: str) -> Any:
    """A name of Chainer's in a module that is otherwise ours."""
    if f"{module}.{name}" in _OPTIONAL:
        return importlib.util.find_spec(_OPTIONAL[f"{module}.{name}"]) is not None
    if f"{module}.{name}" not in _NAMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    package, here = _NAMES[f"{module}.{name}"]
    return getattr(importlib.import_module(package), here)


def top_level(name: str) -> Any:
    """A name of the module ``chainer`` itself."""
    return _elsewhere("kusari", name) if f"kusari.{name}" in _NAMES else getattr(sys.modules["kusari"], name)


_served: list[ModuleType] = []
_newest: dict[str, tuple[int, str]] = {}  # how many modules there were when a package was served, and the last of them


def serve(package: ModuleType) -> None:
    """Let modules in the folders of one of Kusari's packages, and those of the tables, have Chainer's names, too."""
    state = len(sys.modules), next(reversed(sys.modules))
    if _newest.get(package.__name__) == state:  # names of modules are asked for in every call of a model
        return
    _newest[package.__name__] = state
    name, _, last = package.__name__.partition(".")
    inside = f"{package.__name__}." if name == "kusari" and last in _FOLDED else None
    if name == "kusari" and last in _FLAT and "__getattr__" not in vars(package):
        vars(package)["__getattr__"] = functools.partial(_submodule, package.__name__)
        _served.append(package)
    for key, module in list(sys.modules.items()):
        folded = key in _RENAMED.values() or inside is not None and key.startswith(inside)
        if (folded or key in _EXTENDED) and "__getattr__" not in vars(module):
            find = _elsewhere if not folded else _submodule if hasattr(module, "__path__") else _gathered
            vars(module)["__getattr__"] = functools.partial(find, key)
            _served.append(module)


def withdraw() -> None:
    """Undo `serve`."""
    _newest.clear()
    while _served:
        vars(_served.pop()).pop("__getattr__", None)


# Names in Chainer's modules that are elsewhere, or called otherwise, here.
_NAMES = {
    "kusari._get_function_hooks": ("kusari.function_hook", "get_function_hooks"),
    "kusari._get_link_hooks": ("kusari.link_hook", "get_link_hooks"),
    "kusari._runtime_info._get_runtime_info": ("kusari.runtime_info", "runtime_info"),
    "kusari._version.__version__": ("kusari.compat", "API_VERSION"),
    "kusari.backends._cpu._to_cpu": ("kusari.backends.cuda", "to_cpu"),
    "kusari.dataset.convert._concat_arrays": ("kusari.compat_helpers", "concat_arrays"),
    "kusari.dataset.convert._concat_arrays_with_padding": ("kusari.compat_helpers", "concat_arrays"),
    "kusari.dataset.convert.concat_examples_func": ("kusari.dataset.convert", "concat_examples"),
    "kusari.function_node.grad": ("kusari.backprop", "grad"),
    **{f"kusari.functions.math.basic_math.{theirs}": ("operator", ours) for theirs, ours in (
        ("div", "truediv"), ("mul", "mul"), ("neg", "neg"), ("pow", "pow"), ("sub", "sub"))},
    "kusari.gradient_check.assert_allclose": ("kusari.compat_helpers", "assert_allclose"),
    "kusari.link_hook._ForwardPostprocessCallbackArgs": ("kusari.link_hook", "ForwardPostprocessArgs"),
    "kusari.link_hook._ForwardPreprocessCallbackArgs": ("kusari.link_hook", "ForwardPreprocessArgs"),
    "kusari.links.caffe.protobuf3.caffe_pb2": ("kusari.links.caffe.caffe_function", "caffe_pb"),
    **{f"kusari.training.updaters.multiprocess_parallel_updater.{name}": ("kusari.compat_helpers", name) for name in (
        "gather_grads", "gather_params", "scatter_grads", "scatter_params", "size_num_grads")},
    **{f"kusari.utils.array.{name}": ("kusari.compat_helpers", name) for name in ("as_mat", "as_vec", "empty_like")},
}
# Whether a package is installed that a module needs: tests ask these names.
_OPTIONAL = {
    "kusari.datasets.image_dataset.available": "PIL",
    **{f"kusari.links.model.vision.{name}.available": "PIL" for name in ("googlenet", "resnet", "vgg")},
    "kusari.serializers.hdf5._available": "h5py",
    **{f"kusari.training.extensions.{name}._available": "matplotlib" for name in (
        "plot_report", "variable_statistics_plot")},
}
_EXTENDED = {name.rpartition(".")[0] for name in (*_NAMES, *_OPTIONAL)}
# Modules of Chainer's that are called otherwise here.
_RENAMED = {
    "kusari._backend": "kusari.device",
    "kusari._backprop": "kusari.backprop",
    "kusari._runtime_info": "kusari.runtime_info",
    "kusari._version": "kusari.compat",
    "kusari.backends._cpu": "kusari.backends.cpu",
    **{f"kusari.distributed.communicators.{name}_communicator": "kusari.distributed.communicators.flat_communicator"
       for name in ("dummy", "non_cuda_aware")},
    "kusari.distributed.communicators.single_node_communicator": "kusari.distributed.communicators.flat_communicator",
    "kusari.distributed.communicators.two_dimensional_communicator":
        "kusari.distributed.communicators.hierarchical_communicator",
    "kusari.functions.normalization.l2_normalization": "kusari.functions.math.statistics",
    "kusari.functions.theano": "kusari.links.theano.theano_function",
    "kusari.functions.theano.theano_function": "kusari.links.theano.theano_function",
    "kusari.graph_optimizations": "kusari.static",
    "kusari.graph_optimizations.static_graph": "kusari.static",
    "kusari.graph_optimizations.static_graph_utilities": "kusari.static",
    "kusari.initializers.sampling": "kusari.initializers.filters",
    "kusari.links.caffe.protobuf3": "kusari.links.caffe.caffe_function",
    "kusari.links.rnn.n_step_rnn": "kusari.links.rnn.n_step",
    "kusari.memory_layouts": "kusari.compat_layouts",
    "kusari.testing.matrix": "kusari.testing.helper",
    "kusari.utils.array": "kusari.utils.arrays",
    "kusari.utils.imgproc": "kusari.compat_helpers",
    "kusari.utils.meta": "kusari.utils.final",
    "kusari.utils.precision": "kusari.compat_helpers",
    "kusari.training.extensions.util": "kusari.compat_helpers",
    "kusari.warnings": "kusari.compat_helpers",
    "kusari.training._updater": "kusari.training.updater",
    "kusari.utils.conv_nd": "kusari.utils.conv",
}


class Gathered(ModuleType):
    """A module of Chainer's."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"The names of Chainer's module {name.rpartition('.')[2]}.")

    def __getattr__(self, name: str) -> Any:
        return _gathered(self.__name__, name)


class GatheredModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds such modules under Kusari's name; to be asked last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = fullname in _RENAMED or _package(fullname) is not None
        is_package = any(name.startswith(f"{fullname}.") for name in _RENAMED)
        return ModuleSpec(fullname, self, is_package=is_package) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Gathered(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are asked for."""


def _package(fullname: str) -> str | None:
    """Return the package whose names a module has, or None where Chainer has no such module."""
    parts = fullname.split(".")
    if parts[0] != "kusari" or len(parts) < 3 or len(parts) != (4 if parts[1] in _FOLDED else 3) or (
            parts[1] not in _FOLDED + _FLAT):
        return None
    package = sys.modules.get(f"kusari.{parts[1]}")
    known = {name.replace("_", "").lower() for name in vars(package or ModuleType("none"))}
    return f"kusari.{parts[1]}" if parts[-1].replace("_", "") in known or parts[-1] in _OTHERS else None
