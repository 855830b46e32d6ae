"""Kusari: define-by-run neural networks with Chainer's API, and a compiler behind ``@static_graph``.

``import kusari as chainer`` is meant to be all that a Chainer program changes.

Example:
    >>> import kusari, numpy as np
    >>> x = kusari.Variable(np.array([[1, 2], [3, 4]], np.float32))
    >>> loss = kusari.functions.sum(x * x)
    >>> loss.backward()
    >>> x.grad
    array([[2., 4.],
           [6., 8.]], dtype=float32)
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kusari.ir.threads import limit_blas

from . import backend, backends, configuration, environment, errors, function_hook, utils
from .backend import get_device, using_device
from .backends import cuda
from .backprop import backward, grad
from .configuration import (
    DebugMode,
    config,
    force_backprop_mode,
    global_config,
    is_debug,
    no_backprop_mode,
    set_debug,
    using_config,
)
from .dtypes import get_compute_mode, get_dtype, mixed16
from .function import Function, FunctionAdapter
from .function_hook import FunctionHook, get_function_hooks
from .function_node import Fallback, FunctionNode
from .parameter import Parameter
from .pytorch_names import PACKAGE as _PYTORCH
from .pytorch_names import hint as _hint
from .types import get_array_types, get_cpu_array_types, is_arrays_compatible
from .variable import Variable, as_array, as_variable

if TYPE_CHECKING:
    from . import (
        computational_graph,
        dataset,
        datasets,
        distributions,
        exporters,
        function_hooks,
        functions,
        gradient_check,
        initializers,
        iterators,
        link_hooks,
        links,
        optimizer_hooks,
        optimizers,
        serializers,
        training,
    )
    from .backends.cuda import should_use_cudnn, should_use_cudnn_tensor_core
    from .device_resident import DeviceResident
    from .distribution import Distribution, cross_entropy, kl_divergence, register_kl
    from .initializer import Initializer
    from .link import Chain, ChainList, Link
    from .link_hook import LinkHook
    from .optimizer import GradientMethod, Optimizer, UpdateRule
    from .profiling.profile import profile
    from .reporter import DictSummary, Reporter, Summary, get_current_reporter, report, report_scope
    from .runtime_info import print_runtime_info
    from .sequential import Sequential
    from .serializer import AbstractSerializer, Deserializer, Serializer
    from .static import static_code, static_graph

__version__ = "0.1.0"
environment.check()
environment.show_logs()
limit_blas()

disable_experimental_feature_warning = False

# What costs time to import is imported when it is first asked for: name -> the module it is in.
_LAZY = {
    "AbstractSerializer": "serializer",
    "Chain": "link",
    "ChainList": "link",
    "Deserializer": "serializer",
    "DeviceResident": "device_resident",
    "DictSummary": "reporter",
    "Distribution": "distribution",
    "GradientMethod": "optimizer",
    "Initializer": "initializer",
    "Link": "link",
    "LinkHook": "link_hook",
    "Optimizer": "optimizer",
    "Reporter": "reporter",
    "Sequential": "sequential",
    "Serializer": "serializer",
    "Summary": "reporter",
    "UpdateRule": "optimizer",
    "cross_entropy": "distribution",
    "get_current_reporter": "reporter",
    "kl_divergence": "distribution",
    "print_runtime_info": "runtime_info",
    "profile": "profiling.profile",
    "register_kl": "distribution",
    "report": "reporter",
    "report_scope": "reporter",
    "should_use_cudnn": "backends.cuda",
    "should_use_cudnn_tensor_core": "backends.cuda",
    "static_code": "static",
    "static_graph": "static",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        qualified = f"{__name__}.{name}"
        try:
            return importlib.import_module(qualified)
        except ModuleNotFoundError as error:
            if error.name != qualified:
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name, _PYTORCH)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *__all__})


__all__ = [
    "AbstractSerializer", "Chain", "ChainList", "DebugMode", "Deserializer", "DeviceResident", "DictSummary",
    "Distribution", "Fallback", "Function", "FunctionAdapter", "FunctionHook", "FunctionNode", "GradientMethod",
    "Initializer", "Link", "LinkHook", "Optimizer", "Parameter", "Reporter", "Sequential", "Serializer", "Summary",
    "UpdateRule", "Variable", "as_array", "as_variable", "backend", "backends", "backward", "computational_graph",
    "config", "configuration", "cross_entropy", "cuda", "dataset", "datasets", "distributions", "errors", "exporters",
    "force_backprop_mode", "function_hook", "function_hooks", "functions", "get_array_types", "get_compute_mode",
    "get_cpu_array_types", "get_current_reporter", "get_device", "get_dtype", "get_function_hooks", "global_config",
    "grad", "gradient_check", "initializers", "is_arrays_compatible", "is_debug", "iterators", "kl_divergence",
    "link_hooks", "links", "mixed16", "no_backprop_mode", "optimizer_hooks", "optimizers", "print_runtime_info",
    "profile", "register_kl", "report", "report_scope", "serializers", "set_debug", "should_use_cudnn",
    "should_use_cudnn_tensor_core", "static_code", "static_graph", "training", "using_config", "using_device", "utils",
]  # fmt: skip

from .functions.math import arithmetic as _arithmetic  # noqa: E402, F401  (installs the operators on Variable)
