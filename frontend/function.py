"""`Function`: differentiable functions of the old style, whose backward works on arrays."""
from __future__ import annotations

import copy
import warnings
import weakref
from typing import Any

from .backends import cuda
from .configuration import force_backprop_mode, no_backprop_mode
from .errors import GradientTypeError, wrong_gradient
from .function_hook import FunctionHook
from .function_node import FunctionNode
from .utils.arrays import is_array
from .variable import Variable, output_variable

__all__ = ["Function", "FunctionAdapter", "force_backprop_mode", "no_backprop_mode"]


class FunctionAdapter(FunctionNode):
    """The node of a `Function` in the graph.

    Args:
        function (Function): The function it applies.
    """

    is_adapter = True

    def __init__(self, function: Function) -> None:
        self._function = function
        function._node = weakref.ref(self)

    def __copy__(self) -> FunctionAdapter:
        """Return a node with a function of its own, since functions keep on themselves what their backward needs."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._function = copy.copy(self._function)
        copied._function._node = weakref.ref(copied)
        return copied

    @property
    def function(self) -> Function:
        """The old-style function."""
        return self._function

    @property
    def label(self) -> str:
        """The function's label."""
        return self._function.label

    @property
    def _impl_name(self) -> str:
        return type(self._function).__name__

    def check_type_forward(self, in_types: Any) -> None:
        """Let the function check its inputs."""
        self._function.check_type_forward(in_types)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays; all inputs are retained unless the function says otherwise."""
        self._input_indexes_to_retain = tuple(range(len(inputs)))
        return self._function.forward(inputs)

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute gradients with the function's backward, on arrays."""
        retained = self._input_indexes_to_retain or ()
        nodes = self.inputs or ()
        arrays = tuple([x.data if i in retained else None for i, x in enumerate(nodes)])
        grads = tuple([None if gy is None else gy._array for gy in grad_outputs])
        gxs = self._function.backward(arrays, grads)
        if not isinstance(gxs, (tuple, list)):
            raise TypeError(f"backward of {self.label} must return a tuple of arrays, not {type(gxs).__name__}.")
        if len(gxs) != len(nodes):
            raise wrong_gradient(
                self, f"number of gradients returned from backward is incorrect: {len(gxs)} != expected {len(nodes)}"
            )
        found: list[Variable | None] = []
        for index in target_input_indexes:
            gx = gxs[index]
            if gx is None:
                found.append(None)
                continue
            if not is_array(gx) or gx.dtype != nodes[index].dtype:
                actual = gx.dtype if is_array(gx) else type(gx)
                raise wrong_gradient(self, f"dtype or type of gradients returned from backward is incorrect: "
                                     f"input-index={index}, actual {actual} != expected {nodes[index].dtype}",
                                     GradientTypeError)  # fmt: skip
            found.extend(_OnceOnly(self.label).apply((output_variable(gx, True),)))
        return tuple(found)


class _OnceOnly(FunctionNode):
    """Marks a gradient that cannot be differentiated, because an old-style function computed it."""

    def __init__(self, function_label: str) -> None:
        self.function_label = function_label

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> Any:
        raise RuntimeError(
            f'cannot twice-differentiate an old style Function "{self.function_label}". '
            "Derive from FunctionNode instead, and write backward with functions on variables."
        )


