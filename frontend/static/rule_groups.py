"""What a compiled update knows of rules: groups of parameters that are updated alike, their states and their hooks."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..update_rule import UpdateRule
from .errors import NotCompilable


@dataclass(frozen=True, eq=False)
class RuleStateBinding:
    """A value that is the state ``name`` of an update rule, or the float32 copy that it updates."""

    rule: Any
    parameter: Any
    name: str

    def array(self) -> Any:
        """The array bound now; what is not there yet is made."""
        updated = updated_by(self.rule, self.parameter)
        if self.name == "param":
            return updated._array
        state = self.rule._state
        if not state:
            self.rule._prepare_state(updated)
            state = self.rule._state
        return state[self.name]


def updated_by(rule: Any, parameter: Any) -> Any:
    """Return the parameter that the rule's arithmetic changes: the float32 copy, where there is to be one."""
    wide = rule._use_fp32_update and parameter._array.dtype == np.float16
    return rule._fp32_of(parameter) if wide else parameter


class Group:
    """Parameters whose rules have one class and get their hyperparameters from one place, at the same step."""

    def __init__(self, rule: Any, dtype: Any, wide: bool) -> None:
        self.rule = rule
        self.dtype = dtype
        self.wide = wide  # whether float16 parameters have float32 copies, which are updated
        self.inner = np.dtype(np.float32) if wide or rule.computes_in_float32 and dtype == np.float16 else dtype
        self.members: list[Any] = []
        self.own = dict(vars(rule.hyperparam))
        # Values that only repeat an optimizer's hyperparameters need no look while those stay the same.
        self.parent = rule.hyperparam.parent
        self.plain = (type(rule).hyper_values is UpdateRule.hyper_values and self.parent is not None
                      and self.parent.parent is None)
        self.parent_values: dict[str, Any] | None = None
        # What has to stay as it is for the group to hold: (rule, its hooks before and after, as they were if there were
        # any, the parameter that has it).
        self.checks: list[tuple[Any, dict[str, Any], dict[str, Any], RuleHooks | None, Any]] = []
        self.values: dict[str, Any] = {}
        self.dynamic: tuple[str, ...] = ()

    def next_values(self) -> dict[str, Any]:
        """The hyperparameters of the step after this one: what differs from this step's is an input from the start."""
        self.rule.t += 1
        try:
            return self.rule.hyper_values()
        finally:
            self.rule.t -= 1

    def add(self, p: Any, scaled: bool) -> None:
        """Take in a parameter."""
        rule = p.update_rule
        self.members.append(p)
        hooks = RuleHooks(rule, scaled) if rule._hooks.pre or rule._hooks.post else None
        self.checks.append((rule, rule._hooks.pre, rule._hooks.post, hooks, p))


class RuleHooks:
    """The hooks of one rule, which change its parameter's gradient before and after the update, as they are now."""

    def __init__(self, rule: Any, scaled: bool) -> None:
        self.pre = tuple(rule._hooks.pre.values())
        self.post = tuple(rule._hooks.post.values())
        for hook in (*self.pre, *self.post):
            check_stated(hook, scaled, " of a rule")
            if getattr(hook, "needs_norm", False):
                raise NotCompilable(f"the hook {hook.name!r} of a rule takes all parameters")
            if getattr(hook, "needs_noise", False):
                raise NotCompilable(f"the hook {hook.name!r} of a rule draws random numbers between updates")
        self._values = [dict(vars(h)) for h in (*self.pre, *self.post)]

    def hold(self, pre: dict[str, Any], post: dict[str, Any]) -> bool:
        """Whether a rule's hooks are still these, with the same attributes."""
        now = (*pre.values(), *post.values())
        return len(pre) == len(self.pre) and now == (*self.pre, *self.post) and [vars(h) for h in now] == self._values


def check_stated(hook: Any, scaled: bool, whose: str = "") -> None:
    """Raise unless ``grad_expr`` is the whole truth: no class below the one that states it changes the call.

    Of ``scaled`` gradients a hook has to know.
    """
    for base in type(hook).__mro__:
        if "grad_expr" in vars(base):
            if scaled and "scaled_attributes" not in vars(base):
                raise NotCompilable(f"the hook {getattr(hook, 'name', hook)!r}{whose} states nothing of scaled losses")
            return
        if "__call__" in vars(base):
            break
    raise NotCompilable(f"the hook {getattr(hook, 'name', hook)!r}{whose} states no expression")


_OWN = frozenset(("_state", "hyperparam", "_hooks", "t", "enabled", "_fp32_param", "_use_fp32_update"))


def settings(rule: Any) -> dict[str, Any]:
    """What a rule has besides counters, states and hyperparameters: its class's own settings."""
    return {k: v for k, v in vars(rule).items() if k not in _OWN}
