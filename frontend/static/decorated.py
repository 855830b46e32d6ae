"""The type of decorated functions, for type checkers: signatures stay as they are, also those of methods."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from ..explanation import Explanation

if TYPE_CHECKING:
    from .function import StaticFunction

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", contravariant=True)


class Decorated(Protocol[P, R]):
    """A function decorated with ``static_graph``, as it is or bound to an object: called like the function itself.

    Attributes:
        static: The `StaticFunction` behind it.
        explain: A report on what was compiled of it: see ``model.static.explain``.
        is_static_function: True.
    """

    static: StaticFunction
    is_static_function: bool
    __name__: str
    __qualname__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def explain(self, what: str = ...) -> Explanation: ...
    @overload
    def __get__(self, instance: None, owner: Any = ..., /) -> Decorated[P, R]: ...
    @overload
    def __get__(self: Decorated[Concatenate[S, Q], R], instance: S, owner: Any = ..., /) -> Decorated[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = ..., /) -> Any: ...


class Decorator(Protocol):
    """The type of ``static_graph`` with options, a decorator that keeps signatures."""

    def __call__(self, fn: Callable[P, R], /) -> Decorated[P, R]: ...
