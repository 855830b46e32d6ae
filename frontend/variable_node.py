"""`VariableNode`: a variable's place in the computational graph."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .function_node import FunctionNode
    from .variable import Variable


class VariableNode:
    """The node of a variable in the backward graph.

    The graph is made of nodes so that arrays that no gradient needs can be freed: a node refers to its variable weakly,
    and holds the array only when a function retained it.

    Attributes:
        dtype: Data type of the variable's array.
        shape: Shape of the variable's array.
        data: The array, where it is retained; else None.
        name (str): The variable's name, or None.
        rank (int): 0 for a leaf, else one more than the rank of the function that made it.
        creator_node (FunctionNode): The function that made it, or None.
        requires_grad (bool): Whether gradients flow to it.
        backprop_ids (set): The graphs of ChainerX in which its array wants a gradient; None where none was named.
    """

    new_variable: ClassVar[Callable[[Any, bool], Variable]]  # `output_variable`, which its module installs
    data: Any = None
    name: str | None = None
    rank = 0
    creator_node: FunctionNode | None = None
    backprop_ids: Any = None
    _variable: weakref.ref[Variable] | None = None

    def __init__(self, variable: Variable, name: str | None = None) -> None:
        array = variable._array
        self._variable = weakref.ref(variable)
        self.requires_grad = variable._requires_grad
        self.dtype: Any = None if array is None else array.dtype
        self.shape: Any = None if array is None else array.shape
        if name is not None:
            self.name = name

    @classmethod
    def of_array(cls, array: Any) -> VariableNode:
        """Return the node of an array, or None, that was given to a function as it is."""
        node = cls.__new__(cls)
        node.requires_grad = False
        node.dtype = None if array is None else array.dtype
        node.shape = None if array is None else array.shape
        return node

    @property
    def creator(self) -> Any:
        """The function that made the variable: a `Function` where it is of the old style."""
        node: Any = self.creator_node
        return node.function if node is not None and node.is_adapter else node

    @creator.setter
    def creator(self, function: Any) -> None:
        self.set_creator(function)

    @property
    def grad(self) -> Any:
        """The gradient array of the variable, None when the variable is gone."""
        variable = self.get_variable_or_none()
        return None if variable is None else variable.grad

    @property
    def grad_var(self) -> Any:
        """The gradient variable of the variable, None when the variable is gone."""
        variable = self.get_variable_or_none()
        return None if variable is None else variable.grad_var

    @property
    def label(self) -> str:
        """Shape and data type in a few letters, for drawings of graphs."""
        if self.shape == ():
            return str(self.dtype)
        shown = "None" if self.shape is None else ", ".join(map(str, self.shape))
        return f"({shown}), {self.dtype}"

    def get_variable(self) -> Variable:
        """Return the variable of this node; a new one on the same node when the old one is gone."""
        variable = self.get_variable_or_none()
        if variable is None:
            variable = VariableNode.new_variable(self.data, self.requires_grad)
            if self.name is not None:
                variable._name = self.name
            variable._node = self
            self._variable = weakref.ref(variable)
        return variable

    def get_variable_or_none(self) -> Variable | None:
        """Return the variable of this node, or None when it is gone."""
        return None if self._variable is None else self._variable()

    def take(self, variable: Variable) -> None:
        """Become the node of another variable."""
        self._variable = weakref.ref(variable)

    def set_creator(self, creator: Any) -> None:
        """Set the function that made the variable (a `Function` or a `FunctionNode`); None for no function."""
        if creator is not None and not hasattr(creator, "backward_accumulate"):
            creator = creator.node
        self.set_creator_node(creator)

    def set_creator_node(self, creator_node: FunctionNode | None) -> None:
        """Set the function node that made the variable; None for no function."""
        self.creator_node = creator_node
        if creator_node is not None:
            self.rank = creator_node.rank + 1

    def unchain(self) -> None:
        """Forget the function that made the variable."""
        self.creator_node = None

    def retain_data(self) -> None:
        """Hold on to the variable's array.

        Raises:
            RuntimeError: The variable is gone, and its array with it.
        """
        variable = self.get_variable_or_none()
        if variable is None:
            raise RuntimeError("cannot retain variable data: the variable has been already released")
        self.data = variable._array

    def update_type(self, array: Any) -> None:
        """Follow the variable's array when it is replaced."""
        self.dtype = None if array is None else array.dtype
        self.shape = None if array is None else array.shape
        if self.data is not None:
            self.data = array
        creator = self.creator_node
        if creator is not None and creator.array_assigned is not None:
            creator.array_assigned(self, array)

    def __reduce__(self) -> Any:
        raise TypeError("A VariableNode cannot be pickled or copied; pickle the array of its variable instead.")
