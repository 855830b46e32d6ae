"""What every step does for each parameter, written out once as straight-line Python: no loops, no iterators."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kusari.runtime.versions import Versions

from ...link.walk import all_params
from .taken_over import all_stay


def _function(head: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    exec("\n".join([f"def {head}:", *[f"    {line}" for line in lines or ("pass",)]]), names)
    return names[head.partition("(")[0]]


def _guarded(head: str, failures: Iterable[str], lines: Sequence[str], names: dict[str, Any]) -> Any:
    """Return a function that runs ``lines`` and says whether none of ``failures`` is true; what raises is one, too."""
    body = [*lines, f"return not ({' or '.join(failures)})"]
    return _function(head, ["try:", *[f"    {line}" for line in body], "except (AttributeError, KeyError, ValueError):",
                            "    return False"], names)


def holding(program: Any) -> Callable[[], bool]:
    """Return a function that tells whether an optimizer would still do what its program does.

    That is: it has the same parameters and hooks, the parameters have the rules they had, and those their settings,
    hooks and clocks, and all that the program takes over is the library's own.
    """
    optimizer, conditions = program.optimizer, program.conditions()
    names: dict[str, Any] = {"optimizer": optimizer, "target": optimizer.target, "params": program.params,
                             "all_params": all_params, "kind": type(optimizer), "hooks": optimizer._hooks}
    lines = ["if optimizer.__class__ is not kind or optimizer.target is not target or optimizer._hooks is not hooks or "
             "all_params(target) is not params: return False"]
    if program.with_hooks and optimizer._hooks is not None:
        names["pre"], names["before"] = optimizer._hooks.pre, list(program.hooks)
        lines.append("if [*pre.values()] != before: return False" if program.hooks else "if pre: return False")
    for g, group in enumerate(program.groups):
        names |= {f"first{g}": group.rule, f"rules{g}": type(group.rule), f"own{g}": group.own,
                  f"parent{g}": group.parent}
        own = f" != own{g}"
        if list(group.own) == ["_parent"]:  # as nearly always: two comparisons are quicker than that of dictionaries
            own = f"['_parent'] is not parent{g} or len(h) != 1"
        lines.append(f"t = first{g}.t")
        for k, (rule, pre, post, hooks, p) in enumerate(group.checks):
            i = f"{g}_{k}"
            names.update({f"p{i}": p, f"r{i}": rule, f"pre{i}": pre, f"post{i}": post, f"hooks{i}": hooks})
            hooked = f"pre{i} or post{i}" if hooks is None else f"not hooks{i}.hold(pre{i}, post{i})"
            lines += [f"h = r{i}.hyperparam.__dict__",
                      f"if p{i}.update_rule is not r{i} or r{i}.__class__ is not rules{g} or not r{i}.enabled or "
                      f"r{i}.t != t or h{own} or {hooked}: return False"]
    for k, p in enumerate(program.idle):
        names[f"idle{k}"], names[f"disabled{k}"] = p, p.update_rule
        lines.append(f"if idle{k}.update_rule is not disabled{k}" + (
            f" or disabled{k}.enabled" if p.update_rule is not None else "") + (
            f" or idle{k}._array is not None" if p._array is None else "") + ": return False")
    dictionaries = [*conditions.dictionaries.values()]
    versions = Versions([*conditions.kinds], dictionaries)
    intact = _guarded("intact()", conditions.others, [], conditions.names)

    def changed() -> bool:
        if intact() and all(map(all_stay, dictionaries)):
            versions.note()
            return False
        return True

    names |= {"same": versions.same, "changed": changed}
    return _guarded("hold()", ["not same() and changed()", *conditions.each], lines, {**names, **conditions.names})


def clocks(optimizer: Any, groups: Sequence[Any]) -> Callable[[int], None]:
    """Return what moves the clocks of an optimizer and of all rules."""
    of = {f"r{i}": rule for i, rule in enumerate([check[0] for group in groups for check in group.checks])}
    return _function("move(by)", [f"{name}.t += by" for name in ("optimizer", *of)], {**of, "optimizer": optimizer})


def clearing(params: Sequence[Any]) -> Callable[[], None]:
    """Return what takes their gradients from parameters, and from those without an array what they would start with."""
    lines = [f"p{i}._grad = p{i}._grad_var = None" + f"; p{i}._grad_fill = None" * (p._array is None)
             for i, p in enumerate(params)]
    return _function("clear()", lines, {f"p{i}": p for i, p in enumerate(params)})


def giving(params: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what gives parameters the first of some arrays as gradients, and returns the others."""
    count = len(params)
    # No starred target for the others: Python allows 255 targets before one.
    lines = ["".join([f"p{i}._grad, " for i in range(count)]) + f"= found[:{count}]"] if params else []
    return _function("give(found)", [*lines, f"return found[{count}:]"], {f"p{i}": p for i, p in enumerate(params)})
