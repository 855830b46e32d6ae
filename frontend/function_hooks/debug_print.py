"""`PrintHook`: prints inputs and gradients of every function."""
from __future__ import annotations

import sys
import warnings
from typing import Any, TextIO

from ..function_hook import FunctionHook
from ..variable import Variable


class PrintHook(FunctionHook):
    """Prints a description of inputs (and output gradients) before every function runs.

    Args:
        sep (str): Goes between the parts of a line (deprecated).
        end (str): Ends each part.
        file: A file to print to; standard output by default.
        flush (bool): Flush after each part.

    Example:
        >>> import kusari, numpy as np
        >>> with kusari.function_hooks.PrintHook():
        ...     y = kusari.functions.relu(np.zeros(1, np.float32))  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
        function ReLU
        input data
        <variable at ...>
        - device: CPU
        - backend: <class 'numpy.ndarray'>
        - shape: (1,)
        - dtype: float32
        - statistics: mean=0.00000000, std=0.00000000
        - grad: None
    """

    name = "PrintHook"

    def __init__(self, sep: str | None = None, end: str = "\n", file: TextIO | None = None, flush: bool = True) -> None:
        if sep is not None:
            warnings.warn("sep argument in chainer.function_hooks.PrintHook is deprecated.", DeprecationWarning,
                          stacklevel=2)
        self.sep = sep
        self.end = end
        self.file = file
        self.flush = flush

    def _print(self, *parts: str) -> None:
        print(*parts, sep="\t" if self.sep is None else self.sep, end=self.end, file=self.file or sys.stdout,
              flush=self.flush)  # fmt: skip

    def _inputs(self, function: Any, in_data: tuple[Any, ...]) -> None:
        self._print("function", function.label)
        self._print("input data")
        nodes = function.inputs or (None,) * len(in_data)
        for node, array in zip(nodes, in_data, strict=True):
            variable = None if node is None else node.get_variable_or_none()
            if array is None and variable is None:
                self._print("(removed)")
            else:
                self._print((Variable(array) if variable is None else variable).debug_print())

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Print label and inputs."""
        self._inputs(function, in_data)

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Print label, inputs and gradients of the outputs."""
        self._inputs(function, in_data)
        self._print("output gradient")
        for reference, array in zip(function.outputs, out_grad, strict=True):
            node = reference()
            variable = None if node is None else node.get_variable_or_none()
            if variable is None:
                self._print("(removed)" if array is None else Variable(array).debug_print())
            else:
                shown = Variable(variable._array, name=variable.name, grad=array)
                self._print(shown.debug_print())
