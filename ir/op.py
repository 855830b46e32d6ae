"""Ops: frozen records of callables, made by the frontend and only read below it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from .types import Type

Attrs = Mapping[str, Any]


class Trait(Flag):
    """Properties of an op, which passes ask for instead of its name."""

    NONE = 0
    ELEMENTWISE = auto()  # one scalar expression applied at every point, NumPy broadcasting
    REDUCTION = auto()    # removes axes
    VIEW = auto()         # elements that follow each other in its input's buffer, which it shares
    RANDOM = auto()       # draws from a generator: never merged, moved across other draws, or dropped
    WRITES = auto()       # changes state outside the graph: never dropped, kept in order
    OPAQUE = auto()       # runs Python: kept in order with WRITES, RANDOM and other OPAQUE nodes
    CONFINED = auto()     # OPAQUE, but its Python reads no state of the graph, and keeps none of its operands
    FILLS = auto()        # OPAQUE, and its function also takes arrays for its outputs, which it fills and returns


EFFECTS = Trait.RANDOM | Trait.WRITES | Trait.OPAQUE


@dataclass(frozen=True, eq=False)
class Op:
    """All the facts of an operation; identity is the record itself.

    ``call(attrs, *arrays)`` returns a tuple of arrays (the definition, in NumPy or CuPy);
    ``types(attrs, *types)`` returns the output types, where they can be inferred;
    ``lower(b, attrs, *values)`` decomposes a node with a ``Builder`` into primitives, or is None;
    ``onnx(g, attrs, *names)`` emits ONNX nodes, or is None;
    ``key(attrs)`` is a hashable form of the attributes, for common subexpressions and printing.
    """

    name: str
    call: Callable[..., tuple[Any, ...]]
    traits: Trait = Trait.NONE
    types: Callable[..., tuple[Type, ...]] | None = None
    lower: Callable[..., tuple[Any, ...]] | None = None
    onnx: Callable[..., Any] | None = None
    key: Callable[[Attrs], Any] | None = None
    # The traits that passes ask for at every node, as plain attributes: sets of flags take their time.
    is_view: bool = field(init=False)
    is_opaque: bool = field(init=False)
    is_confined: bool = field(init=False)
    fills: bool = field(init=False)
    writes: bool = field(init=False)
    has_effect: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_view", Trait.VIEW in self.traits)
        object.__setattr__(self, "is_opaque", Trait.OPAQUE in self.traits)
        object.__setattr__(self, "is_confined", Trait.CONFINED in self.traits)
        object.__setattr__(self, "fills", Trait.FILLS in self.traits)
        object.__setattr__(self, "writes", Trait.WRITES in self.traits)
        object.__setattr__(self, "has_effect", bool(self.traits & EFFECTS))

    def __repr__(self) -> str:
        return f"<op {self.name}>"
