"""Dataclasses and classes of tuples: made in the call, whose methods run then, and given with more than fields."""
from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
from static.models import build
from static.observed.harness import check

import kusari.functions as F

SCALE = [1.0]
LOG: list[Any] = []


@dataclasses.dataclass
class Plain:
    x: Any
    k: Any = 1.0


@dataclasses.dataclass
class Scaled:
    x: Any

    def __post_init__(self) -> None:
        self.x = self.x * SCALE[0] * 2
        LOG.append(len(LOG))


@dataclasses.dataclass
class Inherited(Scaled):
    k: dataclasses.InitVar[float] = 3.0

    def __post_init__(self, k: float) -> None:  # type: ignore[override]
        super().__post_init__()
        self.more = self.x * k


@dataclasses.dataclass
class ByFactory:
    x: Any
    items: list[Any] = dataclasses.field(default_factory=list)
    k: float = dataclasses.field(default_factory=lambda: SCALE[0])


@dataclasses.dataclass
class FilledLater:
    x: Any
    y: Any = dataclasses.field(init=False, default=None)


@dataclasses.dataclass
class Unseen:
    x: Any
    k: float = dataclasses.field(init=False, default_factory=lambda: SCALE[0])


@dataclasses.dataclass
class Stores:
    x: Any

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * SCALE[0])


@dataclasses.dataclass(init=False)
class OwnInit:
    x: Any

    def __init__(self, a: Any, b: Any) -> None:
        self.x = a + b


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", self.x * SCALE[0])


class InSlots:
    """As ``dataclass(frozen=True, slots=True)`` makes it."""

    __slots__ = ("x", "k")

    def __init__(self, x: Any, k: Any) -> None:
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "k", k)

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(name)


InSlots.__annotations__ = {"x": Any, "k": Any}
dataclasses.dataclass(init=False)(InSlots)


class Doubled(collections.namedtuple("Doubled", "x k")):
    def __new__(cls, x: Any, k: Any) -> Any:
        return super().__new__(cls, x * 2, k + 1)


class Noted(collections.namedtuple("Noted", "x k")):
    """With a dictionary."""


class Longer(tuple[Any, ...]):
    def __new__(cls, items: Any) -> Any:
        return super().__new__(cls, (*items, 7))


def noted(x: Any, **more: Any) -> Any:
    for name, value in more.items():
        setattr(x, name, value)
    return x


def itself(x: Any) -> Any:
    x.me = x
    return x


MADE: dict[str, Callable[[Any], Any]] = {
    "__post_init__": Scaled,
    "__post_init__ of a base": Inherited,
    "in a list": lambda h: [Scaled(h), h],
    "factories": ByFactory,
    "factories not used": lambda h: ByFactory(h, [1], k=2.0),
    "a field that is filled in later": lambda h: noted(FilledLater(h), y=h * 2),
    "a field that is not filled in": FilledLater,
    "a factory of no argument": Unseen,
    "__setattr__": Stores,
    "__init__": lambda h: OwnInit(h, h),
    "frozen": Frozen,
    "slots": lambda h: InSlots(h, SCALE[0]),
    "more attributes": lambda h: noted(Plain(h), more=h * 2, number=3),
    "twice": lambda h: [d := Plain(h), [1], d, [2]],
    "itself": lambda h: itself(Plain(h)),
    "replaced": lambda h: dataclasses.replace(ByFactory(h), x=h * 2),
    "read": lambda h: F.tanh((d := ByFactory(h)).x) * d.k,
    "a tuple's __new__": lambda h: Doubled(h, 1),
    "of any length": lambda h: {"a": Longer([h])},
    "attributes of a tuple": lambda h: noted(Noted(h, 1), more=3),
    "of a function": lambda h: types.SimpleNamespace(x=h),
}
GIVEN: dict[str, tuple[Callable[[Any, float], Any], Callable[[Any, Any], Any]]] = {
    "more attributes": (lambda x, k: noted(Plain(x), more=k), lambda s, a: s.l(a.x) * a.more),
    "attributes of a tuple": (lambda x, k: noted(Noted(x, 1), more=k), lambda s, a: s.l(a.x) * a.more),
    "a field that is filled in later": (lambda x, k: noted(FilledLater(x), y=k), lambda s, a: s.l(a.x) * a.y),
    "slots": (InSlots, lambda s, a: s.l(a.x) * a.k),
    "a subclass with more": (lambda x, k: noted(Inherited(x), n=k), lambda s, a: s.l(a.x) * a.n + F.sum(a.more)),
}


@pytest.mark.parametrize("name", MADE)
def test_made(name: str) -> None:
    def program(decorate: Any) -> Any:
        model = build(decorate(lambda s, x: MADE[name](F.tanh(s.l(x)))))
        LOG.clear()

        def call(i: int, x: Any) -> Any:
            SCALE[0] = 1.0 + i // 3
            return model(x), list(LOG)
        return call

    check(program)


@pytest.mark.parametrize("name", GIVEN)
def test_given(name: str) -> None:
    make, body = GIVEN[name]

    def program(decorate: Any) -> Any:
        model = build(decorate(body))
        SCALE[0] = 1.0
        return lambda i, x: model(make(x, 1.0 + i // 3))

    check(program)
