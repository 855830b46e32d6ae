"""Entries of the configuration, however they are read: the user's own, objects and lists too, and the library's."""
from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Model, build
from static.observed.harness import Rows, check

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import config, global_config, using_config

ROWS = Rows()
CONFIG = kusari.config


class Options:
    config = kusari.config

    def __init__(self) -> None:
        self.k = 1.0
        self.list = [1.0]


def helper() -> Any:
    return kusari.config.user_k


def with_default(x: Any, c: Any = kusari.config) -> Any:
    return x * c.user_k


def with_evaluated_default(x: Any, read: Any = lambda: kusari.config.user_k) -> Any:
    return x * read()


def imported(x: Any) -> Any:
    from kusari import config as c
    return x * c.user_k


def imported_module(x: Any) -> Any:
    import kusari.configuration as c
    return x * c.config.user_k


def tried(x: Any) -> Any:
    try:
        return x * config.user_other
    except AttributeError:
        return x * config.user_k


def entered(x: Any) -> Any:
    with using_config("user_k", config.user_k * 2):
        return x * helper()


def entered_train(x: Any) -> Any:
    with using_config("train", config.user_k < 2):
        return F.dropout(x, 0.5)


def stored(x: Any) -> Any:
    before, config.user_k = config.user_k, 3.0
    try:
        return x * helper() * before
    finally:
        config.user_k = before


NAMES = ("user_k",)
get = operator.attrgetter("user_k")
closed = (lambda c: lambda x: x * c.user_k)(kusari.config)
in_object, in_list = types.SimpleNamespace(c=kusari.config), [kusari.config]

READS: dict[str, Callable[[Any], Any]] = {
    "by name": lambda x: x * config.user_k,
    "by another name": lambda x: x * CONFIG.user_k,
    "in the library": lambda x: x * kusari.config.user_k,
    "of a class": lambda x: x * Options.config.user_k,
    "of an object": lambda x: x * in_object.c.user_k,
    "of a list": lambda x: x * in_list[0].user_k,
    "helper": lambda x: x * helper(),
    "closure": closed,
    "default": with_default,
    "function in a default": with_evaluated_default,
    "imported": imported,
    "imported module": imported_module,
    "getattr": lambda x: x * config.user_k,
    "getattr in the library": lambda x: x * getattr(kusari.config, "user_k", 5.0),
    "computed name": lambda x: x * getattr(config, NAMES[0]),
    "formatted name": lambda x: x * getattr(config, f"user_{'k' if len(x) else 'l'}"),
    "names in a loop": lambda x: x * sum(getattr(config, name) for name in NAMES),
    "getter": lambda x: x * get(config),
    "hasattr": lambda x: x * (config.user_k if hasattr(config, "user_k") else 1.0),
    "tried": tried,
    "entered": entered,
    "entered train": entered_train,
    "branch": lambda x: F.relu(x) if config.user_k > 1 else F.tanh(x),
    "comprehension": lambda x: [x * config.user_k for _ in range(2)][1],
    "method": lambda x: x * config.__getattribute__("user_k"),
}
EITHER = {  # any name may be read, or one is stored
    "stored and put back": stored,
    "vars": lambda x: x * {**vars(global_config), **vars(config)}["user_k"],
    "dictionary": lambda x: x * config.__dict__.get("user_k", global_config.__dict__.get("user_k")),
    "global entry": lambda x: x * (global_config.user_k if hasattr(global_config, "user_k") else config.user_k),
}
SETTERS: dict[str, Callable[[Any], Any]] = {
    "local": lambda v: setattr(config, "user_k", v),
    "global": lambda v: setattr(global_config, "user_k", v),
    "local over global": lambda v: (setattr(global_config, "user_k", 7.0), setattr(config, "user_k", v)),
    "local removed": lambda v: (setattr(global_config, "user_k", 1.0), setattr(config, "user_k", v),
                                config.__delattr__("user_k") if v == 1.0 else None),
}


@pytest.mark.parametrize("name", [*READS, *EITHER])
@pytest.mark.parametrize("how", SETTERS)
def test_reads(how: str, name: str) -> None:
    read = {**READS, **EITHER}[name]

    def program(decorate: Any) -> Any:
        static = decorate(lambda x: read(F.tanh(x)))

        def call(i: int, x: Any) -> Any:
            SETTERS[how](2.5 if i in (3, 4, 5) else 1.0)
            return static(x)
        return call

    check(program, "replays" if name in READS and name != "method" else None)


@pytest.mark.parametrize("name", ["by name", "helper", "default", "formatted name", "branch"])
def test_entered_around_the_call(name: str) -> None:
    def program(decorate: Any) -> Any:
        config.user_k = 1.0
        static = decorate(lambda x: READS[name](F.tanh(x)))

        def call(i: int, x: Any) -> Any:
            with using_config("user_k", 2.5 if i in (3, 4) else 1.0):
                return static(x)
        return call

    check(program, "replays")


def changed(name: str, values: Any, static: Any) -> Any:
    def call(i: int, x: Any) -> Any:
        setattr(config, name, values[i in (3, 4, 5)])
        return static(x)
    return call


@ROWS.replays
def entries_that_are_objects(decorate: Any) -> Any:
    config.user_options = Options()

    def call(i: int, x: Any) -> Any:
        config.user_options.k = 1.0 + i // 3
        return static(x)
    static = decorate(lambda x: F.tanh(x) * config.user_options.k)
    return call


@ROWS.replays
def entries_that_are_replaced_objects(decorate: Any) -> Any:
    one, two = Options(), Options()
    two.k = 3.0
    return changed("user_options", (one, two), decorate(lambda x: F.tanh(x) * config.user_options.k))


