"""``onnx_chainer.export_testcase``: the function, and the module of the same name."""
from __future__ import annotations

from typing import Any

from .. import testcase
from ..dialect import ONNX_CHAINER
from .callable_module import callable_as

__all__ = ["export_testcase"]


def export_testcase(model: Any, args: Any, out_dir: Any, output_grad: bool = False, **kwargs: Any) -> None:
    """Export a model with the arguments and results of a call, in ONNX-Chainer's dialect.

    See `kusari.onnx.export_testcase`.
    """
    testcase.export_testcase(model, args, out_dir, output_grad, **{"dialect": ONNX_CHAINER, **kwargs})


callable_as(__name__, export_testcase)
