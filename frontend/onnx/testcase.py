"""``export_testcase``: a model together with inputs and outputs, as ONNX's own tests keep them."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..backprop import grad
from ..link import Link
from ..static.trees import flatten
from .dialect import KUSARI
from .errors import ExportError, ExportFileError
from .exporter import export
from .files import save, write
from .trace import call_of, to_array, unchanged
from .versions import require_onnx


def export_testcase(model: Any, args: Any, out_dir: Any, output_grad: bool = False, **kwargs: Any) -> None:
    """Export a model with the arguments and the results of a call.

    ``out_dir`` gets ``model.onnx`` and ``test_data_set_0`` with ``input_0.pb``, ``output_0.pb``, … in the order of the
    graph's inputs and outputs: what the backend tests of ONNX read.

    Args:
        model: As of `export`.
        args: As of `export`.
        out_dir: Folder to write to; made where it is missing.
        output_grad: Whether to write the gradients of the parameters too: ``gradient_0.pb``, … in the order of
            ``namedparams()``, each tensor named by its path. The outputs' gradients are taken to be ones.
        **kwargs: Further arguments of `export`.

    Raises:
        ExportError: As `export`; or gradients are asked for, and the model is not a link or has none.
        ExportFileError: Folder or files cannot be written.
    """
    onnx = require_onnx()
    kwargs.pop("filename", None)
    kwargs["return_named_inout"] = True
    made, inputs, outputs = export(model, args, **kwargs)
    dialect = kwargs.get("dialect", KUSARI)
    parts = {"input": inputs, "output": outputs}
    files = {f"{stem}_{i}.pb": onnx.numpy_helper.from_array(np.array(to_array(v), order="C"), name)
             for stem, named in parts.items() for i, (name, v) in enumerate(named.items())}
    if output_grad:
        found = gradients(model, args, kwargs.get("train", False))
        files.update((f"gradient_{i}.pb", onnx.numpy_helper.from_array(g, dialect.parameter(path)))
                     for i, (path, g) in enumerate(found.items()))
    folder = os.path.join(os.fspath(out_dir), "test_data_set_0")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ExportFileError(error.errno, f"cannot make the folder: {error.strerror}", folder) from error
    save(made, os.path.join(os.fspath(out_dir), "model.onnx"), kwargs.get("save_text", False),
         kwargs.get("external_data_threshold"))
    for name, tensor in files.items():
        write(os.path.join(folder, name), tensor.SerializeToString(deterministic=True))


def gradients(model: Any, args: Any, train: bool) -> dict[str, Any]:
    """Return the gradients of the parameters by path, for outputs' gradients of ones; the model stays as it is."""
    if not isinstance(model, Link):
        raise ExportError(f"output_grad needs a link, whose parameters have gradients; got {type(model).__name__}")
    call = call_of(model, args, train)
    named = [(name, p) for name, p in model.namedparams(include_uninit=False) if p.requires_grad]
    with unchanged(model):
        leaves: list[Any] = []
        flatten(call.apply(call.variables(), backprop=True), leaves)
        ys = [y for y in leaves if getattr(y, "requires_grad", False)]
        if not ys or not named:
            raise ExportError("output_grad: no output depends on a parameter")
        ones = [type(y)(y.xp.ones_like(y.array)) for y in ys]
        found = grad(ys, [p for _, p in named], ones)
    return {name: np.array(to_array(g), order="C") for (name, _), g in zip(named, found, strict=True) if g is not None}
