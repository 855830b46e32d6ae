"""``onnx_chainer.export``: the function, and the module of the same name."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

from ...function_node import FunctionNode
from ...link_hook import ForwardPreprocessArgs, LinkHook
from ...static.trees import flatten
from ...utils.experimental import experimental
from ...variable import Variable, as_variable
from .. import exporter
from ..context import Context, convert_parameter
from ..dialect import ONNX_CHAINER
from ..versions import MINIMUM_OPSET_VERSION
from .callable_module import callable_as

__all__ = [
    "MAXIMUM_OPSET_VERSION", "MINIMUM_OPSET_VERSION", "Context", "RetainInputHook", "convert_parameter", "export",
]

MAXIMUM_OPSET_VERSION = ONNX_CHAINER.default_opset
"""The newest opset of ONNX-Chainer, and the default; all that Kusari writes may be asked for."""


_EXPERIMENTAL = ("external_converters", "external_opset_imports", "return_named_inout")


@functools.wraps(exporter.export)
def export(model: Any, args: Any, filename: Any = None, *more: Any, **kwargs: Any) -> Any:
    """Export a model in ONNX-Chainer's dialect; see `kusari.onnx.export`."""
    if filename is not None and not kwargs.get("no_testcase"):
        warnings.warn("onnx_chainer.export_testcase writes inputs and outputs, too; no_testcase=True for a model alone",
                      DeprecationWarning, stacklevel=2)
    for option in _EXPERIMENTAL:
        if kwargs.get(option):
            experimental(option)
    return exporter.export(model, args, filename, *more, **{"dialect": ONNX_CHAINER, **kwargs})


class RetainInputHook(LinkHook):
    """Collects the Variables that functions are given and that are no arguments of links nor made by functions.

    >>> import numpy as np, kusari, kusari.functions as F
    >>> with RetainInputHook() as hook:
    ...     y = kusari.Sequential(lambda x: x + kusari.Variable(np.ones(3)))(kusari.Variable(np.zeros(3)))
    >>> len(hook.retain_inputs)
    1
    """

    name = "RetainInputHook"

    def __init__(self) -> None:
        self.link_inputs: dict[int, Any] = {}
        self.retain_inputs: list[Variable] = []

    def __enter__(self) -> RetainInputHook:
        apply, hook = FunctionNode.apply, self

        def hooked(node: FunctionNode, inputs: Any) -> tuple[Variable, ...]:
            variables = tuple(map(as_variable, inputs))
            hook.retain_inputs += hook._implicit(variables)
            return apply(node, variables)
        self._patch = mock.patch.object(FunctionNode, "apply", hooked)
        self._patch.start()
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._patch.stop()

    def forward_preprocess(self, args: ForwardPreprocessArgs) -> None:
        """Note the arguments of a link."""
        leaves: list[Any] = []
        flatten((args.args, args.kwargs), leaves)
        self.link_inputs.update((id(x), x) for x in leaves if isinstance(x, Variable))

    def _implicit(self, variables: tuple[Variable, ...]) -> Iterator[Variable]:
        retained = set(map(id, self.retain_inputs))
        return (x for x in variables if x.creator_node is None and id(x) not in retained | self.link_inputs.keys())


callable_as(__name__, export)
