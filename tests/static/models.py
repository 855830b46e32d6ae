"""Models and records that several test modules trace."""
from __future__ import annotations

import dataclasses
from typing import Any

import kusari
import kusari.functions as F
import kusari.links as L


class Model(kusari.Chain):
    """Two layers; subclasses add a static method."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 4)
            self.m = L.Linear(4, 4)


def build(forward: Any, **attributes: Any) -> Any:
    """Return a model with a static method and attributes."""
    model = type("Decorated", (Model,), {"forward": forward})()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


class Normalized(Model):
    """Has statistics besides."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.norm = L.BatchNormalization(4)


class Storing(Model):
    """Keeps what it computes on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.h: Any = None
        self.parts: Any = None
        self.scale = 1.0

    def body(self, x: Any) -> Any:
        self.h = F.tanh(self.l(x))
        self.parts = [self.h * 2, self.m(self.h)]
        return F.sum(F.sigmoid(self.parts[1]) * self.parts[0]) * self.scale


def gradients(model: Any, *more: Any) -> Any:
    """Return copies of the gradients of parameters by name, and of Variables."""
    grads = [(n, None if p.grad is None else p.grad.copy()) for n, p in sorted(model.namedparams())]
    return grads, [None if v is None or v.grad is None else v.grad.copy() for v in more]


@dataclasses.dataclass
class Settings:
    """A record that is read."""

    k: float = 1.0
    names: list[str] = dataclasses.field(default_factory=list)
    inner: Any = None

    __match_args__ = ("k", "names")


@dataclasses.dataclass
class Batch:
    """A record with arrays, that is stored into."""

    x: Any
    seen: int = 0
    h: Any = None
    names: list[str] = dataclasses.field(default_factory=list)
