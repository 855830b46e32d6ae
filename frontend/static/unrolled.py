"""What every step does for each parameter, written out once as straight-line Python: no loops, no iterators."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def _function(head: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    exec("\n".join([f"def {head}:", *[f"    {line}" for line in lines or ("pass",)]]), names)
    return names[head.partition("(")[0]]


def rules_hold(groups: Sequence[Any]) -> Callable[[], bool]:
    """Return what tells whether all parameters have the rules they had, and those their settings, hooks and clocks."""
    names: dict[str, Any] = {}
    lines: list[str] = []
    for g, group in enumerate(groups):
        names[f"first{g}"], names[f"own{g}"], names[f"parent{g}"] = group.rule, group.own, group.parent
        own = f" != own{g}"
        if list(group.own) == ["_parent"]:  # as nearly always: two comparisons are quicker than that of dictionaries
            own = f"['_parent'] is not parent{g} or len(h) != 1"
        lines.append(f"t = first{g}.t")
        for k, (rule, pre, post, hooks, p) in enumerate(group.checks):
            i = f"{g}_{k}"
            names.update({f"p{i}": p, f"r{i}": rule, f"pre{i}": pre, f"post{i}": post, f"hooks{i}": hooks})
            hooked = f"pre{i} or post{i}" if hooks is None else f"not hooks{i}.hold(pre{i}, post{i})"
            lines += [f"h = r{i}.hyperparam.__dict__",
                      f"if p{i}.update_rule is not r{i} or not r{i}.enabled or r{i}.t != t or h{own} or {hooked}: "
                      "return False"]
    return _function("hold()", [*lines, "return True"], names)


def clocks(groups: Sequence[Any]) -> Callable[[int], None]:
    """Return what moves the clocks of all rules."""
    rules = {f"r{i}": rule for i, rule in enumerate([check[0] for group in groups for check in group.checks])}
    return _function("move(by)", [f"{name}.t += by" for name in rules], rules)


def clearing(params: Sequence[Any]) -> Callable[[], None]:
    """Return what takes their gradients from parameters."""
    lines = [f"p{i}._grad = p{i}._grad_var = None" for i in range(len(params))]
    return _function("clear()", lines, {f"p{i}": p for i, p in enumerate(params)})


def giving(params: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what gives parameters the first of some arrays as gradients, and returns the others."""
    count = len(params)
    # No starred target for the others: Python allows 255 targets before one.
    lines = ["".join([f"p{i}._grad, " for i in range(count)]) + f"= found[:{count}]"] if params else []
    return _function("give(found)", [*lines, f"return found[{count}:]"], {f"p{i}": p for i, p in enumerate(params)})
