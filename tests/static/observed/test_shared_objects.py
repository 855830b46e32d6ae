"""Arguments that a call changes, and lists, dictionaries and objects that are returned or stored more than once."""
from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Batch, build
from static.observed.harness import Rows, before, check

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "field": lambda b: (setattr(b, "seen", b.seen + 1), F.tanh(b.x))[1],
    "field that is there already": lambda b: (setattr(b, "seen", 0), F.tanh(b.x))[1],
    "result in a field": lambda b: (setattr(b, "h", F.tanh(b.x)), b.h * 2)[1],
    "list in a field": lambda b: (b.names.append("a"), F.tanh(b.x))[1],
    "name": lambda b: (setattr(b.h, "name", "h"), F.tanh(b.x) + b.h)[1],
    "gradient": lambda b: (setattr(b.h, "grad", np.ones((3, 4), "f")), F.tanh(b.x) + b.h)[1],
    "cleargrad": lambda b: (b.h.cleargrad(), F.tanh(b.x) + b.h)[1],
    "unchain": lambda b: (b.h.unchain(), F.tanh(b.x) + b.h)[1],
    "unchain_backward": lambda b: (b.h.unchain_backward(), F.tanh(b.x) + b.h)[1],
    "array": lambda b: (setattr(b.h, "array", b.h.array * 2), F.tanh(b.x) + b.h)[1],
    "elements": lambda b: (b.x.__imul__(2), F.tanh(b.x))[1],
    "elements of a Variable": lambda b: (b.h.array.__imul__(2), F.tanh(b.h))[1],
    "an element": lambda b: (b.x.__setitem__((0, 0), 3), F.tanh(b.x))[1],
    "new attribute": lambda b: (setattr(b, "late", 1), F.tanh(b.x))[1],
    "deleted attribute": lambda b: (delattr(b, "seen"), F.tanh(b.x))[1],
    "fill": lambda b: (b.x.fill(2), F.tanh(b.x))[1],
    "sort": lambda b: (b.x.sort(axis=1), F.tanh(b.x))[1],
    "out": lambda b: (np.multiply(b.x, 2, out=b.x), F.tanh(b.x))[1],
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("how", ["object", "values"])
def test_arguments_that_change(how: str, name: str) -> None:
    body = ARGUMENTS[name]

    def program(decorate: Any) -> Any:
        if how == "object":
            static = decorate(lambda b: body(b))
        else:
            static = decorate(lambda x, h: body(types.SimpleNamespace(x=x, h=h, seen=0, names=[])))

        def call(i: int, x: Any) -> Any:
            v = Variable(x + 1)
            h = F.relu(v)
            b = Batch(x, 0, h)
            y = static(b) if how == "object" else static(x, h)
            F.sum(y * y).backward()
            return y, vars(b), x, h.creator is None, v.grad, h.grad
        return call

    check(program)


# One object several times.

@ROWS.falls_back("is given an object that the call has made")
def one_list_every_time(decorate: Any) -> Any:
    same: list[Any] = []

    def body(x: Any) -> Any:
        same[:] = [F.tanh(x)]
        return same

    static = decorate(body)
    return lambda i, x: static(x)


@ROWS.replays
def one_list_that_grows(decorate: Any) -> Any:
    same: list[Any] = []

    def body(x: Any) -> Any:
        same.append(F.tanh(x))
        return same

    static = decorate(body)
    return lambda i, x: list(static(x))


@ROWS.replays
def one_dictionary_returned_and_kept(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: (setattr(s, "out", {"h": s.l(x)}), s.out)[1]), out=None)
    return lambda i, x: (model(x), model.out)


