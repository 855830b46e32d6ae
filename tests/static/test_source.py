"""The writer of Python text: names, lines in tracebacks, texts that are compiled once."""
from __future__ import annotations

import gc
import linecache
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.static import source as source_module
from kusari.static.source import Source

STATIC = Path(__file__).resolve().parents[2] / "frontend" / "static"


def adder(value: Any, hint: str = "value", kind: str = "test") -> Callable[[Any], Any]:
    source = Source(kind, "add(x)")
    with source.block("if x is not None"):
        source.line(f"return x + {source.name(value, hint)}")
    return source.function()


def test_equal_texts_are_compiled_once_for_all_objects() -> None:
    one, two = adder(1), adder(2)
    assert one.__code__ is two.__code__ and (one(3), two(3), one(None)) == (4, 5, None)


def test_names_are_never_the_same() -> None:
    source, a, b = Source("test", "f(x)"), object(), object()
    names = [source.name(a, "x"), source.name(b, "x"), source.fresh("x"), source.kept("x")]
    assert len({"x", *names}) == 5 and source.name(a, "other") == names[0]


def test_variables_are_kept_from_call_to_call() -> None:
    source = Source("test", "last(x)")
    seen, before = source.kept("seen"), source.fresh("before")
    source.line(f"{before} = {seen}", f"{seen} = x", f"return {before}")
    last, other = source.function(), source.function()
    assert [last(1), last(2), last(3), other(4)] == [None, 1, 2, None]


@pytest.mark.parametrize(("value", "expected"), [(None, "None"), (True, "True"), (1, "value"), ("None", "value")])
def test_literals(value: Any, expected: str) -> None:
    assert Source("test", "f()").literal(value, "value") == expected


def test_lines_are_registered_as_long_as_there_is_code() -> None:
    function = adder(1, "something", "test of lines")
    name = function.__code__.co_filename
    assert name.startswith("<kusari test of lines ") and "return x + something" in linecache.getline(name, 4)
    source_module._maker.cache_clear()
    assert name in linecache.cache
    del function
    gc.collect()
    assert name not in linecache.cache


def test_tracebacks_through_replays_show_their_lines() -> None:
    @kusari.static_graph
    def f(x: Any, i: Any) -> Any:
        return F.get_item(x, i) if isinstance(i, tuple) else F.embed_id(i, x)

    x = np.zeros((3, 2), np.float32)
    for _ in range(4):
        f(x, np.array([0, 1]))
    try:
        f(x, np.array([0, 9]))
    except IndexError as error:
        lines = [entry.line for entry in traceback.extract_tb(error.__traceback__) if entry.filename.startswith("<kus")]
    assert any("frame.run()" in (line or "") for line in lines)


def test_no_other_module_runs_texts() -> None:
    found = {str(file.relative_to(STATIC)) for file in STATIC.rglob("*.py") for line in file.read_text().splitlines()
             if line.strip().startswith(("exec(", "return eval(")) or " = eval(" in line}
    assert found == {"source.py"}
