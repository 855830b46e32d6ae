"""`FunctionNode`: a differentiable function, and one application of it in the graph."""
from __future__ import annotations

import traceback
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from . import tape as _tape
from .backends import chainerx as _chainerx
from .backends import cuda
from .backends.chainerx import is_chainerx_array
from .callsite import user_location
from .configuration import config
from .errors import (
    ArrayTypeError,
    GradientTypeError,
    NaNError,
    UninitializedParameterError,
    explain_index,
    wrong_gradient,
)
from .function_hook import FunctionHook
from .utils import type_check
from .utils.arrays import AS_ARRAY, contains_nan, is_array
from .variable import Variable, as_variable, output_variable
from .variable_node import VariableNode

_ndarray = numpy.ndarray


class _Fallback:
    """The type of `Fallback`."""

    def __repr__(self) -> str:
        return "Fallback"


Fallback = _Fallback()
"""The result of ``forward_chainerx`` by which a function asks for NumPy's or CuPy's arrays instead."""


class FunctionNode:
    """A differentiable function.

    Derive from it, write `forward` (or `forward_cpu` and `forward_gpu`) on arrays and `backward` on variables, and call
    ``MyFunction(attributes).apply(inputs)``. Each application needs an object of its own: it becomes the node of the
    graph. What `backward` needs of inputs and outputs must be retained in `forward`, never stored in attributes.

    Attributes:
        inputs (tuple of VariableNode): The nodes of the inputs; None before the application, or without a graph.
        outputs (tuple of weak references to VariableNode): The nodes of the outputs.
        rank (int): The longest distance from a leaf.
        stack: Where it was applied, as a `traceback.StackSummary`; only in debug mode.

    Example:
        >>> import numpy as np, kusari
        >>> class Square(kusari.FunctionNode):
        ...     def forward(self, inputs):
        ...         self.retain_inputs((0,))
        ...         return inputs[0] * inputs[0],
        ...     def backward(self, target_input_indexes, grad_outputs):
        ...         x, = self.get_retained_inputs()
        ...         return 2 * x * grad_outputs[0],
        >>> x = kusari.Variable(np.array([3, 4], np.float32))
        >>> y, = Square().apply((x,))
        >>> y.grad = np.ones(2, np.float32)
        >>> y.backward()
        >>> x.grad
        array([6., 8.], dtype=float32)
    """

    inputs: tuple[VariableNode, ...] = None  # type: ignore[assignment]  # there wherever backward runs
    outputs: tuple[weakref.ref[VariableNode], ...] | None = None
    rank = 0
    stack: Any = None
    is_elementwise = False
    # The device of ChainerX arrays that it is applied to.
    chainerx_device: Any = None
    # What `Variable.creator` gives: this node, unless it stands for a function of the old style.
    is_adapter = False
    lazy_grad_sum = False
    # A node that stands for a whole graph may do a backward itself: ``backward_from(y) -> bool`` says whether it did.
    backward_from: Any = None
    # ... and it can put that graph in its place: ``expand()``, for gradients of gradients or others;
    # ``lies_behind(nodes)`` says whether all of it lies behind those outputs; ``cut(node, behind)`` cuts one off, and
    # ``cuts`` holds these. ``array_assigned(node, array)`` tells it of another array of an output.
    expand: Any = None
    cut: Any = None
    cuts: tuple[Any, ...] = ()
    array_assigned: Any = None
    # What is known of its like, if it is applied to results of a static call, and all that is applied to those.
    _kind: Any = None
    _tail: Any = None
    # What is known of its like, if it is the user's own and is applied in a static function.
    _own_kind: Any = None
    _input_indexes_to_retain: Sequence[int] | None = None
    _output_indexes_to_retain: Sequence[int] | None = None
    _retained_output_data: tuple[Any, ...] | None = None
    _local_function_hooks: dict[str, FunctionHook] | None = None

    @property
    def label(self) -> str:
        """The name shown in messages and drawings: the class's name, unless overridden."""
        return type(self).__name__

    @property
    def _impl_name(self) -> str:
        """The name of the class, in Chainer; labels of our own functions are those of Chainer's classes."""
        kind = type(self)
        return self.label if kind.__module__.startswith("kusari.") else kind.__name__

    @property
    def local_function_hooks(self) -> dict[str, FunctionHook]:
        """The hooks of this node alone, by name."""
        if self._local_function_hooks is None:
            self._local_function_hooks = {}
        return self._local_function_hooks

    @property
    def output_data(self) -> tuple[Any, ...]:
        """The arrays of the outputs that are retained, None for the others.

        Raises:
            RuntimeError: There is no graph, or no output was retained.
        """
        if self._retained_output_data is None or self.outputs is None:
            raise RuntimeError("retained output data is gone")
        data: list[Any] = [None] * len(self.outputs)
        for index, array in zip(self._output_indexes_to_retain or (), self._retained_output_data, strict=True):
            data[index] = array
        return tuple(data)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a function node is applied with `apply`."""
        raise TypeError(
            f"{type(self).__name__} is a FunctionNode: apply it with apply((x, ...)), which takes and returns tuples."
        )

    def apply(self, inputs: Iterable[Any]) -> tuple[Variable, ...]:
        """Compute the outputs and add this node to the graph.

        Args:
            inputs (tuple): Variables, or arrays where no gradient is needed.

        Returns:
            tuple of Variable: The outputs.

        Raises:
            InvalidType: `check_type_forward` does not accept the inputs.
            TypeError: An input is not an array, or `forward` returned something else than a tuple of arrays.
            RuntimeError: Debug mode found a NaN.
        """
        tape = _tape.current.tape
        if tape is not None:
            inputs = tape.enter(inputs)
            if any([x is None for x in inputs]):
                tape.note(f"None is among the inputs of {self.label}, which is not compiled; pass an array")
                with _tape.recording(None):
                    return self.apply(inputs)
            inputs = tuple([as_variable(x) for x in inputs])
        elif type(inputs) is not tuple:
            inputs = tuple(inputs)
        found: list[Any] = []
        requires_grad, plain, device = False, True, None
        for x in inputs:
            if isinstance(x, Variable):
                if x._requires_grad:
                    requires_grad = True
                x = x._array
            if type(x) is not _ndarray:
                plain = False
            found.append(x)
        arrays = tuple(found)
        if not plain:
            if self._check_arrays(inputs, arrays):
                return _chainerx.variables.applied(self, inputs)
            device = cuda.away(arrays)

        debug = config.debug
        if debug:
            self.stack = traceback.extract_stack()[:-1]
        kind = None if _tape.following is None or tape is not None else _tape.following(self, inputs, arrays)
        if kind is None and config.type_check and (
                type(self).check_type_forward is not FunctionNode.check_type_forward or (
                    "check_type_forward" in self.__dict__)):
            type_check.check(self, arrays, user_location)
        hooks = self._active_hooks() if _tape.current.function_hooks or self._local_function_hooks else ()
        for hook in hooks:
            hook.forward_preprocess(self, arrays)
        try:
            if tape is None:
                forward = self.forward if device is None else cuda.bound(self.forward, device)
                outputs = forward(arrays) if kind is None else kind.forward(self, arrays)
            else:
                template = tape.before(self, inputs)
                # What an implementation computes inside belongs to this one node.
                _tape.current.tape = None
                forward = self.forward if device is None else cuda.bound(self.forward, device)
                try:
                    outputs = forward(arrays)
                finally:
                    _tape.current.tape = tape
        except IndexError as error:
            if type(self).__module__.startswith("kusari."):
                explain_index(error, self._impl_name, arrays, user_location())
            raise
        if type(outputs) is not tuple:
            self._refuse_outputs(outputs)
        for hook in hooks:
            hook.forward_postprocess(self, arrays)
        if debug:
            cuda.expect_success(outputs, self.label)
            self._check_nan(outputs)

        made: list[Variable] = []
        plain = True
        for array in outputs:
            if type(array) is not _ndarray:
                plain = False
            made.append(output_variable(array, requires_grad))
        if not plain:
            self._check_outputs(outputs)
        variables = tuple(made)
        if config.enable_backprop:
            self._connect(inputs, arrays, variables)
        if tape is not None:
            tape.after(template, self, inputs, variables)  # pyright: ignore[reportPossiblyUnboundVariable]
        return variables

    def _connect(self, inputs: tuple[Any, ...], arrays: tuple[Any, ...], outputs: tuple[Variable, ...]) -> None:
        """Make this node part of the graph; retained arrays are what its nodes hold on to."""
        rank = 0
        nodes: list[VariableNode] = []
        for x in inputs:
            if isinstance(x, Variable):
                node = x._node or x.node
                if node.rank > rank:
                    rank = node.rank
            else:
                node = VariableNode.of_array(x)
            nodes.append(node)
        self.inputs = tuple(nodes)
        self.rank = rank
        references: list[weakref.ref[VariableNode]] = []
        for y in outputs:
            node = VariableNode(y)
            node.creator_node = self
            node.rank = rank + 1
            y._node = node
            references.append(weakref.ref(node))
        self.outputs = tuple(references)
        if self._input_indexes_to_retain is not None:
            for index in self._input_indexes_to_retain:
                nodes[index].data = arrays[index]
        if self._output_indexes_to_retain is not None:
            retained: list[Any] = []
            for index in self._output_indexes_to_retain:
                y = outputs[index]
                retained.append(y._array)
                y._node.data = y._array  # type: ignore[union-attr]
            self._retained_output_data = tuple(retained)

    def _active_hooks(self) -> list[FunctionHook]:
        return [*_tape.active_hooks(), *(self._local_function_hooks or {}).values()]

    def _check_arrays(self, inputs: tuple[Any, ...], arrays: tuple[Any, ...]) -> bool:
        """Raise unless the inputs are arrays of one kind; return whether they are ChainerX's."""
        for x, array in zip(inputs, arrays, strict=True):
            if array is None and isinstance(x, Variable):
                raise UninitializedParameterError(
                    f"{x!r} was given to {self.label}, but it has no array yet. "
                    "Initialize the parameter first: call its link with real data, or initialize(shape)."
                )
        given = [array for array in arrays if array is not None]
        if any(map(is_chainerx_array, arrays)) and all([
                is_chainerx_array(array) or array is None or type(x) is _ndarray and x.dtype.kind in "iub"  # indices
                for x, array in zip(inputs, arrays, strict=True)]):
            return True
        if not (all(isinstance(x, _ndarray) for x in given) or all(map(cuda.is_cupy_array, given))):
            kinds = ", ".join(str(type(x)) for x in given)
            raise ArrayTypeError(
                f"incompatible array types are mixed in the forward input ({self.label}).\nActual: {kinds}\n"
                f"{AS_ARRAY}\nApplied at: {user_location()}"
            )
        return False

    def _refuse_outputs(self, outputs: Any) -> None:
        raise ArrayTypeError(f"forward output must be a tuple ({self.label})\nActual: {type(outputs)}")

    def _check_outputs(self, outputs: tuple[Any, ...]) -> None:
        for index, array in enumerate(outputs):
            if array is not None and not is_array(array):
                raise ArrayTypeError(
                    f"forward output must be a tuple of ndarrays ({self.label}); output {index} is no array\n"
                    f"Actual: {type(array)}\n"
                    "NumPy turns results without dimensions into scalars; kusari.utils.force_array turns them back."
                )

    def _check_nan(self, outputs: tuple[Any, ...]) -> None:
        for array in outputs:
            if contains_nan(array):
                raise NaNError(
                    f"NaN is detected on forward computation of {self.label}\nApplied at: {user_location()}"
                )

    def check_type_forward(self, in_types: Any) -> None:
        """Check types of inputs before `forward`; override it with calls of `kusari.utils.type_check.expect`.

        Args:
            in_types (TypeInfoTuple): The types of the inputs.
        """

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays from input arrays; the default calls `forward_cpu` or `forward_gpu`.

        Args:
            inputs (tuple of arrays): The inputs, all NumPy or all CuPy arrays.

        Returns:
            tuple of arrays: The outputs.
        """
        if any(map(cuda.is_cupy_array, inputs)):
            return self.forward_gpu(inputs)
        return self.forward_cpu(inputs)

    def forward_cpu(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays from NumPy arrays."""
        raise NotImplementedError(f"{type(self).__name__} implements neither forward nor forward_cpu.")

    def forward_gpu(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Compute output arrays from CuPy arrays."""
        raise NotImplementedError(f"{type(self).__name__} implements neither forward nor forward_gpu.")

    def forward_chainerx(self, inputs: tuple[Any, ...]) -> Any:
        """Compute output arrays from ChainerX arrays, with gradients of their own; to be overridden.

        Returns:
            tuple of chainerx.ndarray: The outputs; or ``kusari.Fallback``, by default, to have `forward` and `backward`
            called with the NumPy or CuPy arrays behind them.
        """
        return Fallback

    def retain_inputs(self, indexes: Sequence[int]) -> None:
        """Keep inputs for `backward`; to be called in `forward`.

        Args:
            indexes (tuple of ints): Which inputs. Without a call none is kept.
        """
        self._input_indexes_to_retain = indexes

    def retain_outputs(self, indexes: Sequence[int]) -> None:
        """Keep outputs for `backward`; to be called in `forward`.

        Args:
            indexes (tuple of ints): Which outputs. Without a call none is kept.
        """
        self._output_indexes_to_retain = indexes

    def get_retained_inputs(self) -> tuple[Any, ...]:
        """Return the retained inputs as variables of the graph, in the order of `retain_inputs`."""
        if self._input_indexes_to_retain is None or self.inputs is None:
            return ()
        return tuple([self._retained_variable(self.inputs[i]) for i in self._input_indexes_to_retain])

    @staticmethod
    def _retained_variable(node: VariableNode) -> Any:
        """Return the node's variable; where its array was taken away meanwhile, it gets the retained one again."""
        if node.dtype is None:  # the input was None
            return None
        variable = node.get_variable()
        if variable._array is None and node.data is not None:
            variable.array = node.data
        return variable if type(variable._array) is _ndarray else plain(variable)

    def get_retained_outputs(self) -> tuple[Any, ...]:
        """Return the retained outputs as variables of the graph, in the order of `retain_outputs`.

        Outputs that are gone are made anew from the retained arrays, and put into their place in the graph.
        """
        if self._output_indexes_to_retain is None or self._retained_output_data is None or self.outputs is None:
            return ()
        found: list[Any] = []
        outputs = list(self.outputs)
        for index, array in zip(self._output_indexes_to_retain, self._retained_output_data, strict=True):
            node = outputs[index]()
            if array is None:
                variable: Any = None
            elif node is None:
                variable = output_variable(array, any(x.requires_grad for x in self.inputs or ()))
                node = variable.node
                node.set_creator_node(self)
                node.data = array
                outputs[index] = weakref.ref(node)
            else:
                variable = node.get_variable()
                if type(variable._array) is not _ndarray:
                    variable = plain(variable)
            found.append(variable)
        self.outputs = tuple(outputs)
        return tuple(found)

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> Any:
        """Compute gradients of inputs from gradients of outputs, with functions on variables.

        Args:
            target_input_indexes (tuple of ints): Which inputs need a gradient, in ascending order.
            grad_outputs (tuple of Variable or None): Gradients of the outputs; None means zero.

        Returns:
            tuple of Variable or None: One gradient per target input (or one per input); None means zero.
        """
        return (None,) * len(target_input_indexes)

    def backward_accumulate(
        self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...], grad_inputs: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Compute gradients of inputs and add them to the present ones.

        Override it only where adding can be done while computing.

        Args:
            target_input_indexes (tuple of ints): Which inputs need a gradient.
            grad_outputs (tuple of Variable or None): Gradients of the outputs.
            grad_inputs (tuple of Variable or None): Gradients of the target inputs so far.

        Returns:
            tuple of Variable or None: The sums, one per target input.
        """
        gxs = select_gradients(self, target_input_indexes, self.backward(target_input_indexes, grad_outputs))
        return tuple([g if gx is None else gx if g is None else gx + g
                      for gx, g in zip(gxs, grad_inputs, strict=True)])  # fmt: skip

    def unchain(self) -> None:
        """Remove this node from the graph: outputs forget it, and it forgets its inputs."""
        for reference in self.outputs or ():
            node = reference()
            if node is not None:
                node.unchain()
        self.inputs = None  # type: ignore[assignment]

    def add_hook(self, hook: FunctionHook, name: str | None = None) -> None:
        """Register a hook for this node alone.

        Args:
            hook (FunctionHook): The hook.
            name (str): Its name; the hook's own by default.

        Raises:
            KeyError: The name is taken.
        """
        if not isinstance(hook, FunctionHook):
            raise TypeError(f"Hook must be of type FunctionHook, not {type(hook).__name__}.")
        name = hook.name if name is None else name
        if name in self.local_function_hooks:
            raise KeyError(f"Hook {name} already exists")
        self.local_function_hooks[name] = hook
        hook.added(self)

    def delete_hook(self, name: str) -> None:
        """Unregister a hook of this node.

        Raises:
            KeyError: There is no hook of this name.
        """
        if name not in self.local_function_hooks:
            raise KeyError(f"Hook {name} does not exist")
        self.local_function_hooks.pop(name).deleted(self)


def plain(variable: Variable) -> Variable:
    """Return a Variable of a ChainerX array as one of the array behind it, and any other as it is."""
    if type(variable._array) is _ndarray or not is_chainerx_array(variable._array):
        return variable
    return _chainerx.variables.carrier_of(variable)


def shown(gradient: Variable | None, x: Variable) -> Variable | None:
    """Return the gradient of a Variable as one of an array like its own: ChainerX's, if it has one."""
    if gradient is None or type(x._array) is _ndarray or not is_chainerx_array(x._array):
        return gradient
    return _chainerx.variables.shown_on(gradient, x._array.device)


def select_gradients(function: FunctionNode, targets: tuple[int, ...], gxs: Any) -> tuple[Any, ...]:
    """Return one gradient per target out of what `FunctionNode.backward` returned; raises where that is malformed."""
    if type(gxs) is not tuple:
        if not isinstance(gxs, list):
            raise GradientTypeError(f"type of gradients returned from backward is incorrect: {function.label} must "
                                    f"return a tuple of variables, not {type(gxs).__name__}.")
        gxs = tuple(gxs)
    if len(gxs) == len(targets):
        return gxs
    inputs = function.inputs or ()
    if len(gxs) == len(inputs):
        return tuple([gxs[i] for i in targets])
    raise wrong_gradient(
        function, f"number of gradients returned from backward is incorrect: {len(gxs)} != expected {len(inputs)}")