@ROWS.replays
def entries_that_are_lists(decorate: Any) -> Any:
    config.user_list = [1.0]

    def call(i: int, x: Any) -> Any:
        if i in (3, 5):
            config.user_list.append(float(i))
        return static(x)
    static = decorate(lambda x: F.tanh(x) * sum(config.user_list))
    return call


@ROWS.replays
def lists_in_objects_in_entries(decorate: Any) -> Any:
    config.user_options = Options()

    def call(i: int, x: Any) -> Any:
        config.user_options.list[0] = 1.0 + i // 4
        return static(x)
    static = decorate(lambda x: F.tanh(x) * config.user_options.list[0])
    return call


@ROWS.replays
def dictionaries_of_global_entries(decorate: Any) -> Any:
    global_config.user_table = {"scale": {"k": 1.0}}

    def call(i: int, x: Any) -> Any:
        global_config.user_table["scale"]["k"] = 1.0 + i // 4
        return static(x)
    static = decorate(lambda x: F.tanh(x) * config.user_table["scale"]["k"])
    return call


@ROWS.replays
def entries_that_are_functions(decorate: Any) -> Any:
    return changed("user_act", (F.relu, lambda x: x * 2), decorate(lambda x: config.user_act(F.tanh(x))))


@ROWS.replays
def entries_that_are_links(decorate: Any) -> Any:
    one, two = L.PReLU(init=0.1), L.PReLU(init=0.9)
    return changed("user_act", (one, two), decorate(lambda x: config.user_act(F.tanh(x))))


@ROWS.replays
def entries_that_come_and_go(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * getattr(config, "user_late", 1.0))

    def call(i: int, x: Any) -> Any:
        if i == 3:
            config.user_late = 4.0
        if i == 6:
            del config.user_late
        return static(x)
    return call


@ROWS.replays
def dtype_by_get_dtype(decorate: Any) -> Any:
    return changed("dtype", (np.float32, np.float64), decorate(lambda x: F.cast(F.tanh(x), kusari.get_dtype())))


@ROWS.replays
def dtype_by_get_dtype_and_map(decorate: Any) -> Any:
    return changed("dtype", (np.float32, kusari.mixed16), decorate(
        lambda x: F.cast(F.tanh(x), kusari.get_dtype(map_mixed16=np.float64))))


@ROWS.replays
def dtype_of_a_link_made_by_the_library(decorate: Any) -> Any:
    def other(x: Any) -> Any:
        return F.cast(x, np.dtype(kusari.get_dtype(None)).name)
    return changed("dtype", (np.float32, np.float64), decorate(lambda x: other(F.tanh(x))))


@ROWS.replays
def train_read_by_a_helper(decorate: Any) -> Any:
    def factor(c: Any = config) -> float:
        return 2.0 if getattr(c, "tr" + "ain") else 1.0
    return changed("train", (True, False), decorate(lambda x: F.tanh(x) * factor()))


@ROWS.replays
def entries_of_the_library(decorate: Any) -> Any:
    names = ["train", "enable_backprop", "type_check", "lazy_grad_sum"]
    static = decorate(lambda x: F.tanh(x) * sum(2.0 ** i * bool(getattr(config, n)) for i, n in enumerate(names)))

    def call(i: int, x: Any) -> Any:
        config.train, config.type_check, config.lazy_grad_sum = i < 6, i // 2 % 2 == 0, i == 7
        return static(x)
    return call


@ROWS.replays
def switch_of_a_layer(decorate: Any) -> Any:
    class Decorated(Model):
        @decorate
        def forward(self, x: Any) -> Any:
            h = self.l(x)
            for _ in range(config.user_depth):
                h = F.tanh(self.m(h))
            return h

    model = Decorated()
    return changed("user_depth", (1, 3), model)


@ROWS.replays
def entries_of_a_dropout_ratio(decorate: Any) -> Any:
    return changed("user_ratio", (0.2, 0.7), build(decorate(lambda s, x: F.dropout(s.l(x), ratio=config.user_ratio))))


@ROWS.replays
def entries_given_to_links(decorate: Any) -> Any:
    config.user_axes = 1
    model = build(decorate(lambda s, x: s.m(s.l(x), n_batch_axes=config.user_axes)))
    return changed("user_axes", (1, np.int64(1)), model)


@ROWS.falls_back("changes inside the static function")
def entries_counted_inside(decorate: Any) -> Any:
    config.user_count = 0

    def body(x: Any) -> Any:
        config.user_count += 1
        return F.tanh(x) * config.user_count

    static = decorate(body)
    return lambda i, x: (static(x), config.user_count)


@ROWS.falls_back("changes inside the static function")
def entries_made_inside(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        if not hasattr(config, "user_made"):
            config.user_made = 1.0
        return F.tanh(x) * config.user_made

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 4:
            del config.user_made
        return static(x), vars(config).get("user_made")
    return call


@ROWS.falls_back("changes inside the static function")
def global_entries_stored_inside(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        global_config.user_phase = "train"
        return F.tanh(x)

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i % 3 == 0:
            global_config.user_phase = "other"
        return static(x), global_config.user_phase
    return call


@ROWS.falls_back("all entries of the configuration are shown")
def entries_shown(decorate: Any) -> Any:
    import io

    def body(x: Any) -> Any:
        out = io.StringIO()
        config.show(out)
        return F.tanh(x) * len([line for line in out.getvalue().splitlines() if line.startswith("user_")])

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        setattr(config, f"user_{i // 3}", 1)
        return static(x)
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