class Function:
    """The base of differentiable functions of the old style.

    `forward` and `backward` both work on arrays, so that gradients cannot be differentiated again; new code derives
    from `FunctionNode`. Unless `retain_inputs` says otherwise, all inputs are kept for `backward`.

    Example:
        >>> import kusari, numpy as np
        >>> class Double(kusari.Function):
        ...     def forward(self, inputs):
        ...         return inputs[0] * 2,
        ...     def backward(self, inputs, grad_outputs):
        ...         return grad_outputs[0] * 2,
        >>> x = kusari.Variable(np.ones(2, np.float32))
        >>> y = Double()(x)
        >>> y.grad = np.array([1, 2], np.float32)
        >>> y.backward()
        >>> x.grad
        array([2., 4.], dtype=float32)
    """

    _node: weakref.ref[FunctionAdapter] | None = None
    _owned_node: FunctionAdapter | None = None

    def __call__(self, *inputs: Any) -> Any:
        """Apply the function.

        Args:
            inputs: Variables or arrays.

        Returns:
            Variable or tuple of Variable: The output, or the tuple of outputs.
        """
        # The node that hooks were added to, if there is one.
        node = self._owned_node or FunctionAdapter(self)
        self._owned_node = None
        outputs = node.apply(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def node(self) -> FunctionAdapter:
        """The node of the last application; a new one if there was none."""
        found = None if self._node is None else self._node()
        if found is None:
            found = self._owned_node = FunctionAdapter(self)
        return found

    @property
    def inputs(self) -> Any:
        """The nodes of the inputs."""
        return self.node.inputs

    @property
    def outputs(self) -> Any:
        """Weak references to the nodes of the outputs."""
        return self.node.outputs

    @property
    def output_data(self) -> tuple[Any, ...]:
        """The arrays of the retained outputs."""
        return self.node.output_data

    @property
    def rank(self) -> int:
        """The longest distance from a leaf."""
        return self.node.rank

    @property
    def stack(self) -> Any:
        """Where it was applied; only in debug mode."""
        return self.node.stack

    @property
    def label(self) -> str:
        """The name shown in messages and drawings."""
        return type(self).__name__

    @property
    def local_function_hooks(self) -> dict[str, FunctionHook]:
        """The hooks of this function alone."""
        return self.node.local_function_hooks

    def check_type_forward(self, in_types: Any) -> None:
        """Check types of inputs before `forward`."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays; the default calls `forward_cpu` or `forward_gpu`."""
        if any(map(cuda.is_cupy_array, inputs)):
            return self.forward_gpu(inputs)
        return self.forward_cpu(inputs)

    def forward_cpu(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays from NumPy arrays."""
        raise NotImplementedError(f"{type(self).__name__} implements neither forward nor forward_cpu.")

    def forward_gpu(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays from CuPy arrays."""
        raise NotImplementedError(f"{type(self).__name__} implements neither forward nor forward_gpu.")

    def backward(self, inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        """Compute gradients of all inputs; the default calls `backward_cpu` or `backward_gpu`.

        Args:
            inputs (tuple of arrays or None): The inputs; None where they are not retained.
            grad_outputs (tuple of arrays or None): Gradients of the outputs; None means zero.

        Returns:
            tuple of arrays or None: One gradient per input; None means zero.
        """
        if any(map(cuda.is_cupy_array, (*inputs, *grad_outputs))):
            return self.backward_gpu(inputs, grad_outputs)
        return self.backward_cpu(inputs, grad_outputs)

    def backward_cpu(self, inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        """Compute gradients from NumPy arrays; none by default."""
        return (None,) * len(inputs)

    def backward_gpu(self, inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> Any:
        """Compute gradients from CuPy arrays; none by default."""
        return (None,) * len(inputs)

    def retain_inputs(self, indexes: Any) -> None:
        """Keep only these inputs for `backward`; to be called in `forward`."""
        self.node.retain_inputs(indexes)

    def retain_outputs(self, indexes: Any, retain_after_backward: bool = False) -> None:
        """Keep these outputs for `backward`, as ``self.output_data``; to be called in `forward`."""
        if retain_after_backward:
            warnings.warn("retain_after_backward option has no effect", DeprecationWarning, stacklevel=2)
        self.node.retain_outputs(indexes)

    def unchain(self) -> None:
        """Remove the function from the graph."""
        self.node.unchain()

    def add_hook(self, hook: FunctionHook, name: str | None = None) -> None:
        """Register a hook for this function alone."""
        self.node.add_hook(hook, name)

    def delete_hook(self, name: str) -> None:
        """Unregister a hook of this function."""
        self.node.delete_hook(name)
