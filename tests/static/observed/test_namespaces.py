"""Attributes of links that change behind Python's back: in ``__dict__``, by serializers, with copies."""
from __future__ import annotations

import copy
import functools
import io
import pickle
from typing import Any

import numpy as np
import pytest
from static.models import Model, build
from static.observed.harness import Rows, before

import kusari
import kusari.functions as F
from kusari import Link, static_graph
from kusari.link.namespace import is_exposed

ROWS = Rows()


@ROWS.replays
def an_entry(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.k), k=1.0)
    return before(model, lambda i: vars(model).__setitem__("k", 1.0 + i // 3))


@ROWS.replays
def an_entry_of_a_part(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.l.k))
    model.l.k = 1.0
    return before(model, lambda i: model.l.__dict__.update(k=1.0 + i // 3))


@ROWS.replays
def an_entry_by_a_namespace_asked_for_early(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.k), k=1.0)
    entries = vars(model)
    return before(model, lambda i: entries.__setitem__("k", 1.0 + i // 3))


@ROWS.replays
def an_entry_through_an_assignment_in_every_call(decorate: Any) -> Any:
    """Every store gives attributes another version."""
    model = build(decorate(lambda s, x: (setattr(s, "last", s.l(x) * s.k), s.last)[1]), k=1.0, last=None)
    return before(model, lambda i: vars(model).__setitem__("k", 1.0 + i // 3))


class Cached(Model):
    scale = 1.0

    @functools.cached_property
    def k(self) -> float:
        return self.scale


@ROWS.replays
def a_cached_property_that_is_dropped(decorate: Any) -> Any:
    class Decorated(Cached):
        forward = decorate(lambda s, x: s.l(x) * s.k)
    model = Decorated()

    def change(i: int) -> None:
        model.scale = 1.0 + i // 3
        if i in (3, 6):
            model.__dict__.pop("k")
    return before(model, change)


@ROWS.replays
def another_namespace(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.k), k=1.0)

    def change(i: int) -> None:
        if i in (3, 6):
            model.__dict__ = dict(vars(model), k=float(i))
        elif i == 5:
            vars(model)["k"] = 7.0
    return before(model, change)


@ROWS.replays
def a_persistent_number_that_is_loaded(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: s.l(x) * s.k))
    model.add_persistent("k", 1.0)
    files = []
    for k in (2.0, 3.0):
        model.k = k
        files.append(io.BytesIO())
        kusari.serializers.save_npz(files[-1], model)

    def change(i: int) -> None:
        if i in (3, 6):
            files[i // 6].seek(0)
            kusari.serializers.load_npz(files[i // 6], model)
    return before(model, change)


@ROWS.replays
def a_persistent_number_that_is_copied(decorate: Any) -> Any:
    model, other = build(decorate(lambda s, x: s.l(x) * s.k)), build(lambda s, x: x)
    for link in (model, other):
        link.add_persistent("k", 1.0)

    def change(i: int) -> None:
        other.k = 1.0 + i // 3
        model.copyparams(other)
    return before(model, change)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)


class Pickled(Model):
    @static_graph
    def forward(self, x: Any) -> Any:
        return self.l(x)


@pytest.mark.parametrize("use", [
    lambda link: link(np.ones((3, 4), "f")), copy.copy, copy.deepcopy, lambda link: link.copy("share"), pickle.dumps,
    lambda link: pickle.loads(pickle.dumps(link)), lambda link: kusari.serializers.save_npz(io.BytesIO(), link), str,
    lambda link: [*link.namedparams(), *link.links()], lambda link: kusari.optimizers.SGD().setup(link).update(
        lambda: F.sum(link.l(np.ones((3, 4), "f")))), lambda link: kusari.Sequential(link, F.relu).copy()],
    ids=["call", "copy", "deepcopy", "share", "dumps", "loads", "save", "str", "walk", "update", "sequential"])
def test_uses_that_expose_no_link(use: Any) -> None:
    """Guards of links whose ``__dict__`` nobody has asked for are tested by their version."""
    model = Pickled()
    for _ in range(3):
        made = use(model)
    links = [*model.links(), *(made.links() if isinstance(made, Link) else ())]
    assert not any(map(is_exposed, links))
    assert vars(model)["l"] is model.l and is_exposed(model)
