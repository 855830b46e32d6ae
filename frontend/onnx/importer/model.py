"""A model that was read from ONNX, as a chain."""
from __future__ import annotations

import os
from keyword import iskeyword
from typing import Any

import numpy as np

from ...link import Chain
from ...parameter import Parameter
from ...variable import Variable
from ..errors import ExportError
from ..versions import require_onnx
from .program import Reader
from .registry import is_float
from .run import run

_STATISTICS = {"BatchNormalization": (3, 4)}  # inputs that are statistics, no parameters


class OnnxModel(Chain):
    """The chain of an ONNX model: called with its inputs in order, or by name, it returns its outputs.

    Initializers of floating-point numbers are parameters, under their own names where Python can spell them (``names``
    says which is which); statistics of batch normalizations are persistent values, other initializers constants.
    Floating-point computations have gradients, as far as Kusari has functions for them; operators it has none for are
    computed by ONNX's reference implementation, and raise when a gradient is asked for.

    Args:
        model: A ``ModelProto``.

    Raises:
        ImportError: The package ``onnx`` is not installed.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._program = program = Reader(model).program(model.graph)
        self._constants: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        statistics = {step.inputs[i] for step in program.steps for i in _STATISTICS.get(step.operator, ())
                      if i < len(step.inputs)}
        for name, array in program.constants.items():
            if name in statistics:
                self.add_persistent(self._spelt(name), array.copy())
            elif is_float(array) and array.ndim:
                attribute = self._spelt(name)
                with self.init_scope():
                    setattr(self, attribute, Parameter(array.copy()))
            else:
                self._constants[name] = array

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return self._program.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self._program.outputs

    def _spelt(self, name: str) -> str:
        """Return the attribute for an initializer: its name, with ``_`` for what no identifier has."""
        found = "".join([c if c.isalnum() else "_" for c in name]).strip("_")
        found = found if found.isidentifier() and not iskeyword(found) else f"p{found}"
        while found in self.names or hasattr(type(self), found):
            found += "_"
        self.names[found] = name
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Args:
            args: Arrays or Variables, one for each of ``inputs``; or some of them by name.

        Returns:
            ~kusari.Variable: The output, or a tuple of the outputs. What is known without the inputs' elements, such
            as a shape, is an array.

        Raises:
            TypeError: An input is missing, there are too many, or one has another dtype than the model says.
        """
        values: dict[str, Any] = dict(self._constants)
        for attribute, name in self.names.items():
            values[name] = getattr(self, attribute)
        values.update(self._arguments(args, kwargs))
        found = run(self._program, values)
        return found[0] if len(found) == 1 else found

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._program.inputs
        given = dict(zip(names, args, strict=False))
        wrong = [name for name in kwargs if name not in names or name in given]
        given.update(kwargs)
        missing = [name for name in names if name not in given]
        if len(args) > len(names) or wrong or missing:
            raise TypeError(f"the model takes {len(names)} inputs ({', '.join(names)}), got {len(args)}" + (
                f" and {', '.join(kwargs)}" if kwargs else "") + (
                f"; missing: {', '.join(missing)}" if missing else ""))
        values: dict[str, Any] = {}
        for name, x in given.items():
            x = np.asarray(x) if isinstance(x, np.generic) else x
            array = x.array if isinstance(x, Variable) else x
            dtype = self._program.types.get(name)
            if dtype is not None and isinstance(array, np.ndarray) and array.dtype != dtype:
                raise TypeError(f"input {name!r} of the model is of {np.dtype(dtype)}, got an array of {array.dtype}")
            usual = isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
            values[name] = Variable(x, requires_grad=False) if usual and not isinstance(x, Variable) else x
        return values


def load(source: Any) -> OnnxModel:
    """Read a model from ONNX.

    See :class:`OnnxModel` for what becomes of it. Opsets 9 to 26 are tested; older operators run as far as they mean
    the same today.

    Args:
        source: A path, a binary file, bytes, or a ``ModelProto``.

    Returns:
        OnnxModel: The chain.

    Raises:
        ImportError: The package ``onnx`` is not installed.
        OSError: The file cannot be read.
        ExportError: It is no ONNX model.

    Example:
        >>> import io, numpy as np, kusari, kusari.links as L, kusari.onnx
        >>> file = io.BytesIO()
        >>> _ = kusari.onnx.export(L.Linear(3, 2), np.ones((4, 3), "f"), filename=file)
        >>> model = kusari.onnx.load(file.getvalue())
        >>> model(np.ones((4, 3), "f")).shape
        (4, 2)
    """
    onnx = require_onnx()
    if isinstance(source, onnx.ModelProto):
        return OnnxModel(source)
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            model = onnx.load_model_from_string(bytes(source))
        else:
            model = onnx.load(os.fspath(source) if isinstance(source, os.PathLike) else source)
    except OSError:
        raise
    except Exception as error:  # of protobuf's many
        raise ExportError(f"this is no ONNX model: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise ExportError("this is no ONNX model: it has no graph")
    return OnnxModel(model)


__all__ = ["OnnxModel", "load"]
