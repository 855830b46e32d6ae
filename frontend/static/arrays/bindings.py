"""Bindings of the params of a graph: arrays owned by links, parameters and others, looked up at every call."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...link.namespace import entries_of
from ...parameter import Parameter


@dataclass(frozen=True, eq=False)
class ParameterBinding:
    """A value that is whatever array ``parameter`` holds at the time of the call."""

    parameter: Parameter

    @property
    def holder(self) -> tuple[dict[str, Any], str]:
        """The dictionary and the key where the array stands."""
        return self.parameter.__dict__, "_array"

    def array(self) -> Any:
        """The array bound now."""
        return self.parameter._array


@dataclass(frozen=True, eq=False)
class StateBinding:
    """A value that is the persistent array ``name`` of ``link``."""

    link: Any
    name: str

    @property
    def holder(self) -> tuple[dict[str, Any], str]:
        """The dictionary and the key where the array stands."""
        return entries_of(self.link), self.name

    def array(self) -> Any:
        """The array bound now."""
        return entries_of(self.link)[self.name]


@dataclass(frozen=True, eq=False)
class ArrayBinding:
    """A value that is one array object: a buffer of side-effect code."""

    buffer: Any

    def array(self) -> Any:
        """The array bound now."""
        return self.buffer


@dataclass(frozen=True, eq=False)
class CallBinding:
    """A value that is the array which stood in a namespace when a call ran: the call may have put another one there.

    ``arguments`` are the call's, ``number`` is that of the param.
    """

    arguments: Any
    number: int

    def array(self) -> Any:
        """The array bound in that call."""
        return self.arguments.bound(self.number)


Binding = ParameterBinding | StateBinding | ArrayBinding
