"""`Variable`: an array that remembers how it was computed."""
from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy

from . import backend, tape
from .backends import cuda
from .backends.chainerx import is_chainerx_array
from .configuration import config
from .epochs import Arrays, Given
from .errors import GradientError, GradientTypeError
from .graph_walks import unchain_behind
from .lazy_array import LazyArray
from .operators import Operators
from .pytorch_names import VARIABLE, answer
from .utils.arrays import add_arrays, check_array, is_array
from .variable_devices import VariableDevices
from .variable_node import VariableNode
from .variable_text import VariableText

__all__ = ["Variable", "VariableNode", "as_array", "as_variable"]

# Set by the modules that build on this one: the backward engine, the module kusari.functions, and the class of which
# Chainer's programs know that it is here.
backward_of: Any = None
functions: Any = None
Parameter: Any = None

_ONE_ELEMENT = "Treating a variable of one element as a scalar in Variable.backward is deprecated. Use F.squeeze first."
_UNCOMPARABLE = "Variables do not support {} operator. You could use `array` attribute instead."


class Variable(VariableText, VariableDevices, Operators):
    """An array with the graph of the functions that computed it.

    Operators, indexing and the functions of `kusari.functions` make new variables out of it; `backward` then computes
    gradients with respect to all variables it was computed from.

    Args:
        data (numpy.ndarray or cupy.ndarray): The array; None makes an uninitialized variable.
        name (str): A name, shown in messages and drawings.
        grad (numpy.ndarray or cupy.ndarray): The initial gradient.
        requires_grad (bool): Whether gradients are computed for it. Integer variables may have it too, but no
            function gives them any.

    Raises:
        TypeError: `data` is not an array.

    Example:
        >>> import numpy as np
        >>> from kusari import Variable
        >>> x = Variable(np.array([1, 2, 3], np.float32))
        >>> y = x**2 - 2 * x + 1
        >>> y.grad = np.ones(3, np.float32)
        >>> y.backward()
        >>> x.grad
        array([0., 2., 4.], dtype=float32)
    """

    # Defaults live in the class: an output of a function only stores what differs.
    __array_priority__ = 200
    __array_ufunc__ = None
    _array: Any
    _grad: Any = None
    _grad_var: Variable | None = None
    _name: str | None = None
    _node: VariableNode | None = None
    _requires_grad = True
    _loss_scale: float | None = None

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        name = kwargs.pop("name", None)
        grad = kwargs.pop("grad", None)
        self._requires_grad = bool(kwargs.pop("requires_grad", True))
        if "volatile" in kwargs:
            raise ValueError("volatile argument is not supported anymore. Use kusari.using_config")
        if kwargs:
            raise TypeError(f"__init__() got unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        if data is not None:
            check_array(data, "The data of a Variable")
        self._array = data
        if name is not None:
            self._name = name
        self._node = VariableNode(self, name)
        if type(data) is not numpy.ndarray and is_chainerx_array(data):
            self._join(data)
        if grad is not None:
            self.grad = grad

    # The array

    @property
    def array(self) -> Any:
        """The array of the values; None when uninitialized."""
        if tape.current.tape is not None:
            return tape.current.tape.take(self)
        return self._array

    @array.setter
    def array(self, value: Any) -> None:
        if value is not None:
            check_array(value, "The array of a Variable")
        if value is not self._array:
            self._array = value
            Arrays.version = object()
        if self._node is not None:
            self._node.update_type(value)

    data = raw_array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return self._array.size

    @property
    def dtype(self) -> Any:
        """The data type of the array."""
        return self._array.dtype

    @property
    def xp(self) -> Any:
        """The array module, ``numpy`` or ``cupy``."""
        return backend.get_array_module(self._array)

    @property
    def device(self) -> backend.Device:
        """The device the array is on."""
        return backend.get_device_from_array(self._array)

    @property
    def layout(self) -> None:
        """The memory layout; None, which means the ordinary one."""
        return None

    def item(self) -> Any:
        """Return the only element as a Python number.

        Raises:
            ValueError: There is not exactly one element.
        """
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "item()")
        return self._array.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "__array__")
        return numpy.array(self._array, dtype, copy=copy)

    def __float__(self) -> float:
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "float()")
        return float(self._array.item())

    def __int__(self) -> int:
        if tape.current.tape is not None:
            tape.current.tape.escape(self, "int()")
        return int(self._array.item())

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Variable]:
        for index in range(len(self._array)):
            yield self[index]  # type: ignore[index]

    def __bool__(self) -> bool:
        raise TypeError("Variables cannot be evaluated as Python bool.")

    __nonzero__ = __bool__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format("=="))
    def __ne__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format("!="))
    def __lt__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format("<"))
    def __le__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format("<="))
    def __gt__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format(">"))
    def __ge__(self, other: object) -> Any: raise TypeError(_UNCOMPARABLE.format(">="))

    # The gradient

    @property
    def grad(self) -> Any:
        """The gradient array; None when there is none."""
        return self._gradient()

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            value = self._check_gradient(value)
        self._grad = value
        self._grad_var = None

    def _gradient(self) -> Any:
        grad_var = self._grad_var
        if grad_var is not None:
            return grad_var._array
        grad = self._grad
        if type(grad) is LazyArray:
            grad = self._grad = grad.array()
        return grad

    @property
    def grad_var(self) -> Variable | None:
        """The gradient as a variable, with its own graph after ``backward(enable_double_backprop=True)``."""
        if self._grad_var is None and self.grad is not None:
            self._grad_var = Variable(self._grad)
        return self._grad_var

    @grad_var.setter
    def grad_var(self, value: Variable | None) -> None:
        if value is not None:
            if not isinstance(value, Variable):
                raise GradientTypeError(f"grad_var must be a Variable or None, not {type(value).__name__}.")
            array = self._check_gradient(value._array)
            if array is not value._array:
                node, value = value.node, output_variable(array, value._requires_grad)
                value._node = node
        self._grad = None
        self._grad_var = value

    def _check_gradient(self, grad: Any) -> Any:
        array, node = self._array, self._node
        Given.ever = Given.ever or node is not None and node.creator_node is not None
        if not is_array(grad):
            raise GradientTypeError(
                f"Type of grad is invalid:\nExpected: {numpy.ndarray} or cupy.ndarray\nActual: {type(grad)}")
        if array is None:
            return grad
        if type(array) is not numpy.ndarray and is_chainerx_array(array):
            grad = backend.ChainerxDevice(array.device).send(grad)  # the engine computes with what lies behind
        if isinstance(array, numpy.ndarray) != isinstance(grad, numpy.ndarray):
            raise GradientTypeError(f"Type of data and grad mismatch\ngrad: {type(grad)} != data: {type(array)}")
        if grad.dtype != array.dtype:
            raise GradientTypeError(f"Dtype of data and grad mismatch\ngrad: {grad.dtype} != data: {array.dtype}")
        if grad.shape != array.shape:
            raise GradientError(f"Shape of data and grad mismatch\ngrad: {grad.shape} != data: {array.shape}")
        return grad

    def cleargrad(self) -> None:
        """Remove the gradient; the next `backward` starts afresh."""
        self._grad = None
        self._grad_var = None

    def zerograd(self) -> None:
        """Fill the gradient with zeros; `cleargrad` does the same faster (deprecated)."""
        warnings.warn("Variable.zerograd is deprecated. Use Variable.cleargrad instead.", DeprecationWarning, 2)
        self.grad = None if self._array is None else self.xp.zeros_like(self._array)

    def addgrad(self, var: Variable) -> None:
        """Add the gradient of another variable to this one's; a missing one counts as zero.

        Args:
            var (Variable): Where to take the gradient from; it may be on another device.
        """
        other = var.grad
        if other is None:
            return
        if self._array is not None:
            other = self.device.send(other)
        mine = self.grad
        if mine is None:
            with cuda.get_device_from_array(other):
                self.grad = other.copy()
        else:
            self.grad = add_arrays(mine, other)

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` computes a gradient for it."""
        return self._requires_grad

    def copydata(self, var: Variable) -> None:
        """Copy the values of another variable into this one's array.

        Args:
            var (Variable): Where to take the values from; it may be on another device.
        """
        if tape.current.tape is not None:
            tape.current.tape.escape(var, "copydata()")
        if var._array is None:
            return
        if self._array is None:
            self.array = self.device.send(var._array).copy()
        else:
            backend.copyto(self._array, var._array)

    # The graph

    @property
    def node(self) -> VariableNode:
        """The variable's node in the graph."""
        if self._node is None:
            self._node = VariableNode(self, self._name)
        return self._node

    @property
    def name(self) -> str | None:
        """The variable's name."""
        return self._name

    @name.setter
    def name(self, value: str | None) -> None:
        self._name = value
        if self._node is not None:
            self._node.name = value

    @property
    def label(self) -> str:
        """Shape and data type in a few letters, for drawings of graphs."""
        return self.node.label

    @property
    def rank(self) -> int:
        """The length of the longest path from a leaf to this variable."""
        return 0 if self._node is None else self._node.rank

    @property
    def creator(self) -> Any:
        """The function that made it (a `Function` where it is of the old style), or None."""
        return None if self._node is None else self._node.creator

    @creator.setter
    def creator(self, function: Any) -> None:
        self.node.set_creator(function)

    @property
    def creator_node(self) -> Any:
        """The `FunctionNode` that made it, or None."""
        return None if self._node is None else self._node.creator_node

    @creator_node.setter
    def creator_node(self, function: Any) -> None:
        self.node.set_creator_node(function)

    def set_creator(self, gen_func: Any) -> None:
        """Set the function that made it.

        Args:
            gen_func (Function or FunctionNode): The function.
        """
        self.node.set_creator(gen_func)

    def set_creator_node(self, fnode: Any) -> None:
        """Set the function node that made it.

        Args:
            fnode (FunctionNode): The function node.
        """
        self.node.set_creator_node(fnode)

    def retain_data(self) -> None:
        """Let the variable's node hold on to the array."""
        self.node.data = self._array

    def unchain(self) -> None:
        """Cut the graph right behind this variable."""
        function = self.creator_node
        if function is not None and function.expand is not None and len(function.outputs or ()) > 1:
            function.cut(self._node, False)  # other outputs may depend on this one
        elif self._node is not None:
            self._node.unchain()

    def unchain_backward(self) -> None:
        """Cut the graph everywhere behind this variable: nothing before it is kept any longer."""
        unchain_behind(self.node)

    def backward(self, retain_grad: bool = False, enable_double_backprop: bool = False,
                 loss_scale: float | None = None) -> None:  # fmt: skip
        """Compute gradients of this variable with respect to all variables it was computed from.

        They are added to the ``grad`` of variables that no function made (parameters, inputs). A variable without axes
        starts with gradient 1; any other needs its `grad` to be set first.

        Args:
            retain_grad (bool): Keep the gradients of intermediate variables too.
            enable_double_backprop (bool): Record the computation, so that gradients can be differentiated.
            loss_scale (float): The initial gradient instead of 1, against underflow in float16.

        Raises:
            ValueError: The variable has several elements and no gradient; or a function returned wrong gradients.

        Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.Variable.html
        """
        if self._array is not None and self._array.ndim and self._array.size == 1 and self.grad is None:
            warnings.warn(_ONE_ELEMENT, DeprecationWarning, 2)
        if tape.updates:
            tape.forget(sys._getframe(1))
        function = self.creator_node
        plain = not (retain_grad or enable_double_backprop or loss_scale or tape.own_hooks() or config.debug)
        if plain and function is not None and function.backward_from is not None and function.backward_from(self):
            return
        backward_of(self, retain_grad, enable_double_backprop, loss_scale)

    # Shapes

    def reshape(self, *shape: Any) -> Variable:
        """Return a variable of another shape with the same elements, see `kusari.functions.reshape`."""
        return functions.reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def transpose(self, *axes: Any) -> Variable:
        """Return a variable with permuted axes, see `kusari.functions.transpose`."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            return functions.transpose(self, None if axes[0] is None else tuple(axes[0]))
        return functions.transpose(self, axes or None)

    @property
    def T(self) -> Variable:
        """The variable with its axes reversed."""
        return self.transpose()

    def mean(self, axis: Any = None, *, weights: Any = None, keepdims: bool = False) -> Variable:
        """Return the (weighted) average over axes, see `kusari.functions.average`."""
        return functions.average(self, axis, weights, keepdims)

    # Copying

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_grad"] = self._gradient()
        state.pop("_node", None)
        state.pop("_grad_var", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._node = VariableNode(self, self._name)

    def __copy__(self) -> Variable:
        """Return a variable of the same array and no history."""
        copied = type(self).__new__(type(self))
        copied.__setstate__(self.__getstate__())
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied


answer(Variable, VARIABLE)


def output_variable(array: Any, requires_grad: bool) -> Variable:
    """Return a variable without looking at its array: for arrays that functions computed."""
    variable = Variable.__new__(Variable)
    variable._array = array
    variable._requires_grad = requires_grad
    return variable


VariableNode.new_variable = output_variable


def as_variable(obj: Any) -> Variable:
    """Return `obj` as a variable: itself where it is one, else one that requires no gradient.

    Args:
        obj (Variable, numpy.ndarray or cupy.ndarray): A variable or an array.
    """
    if isinstance(obj, Variable):
        return obj
    if type(obj) is numpy.ndarray or not is_chainerx_array(obj):
        return Variable(obj, requires_grad=False)
    return Variable(obj, requires_grad=obj.is_backprop_required())


def as_array(obj: Any) -> Any:
    """Return the array of a variable, and anything else as it is."""
    return obj.array if isinstance(obj, Variable) else obj
