"""A link that is one parameter."""

from __future__ import annotations

from typing import Any

from ... import parameter
from ...functions import identity
from ...link import Link

__all__ = ["Parameter"]


class Parameter(Link):
    """Holds a parameter and returns it, for chains that learn an array as it is.

    Args:
        array: The initial values.

    Attributes:
        W: The parameter.
    """

    def __init__(self, array: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.W = parameter.Parameter(array)

    def forward(self) -> Any:
        """Return a Variable with the parameter's array, whose gradient goes to the parameter."""
        return identity(self.W)
