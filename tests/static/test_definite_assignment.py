"""Attributes that code stores before it reads them: what stood there before the call is none of its business."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kusari.static.definite_assignment import read_from_before


def at_once(self: Any, x: Any) -> Any:
    self.a = {1: x}
    return self.a[1]


def in_both_branches(self: Any, x: Any) -> Any:
    if x:
        self.a = 1
    else:
        self.a = 2
    while x:
        x -= self.a
    return x


def in_nested_code(self: Any, x: Any) -> Any:
    self.a = []
    for i in x:
        self.a.append(i)
    return sum(i for i in self.a) + sum(self.a[i] for i in x)


def in_one_branch(self: Any, x: Any) -> Any:
    if x:
        self.a = []
    return self.a


def in_a_loop(self: Any, x: Any) -> Any:
    for i in x:
        self.a = [i]
    return self.a


def where_it_may_fail(self: Any, x: Any) -> Any:
    try:
        self.a = x()
    except ValueError:
        pass
    return self.a


def in_a_block_that_may_be_left(self: Any, x: Any) -> Any:
    with x:
        self.a = x()
    return self.a


def of_another(self: Any, x: Any) -> Any:
    x.a = 1
    return self.a


def of_a_variable_that_changes(self: Any, x: Any) -> Any:
    self.a = 1
    self = x
    return self.a


def of_a_variable_that_nested_code_changes(self: Any, x: Any) -> Any:
    self.a = 1

    def change() -> None:
        nonlocal self
        self = x
    change()
    return self.a


def by_nested_code_made_before(self: Any, x: Any) -> Any:
    def read() -> Any:
        return self.a
    read()
    self.a = x


def deleted(self: Any, x: Any) -> Any:
    self.a = x
    del self.a
    return self.a


def added_to(self: Any, x: Any) -> Any:
    self.a = self.a + [x]
    return self.a


@pytest.mark.parametrize("function", [at_once, in_both_branches, in_nested_code])
def test_what_is_stored_before(function: Callable[..., Any]) -> None:
    assert "a" not in read_from_before(function.__code__)


@pytest.mark.parametrize("function", [
    in_one_branch, in_a_loop, where_it_may_fail, in_a_block_that_may_be_left, of_another, of_a_variable_that_changes,
    of_a_variable_that_nested_code_changes, by_nested_code_made_before, deleted, added_to])
def test_what_may_not_be(function: Callable[..., Any]) -> None:
    assert "a" in read_from_before(function.__code__)