@ROWS.replays
def one_list_twice_in_a_result(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        parts = [F.tanh(x), F.relu(x)]
        return {"a": parts, "b": parts, "c": [parts[0], parts]}

    static = decorate(body)
    return lambda i, x: static(x)


@ROWS.replays
def one_dictionary_stored_twice(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        s.one = s.two = {"h": F.tanh(s.l(x))}
        s.two["more"] = 1
        return s.one["h"]

    model = build(decorate(body), one=None, two=None)
    return lambda i, x: (model(x), model.one, model.two)


@ROWS.replays
def an_attribute_that_is_returned(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: (s.l(x), s.table)), table={"k": [1.0]})

    def call(i: int, x: Any) -> Any:
        model.table["k"][0] = 1.0 + i // 3
        y, table = model(x)
        return y, table is model.table, table
    return call


@ROWS.falls_back("would return another one")
def an_argument_that_is_returned(decorate: Any) -> Any:
    static = decorate(lambda x, options: (F.tanh(x), options, options["list"]))

    def call(i: int, x: Any) -> Any:
        options = {"list": [i // 3]}
        y, same, part = static(x, options)
        return y, same is options, part is options["list"]
    return call


@ROWS.replays
def one_variable_twice_in_a_result(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        h = F.tanh(x)
        return h, [h], {"h": h}

    static = decorate(body)
    return lambda i, x: static(x)


@ROWS.replays
def a_constant_list_in_a_result(decorate: Any) -> Any:
    """Made anew in every call: what the caller does to one is not in the next."""
    static = decorate(lambda x: (F.tanh(x), [1, 2], {"a": []}))

    def call(i: int, x: Any) -> Any:
        y, numbers, table = static(x)
        numbers.append(i)
        table["a"].append(i)
        return y, numbers, table
    return call


@ROWS.replays
def a_stored_list_that_the_caller_changes(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: (setattr(s, "parts", [s.l(x)]), s.parts[0])[1]), parts=None)

    def call(i: int, x: Any) -> Any:
        y = model(x)
        model.parts.append(i)
        return y, list(model.parts)
    return call


@ROWS.replays
def a_default_that_is_stored(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: (setattr(s, "mode", s.default), s.l(x))[1]), mode="a", default="b")

    def call(i: int, x: Any) -> Any:
        model.default = "bc"[i // 3 % 2]
        if i in (2, 5):
            model.mode = "other"
        return model(x), model.mode
    return call


@ROWS.replays
def errors_after_stores(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        s.phase = "started"
        h = F.tanh(s.l(x))
        if s.fails:
            raise ValueError("on purpose")
        s.phase = "done"
        return h

    model = build(decorate(body), phase="new", fails=False)

    def call(i: int, x: Any) -> Any:
        model.fails = i in (1, 4)
        try:
            y = model(x)
        except ValueError as error:
            y = str(error)
        phase, model.phase = model.phase, "new"
        return y, phase
    return call


@ROWS.falls_back("is given an object that the call has made")
def objects_kept_alive(decorate: Any) -> Any:
    import weakref
    references: list[Any] = []
    model = build(decorate(lambda s, x: (references.append(weakref.ref(s.l)), s.l(x))[1]))
    return lambda i, x: (model(x), len(references), references[-1]() is model.l)


@ROWS.falls_back()
def hooks_that_are_added_inside(decorate: Any) -> Any:
    seen: list[str] = []

    class Hook(kusari.LinkHook):
        name = "Hook"

        def forward_postprocess(self, args: Any) -> None:
            seen.append(args.link.name)

    def body(s: Any, x: Any) -> Any:
        if "Hook" not in s.m.local_link_hooks:
            s.m.add_hook(Hook())
        return s.m(F.tanh(s.l(x)))

    model = build(decorate(body))
    return lambda i, x: (model(x), seen.copy())


@ROWS.replays
def nothing_but_locals(decorate: Any) -> Any:
    """Containers that a call makes, fills and throws away are no effects."""
    def body(s: Any, x: Any) -> Any:
        parts, table, names = [], {}, set()
        for k, link in enumerate((s.l, s.m)):
            parts.append(link(x))
            table[k] = parts[-1]
            names.add(link.name)
        parts.reverse()
        table.pop(0)
        return parts[0] * len(names) + parts.pop() + sum(table.values())

    return before(build(decorate(body)), lambda i: None)


@ROWS.replays
def containers_changed_by_operators(decorate: Any) -> Any:
    s = types.SimpleNamespace(rows=[], table={}, raw=bytearray(), queue=collections.deque(), more=[1, 2],
                              pairs=[["inner", 0]])

    def body(x: Any) -> Any:
        s.rows += s.more
        s.queue += s.more
        s.table |= {"of": len(s.more)}
        s.table.update(s.pairs)
        s.raw += b"x"
        return F.tanh(x)

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 4:
            s.pairs[0][1] = 5
            s.more.append(3)
        return static(x), [*s.rows], [*s.queue], dict(s.table), bytes(s.raw)
    return call


@ROWS.replays
def objects_that_are_thrown_away(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        b = Batch(F.tanh(s.l(x)))
        b.seen += 1
        b.names.append("a")
        b.h = b.x * b.seen
        return b.h * len(b.names)

    return before(build(decorate(body)), lambda i: None)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
