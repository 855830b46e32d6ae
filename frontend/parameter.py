"""`Parameter`: a variable that a link owns and an optimizer updates."""
from __future__ import annotations

import weakref
from typing import Any

import numpy

from . import backend, initializers
from . import tape as _tape
from . import variable as _variable
from .dtypes import get_dtype
from .epochs import Arrays
from .errors import UninitializedParameterError
from .utils.arrays import is_array
from .variable import Variable
from .variable_node import VariableNode

_NO_SHAPE = (
    "{} has no {} yet: the parameter{} is not initialized. "
    "Call its link once with real data, or call initialize(shape)."
)


_set_array: Any = Variable.array.fset


class Parameter(Variable):
    """A variable that can be registered with a link.

    Args:
        initializer: A `kusari.Initializer`, a scalar, or an array. An array without `shape` becomes the values
            themselves; None fills with NaN.
        shape (int or tuple of ints): The shape. None leaves the parameter uninitialized until `initialize`.
        name (str): Its name.

    Attributes:
        initializer: What fills the array.
        update_rule: The update rule that an optimizer has set, or None.

    Example:
        >>> import kusari
        >>> b = kusari.Parameter(0, name="b")
        >>> b.is_initialized
        False
        >>> b.initialize((2,))
        >>> b
        variable b([0., 0.])
    """

    initializer: Any = None
    update_rule: Any = None
    # Whether a compiled static function computes its gradients: then its update is compiled as well.
    is_static = False
    # What the gradient becomes when the parameter is initialized: a fill value, or None for no gradient.
    _grad_fill: float | None = numpy.nan
    _initial_device: Any = None
    # References to the parameters that `copy.copy` has made of each other: they share their array, also one to come.
    _sharing: list[weakref.ref[Parameter]] | None = None

    def __init__(self, initializer: Any = None, shape: Any = None, name: str | None = None, *,
                 layout: None = None) -> None:  # fmt: skip
        if _tape.current.tape is not None:
            _tape.current.tape.made(self)
        if is_array(initializer) and shape is None:
            super().__init__(initializer, name=name)
            self.initializer = initializer
            self._grad_fill = None
            return
        self.initializer = _as_initializer(initializer)
        super().__init__(name=name)
        if shape is not None:
            self.initialize(shape)
            self._grad_fill = None

    def _set_array(self, value: Any) -> None:
        _set_array(self, value)
        if self._sharing is not None:
            self._share(value)

    array = data = raw_array = Variable.array.setter(_set_array)

    @property
    def is_initialized(self) -> bool:
        """Whether the parameter has its array."""
        return self._array is not None

    @property
    def dtype(self) -> Any:
        """The data type of the array, or the one it will have.

        Raises:
            RuntimeError: The parameter is not initialized, and its initializer has no attribute ``dtype``.
        """
        if self._array is not None:
            return self._array.dtype
        if not hasattr(self.initializer, "dtype"):
            raise RuntimeError("Parameter has no dtype yet: it is not initialized, and its initializer names none.")
        return get_dtype(self.initializer.dtype)

    def _uninitialized(self, what: str) -> UninitializedParameterError:
        name = "" if self._name is None else f" {self._name!r}"
        return UninitializedParameterError(_NO_SHAPE.format("Parameter", what, name))

    # `array.shape` of an uninitialized parameter would fail with a riddle about NoneType.

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; raises `UninitializedParameterError` while it is unknown."""
        if self._array is None:
            raise self._uninitialized("shape")
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions; raises `UninitializedParameterError` while it is unknown."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements; raises `UninitializedParameterError` while it is unknown."""
        if self._array is None:
            raise self._uninitialized("size")
        return self._array.size

    @property
    def grad(self) -> Any:
        """The gradient array; None when there is none.

        Raises:
            RuntimeError: The parameter is not initialized, and its gradient was not cleared or set.
        """
        if self._grad is None and self._array is None and self._grad_fill is not None and self._grad_var is None:
            raise RuntimeError(
                "Cannot retrieve Variable.grad. Either it must be set manually or Variable.cleargrad() must be "
                "called beforehand."
            )
        return self._gradient()

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            value = self._check_gradient(value)
        self._grad = value
        self._grad_var = None
        if value is not None:
            self._grad_fill = None

    @property
    def device(self) -> backend.Device:
        """The device the array is on, or will be."""
        chosen = self._initial_device
        if chosen is not None and (self._array is None or chosen.is_array_supported(self._array)):
            return chosen
        return backend.get_device_from_array(self._array)

    def cleargrad(self) -> None:
        """Remove the gradient, also that of a parameter initialized later."""
        self._grad = None
        self._grad_var = None
        if self._array is None:
            self._grad_fill = None

    def zerograd(self) -> None:
        """Fill the gradient with zeros, also that of a parameter initialized later."""
        if self._array is None:
            self._grad_fill = 0.0
        else:  # without a warning: updates that fill gradients with zeros do it each time
            self.grad = self.xp.zeros_like(self._array)

    def to_device(self, device: Any) -> None:
        """Move array and gradient to a device; an uninitialized parameter will be made there."""
        device = backend.get_device(device)
        if self._sharing is not None and device != self.device:
            self._sharing[:] = [other for other in self._sharing if other() is not self]
            self._sharing = None
        self._initial_device = device
        super().to_device(device)

    def initialize(self, shape: Any) -> None:
        """Make the array of an uninitialized parameter; or a new one, with which there is no gradient.

        Args:
            shape (int or tuple of ints): The shape.
        """
        shape = (shape,) if isinstance(shape, (int, numpy.integer)) else tuple(shape)
        device = self.device
        with device.fallback_device.create_context():
            xp = device.fallback_device.xp
            array = xp.empty(shape, dtype=get_dtype(getattr(self.initializer, "dtype", None)))
            if _tape.current.tape is None:
                self.initializer(array)
            else:
                _tape.current.tape.initialize(self, array)
            grad = None if self._grad_fill is None else xp.full_like(array, self._grad_fill)
        self._array = array = device.send(array)
        Arrays.version = object()
        self.node.update_type(array)
        if self._sharing is not None:
            self._share(array)
        self._grad, self._grad_var = device.send(grad), None

    def update(self) -> None:
        """Update the values with the update rule, where there is one."""
        if self.update_rule is not None:
            self.update_rule.update(self)

    def copydata(self, var: Variable) -> None:
        """Copy the values of another parameter; whichever of the two is uninitialized is initialized first."""
        if var._array is None:
            if self._array is None or not isinstance(var, Parameter):
                return
            var.initialize(self._array.shape)
        elif self._array is None:
            self.initialize(var._array.shape)
        super().copydata(var)

    def addgrad(self, var: Variable) -> None:
        """Add another gradient to this one, initializing the parameter where necessary."""
        if self._array is None and var._array is not None:
            self.cleargrad()
            self.initialize(var._array.shape)
        super().addgrad(var)

    def _share(self, array: Any) -> None:
        for reference in self._sharing or ():
            other = reference()
            if other is not None and other is not self:
                other._array = array
                other._grad_fill = None
                other.node.update_type(array)

    def __copy__(self) -> Variable:
        """Return a parameter that shares the array: what one is initialized with or assigned, the other has, too."""
        copied: Any = super().__copy__()
        if self._sharing is None:
            self._sharing = [weakref.ref(self)]
        self._sharing[:] = [*(other for other in self._sharing if other() is not None), weakref.ref(copied)]
        copied._sharing = self._sharing
        return copied

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_sharing", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if _tape.current.tape is not None:
            _tape.current.tape.made(self)
        self.__dict__.update(state)
        Arrays.version = object()
        self._node = VariableNode(self, self._name)


def _as_initializer(initializer: Any) -> Any:
    if initializer is None:
        return initializers.NaN()
    if numpy.isscalar(initializer) or is_array(initializer):
        return initializers.Constant(initializer)
    return initializer


_variable.Parameter = Parameter
