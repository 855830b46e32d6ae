"""Shapes that the user wants declared instead of those of the arguments."""
from __future__ import annotations

from typing import Any

from .errors import ExportError


def customized(model: Any, args: Any, names: tuple[str, ...], shapes: Any) -> None:
    """Declare other shapes for the inputs of ``model``, and drop the inferred shapes that depend on them."""
    if isinstance(shapes, dict):
        if not isinstance(args, dict) or set(shapes) != set(args):
            raise ExportError(f"input_shapes: a dict must have the keys of args, got {sorted(map(str, shapes))}")
        wanted = [shapes[k] for k in args]
    else:
        wanted = list(shapes) if isinstance(shapes, list) else [shapes]
    if len(wanted) != len(names):
        raise ExportError(f"input_shapes: expected {len(names)} shapes, got {len(wanted)}: {wanted}")
    inputs = {info.name: info for info in model.graph.input}
    symbolic = False
    for name, shape in zip(names, wanted, strict=True):
        dims = inputs[name].type.tensor_type.shape.dim
        if not isinstance(shape, (tuple, list)) or len(shape) != len(dims):
            raise ExportError(f"input_shapes: {name} has {len(dims)} axes, got {shape!r}")
        for dim, extent in zip(dims, shape, strict=True):
            if isinstance(extent, str):
                dim.dim_param = extent
            elif extent is None:
                dim.Clear()
            else:
                symbolic |= dim.dim_value != int(extent)
                dim.dim_value = int(extent)
            symbolic |= not isinstance(extent, int)
    if symbolic:
        del model.graph.value_info[:]
        for info in model.graph.output:
            info.type.tensor_type.ClearField("shape")
