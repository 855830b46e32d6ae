"""The rules of a compiled update: groups of parameters that are updated alike, their states and their hooks."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from kusari.ir import SCALAR, Arg, Symbol

from ...hyperparameter import Hyperparameter
from ...link.walk import all_params
from ..arrays.captured import owner
from ..arrays.overlap import Spans, has_address
from ..errors import NotCompilable, Stale, is_from_handler
from ..guards.guard import same
from ..source import Source
from .stated import COUNTED, ReadHyperparameters, Stated, StatedHyperparameters, asked, is_plain, state
from .taken_over import Conditions, is_ours


@dataclass(frozen=True, eq=False)
class RuleStateBinding:
    """A value that is the state ``name`` of an update rule, or the float32 copy that it updates."""

    rule: Any
    parameter: Any
    name: str

    def array(self) -> Any:
        """The array bound now; made, if it is not there yet."""
        if self.name == "param":
            return updated_by(self.rule, self.parameter)._array
        return (self.rule._state or self._made())[self.name]

    def _made(self) -> dict[str, Any]:
        self.rule._prepare_state(updated_by(self.rule, self.parameter))
        return self.rule._state

    def text(self, source: Source) -> str:
        """Return the expression for the array bound now."""
        if self.name == "param":
            return f"{source.name(self.array, 'array')}()"
        return f"({source.name(self.rule, 'rule')}._state or {source.name(self._made, 'made')}())[{self.name!r}]"


@dataclass(frozen=True, eq=False)
class GradientBinding:
    """A value that is the gradient of a parameter, written to: nearly always a new array."""

    parameter: Any
    passing = True

    def array(self) -> Any:
        """The array bound now."""
        return self.parameter.grad


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
        self.read = ReadHyperparameters()
        self.parent = rule.hyperparam.parent
        # The values that follow from the clock, where all follow from it and from the optimizer's hyperparameters: the
        # others stay the same while those do. None where values may follow from anything.
        self.timed = timed_values(rule)  # found anew where values come or go
        self.arrays = False  # whether there are arrays among the hyperparameters
        self.parent_values: dict[str, Any] | None = None
        # What has to stay as it is for the group to hold: (rule, its hooks before and after, as they were if there were
        # any, the parameter that has it).
        self.checks: list[tuple[Any, dict[str, Any], dict[str, Any], RuleHooks | None, Any]] = []
        self.values: dict[str, Any] = {}
        self.dynamic: tuple[str, ...] = ()

    def current(self) -> dict[str, Any]:
        """The hyperparameters of this step, as numbers that no other step changes."""
        values = self._current()
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                if value.ndim:
                    raise NotCompilable(f"the hyperparameter {name!r} is an array")
                values[name] = value[()]
                self.timed, self.arrays = None, True  # it may change in place
            elif not is_plain(value):
                raise NotCompilable(f"the hyperparameter {name!r} is a {type(value).__name__}, which may change")
        return values

    def _current(self) -> dict[str, Any]:
        values = self.rule.hyper_values()
        for name in self.read.hyper:
            values[asked(name)] = getattr(self.rule.hyperparam, name)
        return values

    def next_values(self) -> dict[str, Any]:
        """The hyperparameters of the step after this one: what differs from this step's is an input from the start."""
        self.rule.t += 1
        try:
            return self.current()
        finally:
            self.rule.t -= 1

    @property
    def plain(self) -> bool:
        """Whether all values are inputs, or stay the same while the optimizer's hyperparameters do."""
        return self.timed is not None and self.parent_values is not None and {*self.timed} <= {*self.dynamic}

    def _follow_clock(self) -> bool:
        """Take over the hyperparameters of a plain group; returns False where the optimizer's are not as they were."""
        if not (self.plain and type(self.parent) is Hyperparameter
                and same_entries(vars(self.parent), self.parent_values or {})):
            return False
        if self.timed:
            now = self.rule.hyper_values()
            self.values.update([(name, now[name]) for name in self.timed])
        return True

    def write_hyper(self, source: Source) -> Callable[[], list[str]]:
        """Append a test that returns False, or raises, where a plain group's hyperparameters are to be looked at.

        Numbers of the optimizer's that nothing but inputs follow from may change. Returns a function that appends how
        the inputs are taken over once the step has been counted, which may raise, and returns their names.
        """
        now, known, moved, found = map(source.fresh, ("now", "known", "moved", "found"))
        group, parent = source.name(self, "group"), vars(self.parent)
        same = " and ".join([f"len({now}) == {len(parent)}", *[f"{now}[{n!r}] is {known}[{n!r}]" for n in parent]])
        kind, place = source.name(Hyperparameter, "Hyperparameter"), source.name(self.parent, "parent")
        follow = {n: following(self.rule, {n}) for n, x in parent.items() if is_number(x)}
        free = {n for n, f in follow.items() if f is not None and {*self.dynamic}.issuperset(f)}
        free.difference_update(self.read.hyper)
        source.line(f"if type({place}) is not {kind}: return False",
                    f"{now} = {place}.__dict__", f"{known} = {group}.parent_values",
                    f"{moved} = not ({same})", f"if {moved} and not {source.name(_differ_in, 'differ_in')}("
                    f"{now}, {known}, {source.name(free, 'free')}): return False")

        def take(names: Sequence[str]) -> list[str]:
            lines = [f"{group}.values[{n!r}] = {found}[{n!r}]" for n in names]
            return [f"{found} = {source.name(self.rule, 'rule')}.hyper_values()", *lines] if lines else []

        def write() -> list[str]:
            with source.block(f"if {moved}"):
                source.line(*take([n for n in self.dynamic if n not in map(asked, self.read.hyper)]),
                            f"{group}.parent_values = {{**{now}}}")
            if self.timed:
                with source.block("else"):
                    source.line(*take(self.timed))
            made, inner = source.name(np.asarray, "asarray"), source.name(self.inner, "inner")
            inputs = [source.fresh("number") for _ in self.dynamic]
            source.line(*[f"{x} = {made}({group}.values[{n!r}], {inner})"
                          for x, n in zip(inputs, self.dynamic, strict=True)])
            return inputs
        return write

    def advance(self) -> bool:
        """Take over the hyperparameters of this step; returns False when one changed that is a literal."""
        if self._follow_clock():
            return True
        values = self.values
        now = self.current() if self.arrays else self._current() if self.read.hyper else self.rule.hyper_values()
        fits = True
        for name in self.dynamic:
            value = values[name] = now.get(name)
            fits = fits and is_number(value)
        if not (fits and same_entries(now, values)):
            fits = False
            self._take_over(self.current())
        if self.timed is not None and are_plain(self.rule.hyperparam):
            self.parent_values = dict(vars(self.parent))
        else:
            self.timed = None
        return fits

    def _take_over(self, now: dict[str, Any]) -> None:
        """Take over values: a number that changed is an input from now on, other values are literals."""
        before = self.values or self.next_values()
        dynamic = [name for name in self.dynamic if name in now and is_number(now[name])]
        for name, value in now.items():
            old = before.get(name)
            if name not in dynamic and is_number(value) and is_number(old) and value != old:
                dynamic.append(name)
        self.values, self.dynamic = now, tuple(dynamic)
        self.timed = None if self.arrays else timed_values(self.rule)

    def try_out(self) -> None:
        """Raise unless the rule states expressions of symbols."""
        if type(self.rule) in _branching:
            raise NotCompilable(f"{type(self.rule).__name__} branches on hyperparameters that change")
        try:
            hyper = SimpleNamespace(**self.next_values())
        except NotCompilable:
            raise
        except Exception as error:  # it raises in the update as well
            if is_from_handler(error):
                raise
            raise NotCompilable(f"{type(self.rule).__name__} has no hyperparameters: {error}") from error
        names = tuple(self.rule._state)
        symbols = [Symbol(Arg(i)) for i in range(2 + len(names))]
        self.new_values(symbols[0], symbols[1], dict(zip(names, symbols[2:], strict=True)), hyper)

    def new_values(self, param: Any, grad: Any, states: dict[str, Any], hyper: SimpleNamespace) -> dict[str, Any]:
        """Return the expressions of the update, as the rule states it."""
        rule, kind, read = self.rule, type(self.rule), ReadHyperparameters()
        shared = is_ours(kind.hyper_values)
        given = {"hyperparam": StatedHyperparameters(rule.hyperparam, hyper, shared, read)}
        stated: Any = Stated(rule, given, read)
        try:
            new = state(stated.update_exprs, rule, SCALAR, hyper, param, grad, **states)
        except NotCompilable:
            if self.dynamic:
                _branching.add(kind)
            raise
        if not isinstance(new, dict) or not new.keys() <= {"param", *states}:
            raise NotCompilable(f"{kind.__name__} states something else than the parameter and its states")
        for name, value in read.own.items():
            if not all(same(vars(check[0]).get(name), value) for check in self.checks):
                raise Stale(f"the rules of a group differ in {name!r}")
        self.read = read
        return new

    def add_conditions(self, conditions: Conditions) -> None:
        """Append under which conditions the rules are no longer updated alike, or state something else."""
        rules = [rule for rule, *_ in self.checks]
        self.read.add(conditions, rules)
        for rule in rules:
            conditions.own_value(rule, "hyper_values")
            for name in settings(rule) if self.timed is None and len(rules) > 1 else ():
                conditions.own_value(rule, name)  # one rule says the values of all
        if self.timed is not None:
            conditions.attribute(type(self.rule), "hyper_values", type(self.rule).hyper_values)
            conditions.attribute(Hyperparameter, "get_dict", Hyperparameter.get_dict)

    def test(self, source: Source) -> Iterator[str]:
        """Return the lines of a function that returns False where parameters or their rules are no longer as they were.
        """
        own, clock, hyper = source.name(self.own, "own"), source.fresh("clock"), source.fresh("hyper")
        differs = f"not {source.name(same_entries, 'same_entries')}({hyper}.__dict__, {own})"
        if list(self.own) == ["_parent"]:  # as nearly always: two comparisons are faster than that of dictionaries
            entries, parent = source.fresh("entries"), source.name(self.parent, "parent")
            differs = f"({entries} := {hyper}.__dict__)['_parent'] is not {parent} or len({entries}) != 1"
        differs = f"type({hyper}) is not {source.name(type(self.rule.hyperparam), 'kind')} or {differs}"
        kind, names = source.name(type(self.rule), "kind"), tuple(self.rule._state)
        yield f"{clock} = {source.name(self.rule, 'rule')}.t"
        for rule, pre, post, hooks, p in self.checks:
            r, before, after = source.name(rule, "rule"), source.name(pre, "pre"), source.name(post, "post")
            hooked = f"{before} or {after}" if hooks is None else (
                f"not {source.name(hooks, 'hooks')}.hold({before}, {after})")
            if names:  # a rule may ask which there are
                hooked += f" or len({r}._state or {source.name(names, 'names')}) != {len(names)}"
            yield f"{hyper} = {r}.hyperparam"
            yield (f"if {source.name(p, 'p')}.update_rule is not {r} or type({r}) is not {kind} or not {r}.enabled "
                   f"or {r}.t != {clock} or {differs} or {hooked}: return False")

    def add(self, p: Any, scaled: bool) -> None:
        """Take in a parameter."""
        rule = p.update_rule
        self.members.append(p)
        hooks = RuleHooks(rule, scaled) if rule._hooks.pre or rule._hooks.post else None
        self.checks.append((rule, rule._hooks.pre, rule._hooks.post, hooks, p))


class RuleHooks:
    """The hooks of one rule, which change its parameter's gradient before and after the update, as they are now."""

    def __init__(self, rule: Any, scaled: bool) -> None:
        self.pre = [StatedHook(hook, scaled, " of a rule") for hook in rule._hooks.pre.values()]
        self.post = [StatedHook(hook, scaled, " of a rule") for hook in rule._hooks.post.values()]
        self._before, self._after = [s.hook for s in self.pre], [s.hook for s in self.post]
        for hook in (*self._before, *self._after):
            if getattr(hook, "needs_norm", False):
                raise NotCompilable(f"the hook {hook.name!r} of a rule takes all parameters")
            if getattr(hook, "needs_noise", False):
                raise NotCompilable(f"the hook {hook.name!r} of a rule draws random numbers between updates")

    def hold(self, pre: dict[str, Any], post: dict[str, Any]) -> bool:
        """Whether a rule's hooks are still these."""
        return [*pre.values()] == self._before and [*post.values()] == self._after


class StatedHook:
    """A hook that states its change of a gradient as an expression, with the reads of that statement.

    Raises unless ``grad_expr`` is the whole truth: no class below the one that states it changes the call. A hook has
    to know of ``scaled`` gradients.
    """

    def __init__(self, hook: Any, scaled: bool, whose: str = "") -> None:
        self.hook = hook
        self.kind = type(hook)
        self.name = f"the hook {getattr(hook, 'name', hook)!r}{whose}"
        self.read = ReadHyperparameters()
        base = next((c for c in self.kind.__mro__ if not _FACTS.isdisjoint(vars(c))), object)
        if "grad_expr" not in vars(base) or not _FACTS.isdisjoint(getattr(hook, "__dict__", _FACTS)) or (
                is_ours(vars(base)["grad_expr"]) and not is_ours(self.kind.__call__)):
            raise NotCompilable(f"{self.name} states no expression")
        if scaled and "scaled_attributes" not in vars(base):
            raise NotCompilable(f"{self.name} states nothing of scaled losses")
        more = 2 if getattr(hook, "needs_own_norms", False) else hook.needs_norm or getattr(hook, "needs_noise", False)
        self.new_gradient({}, *[Symbol(Arg(i)) for i in range(2 + more)])

    def new_gradient(self, given: dict[str, Any], *operands: Any) -> Any:
        """Return the hook's expression of symbols: the parameter, its gradient and its further arguments."""
        stated: Any = Stated(self.hook, given, self.read)
        return state(stated.grad_expr, self.hook, SCALAR, *operands)

    def attribute(self, name: str) -> Any:
        """Return an attribute that the hook states its arithmetic by."""
        return getattr(Stated(self.hook, {}, self.read), name)

    def add_conditions(self, conditions: Conditions) -> None:
        """Append under which conditions the hook does something else."""
        conditions.kind(self.hook)
        conditions.attribute(self.kind, "__call__", self.kind.__call__)
        self.read.add(conditions, (self.hook,))


def idle_test(parameters: Sequence[Any], source: Source) -> Iterator[str]:
    """Return the lines of a function that returns False where one of ``parameters`` is to be updated now."""
    for p in parameters:
        name, rule = source.name(p, "p"), source.literal(p.update_rule, "rule")
        yield f"if {name}.update_rule is not {rule}" + f" or {rule}.enabled" * (p.update_rule is not None) + (
            f" or {name}._array is not None" * (p._array is None)) + ": return False"


def holding(write: Callable[[Source], None]) -> Callable[[], bool]:
    """Return a function that says whether an optimizer would still do what its program does; ``write`` is its test."""
    source = Source("update", "holds()")
    with source.block("try"):
        write(source)
        source.line("return True")
    source.line(f"except {NO_LONGER}: return False")
    return source.function()


NO_LONGER = "(AttributeError, KeyError, ValueError)"  # what a test raises where an object has become another


def write_conditions(source: Source, optimizer: Any, params: Sequence[Any], hooks: Sequence[Any] | None,
                     groups: Sequence[Group], idle: Sequence[Any], conditions: Conditions) -> None:
    """Append lines that return False where an optimizer would not do what its program does; they may raise instead.

    It would if it has the same parameters and ``hooks`` (None if others run those), the parameters have the rules they
    had, and those their settings, hooks and clocks, and all that the program takes over is the library's own.
    """
    own, target, kept = source.name(optimizer, "optimizer"), source.name(optimizer.target, "target"), optimizer._hooks
    found = f"{source.name(all_params, 'all_params')}({target})"
    source.line(f"if {own}.__class__ is not {source.name(type(optimizer), 'kind')} or {own}.target is not {target} or "
                f"{own}._hooks is not {source.literal(kept, 'hooks')} or {found} is not "
                f"{source.name(params, 'params')}: return False")
    if hooks is not None and kept is not None:
        pre = source.name(kept.pre, "pre")
        source.line(f"if [*{pre}.values()] != {source.name(list(hooks), 'before')}: return False" if hooks else
                    f"if {pre}: return False")
    for group in groups:
        source.line(*group.test(source))
    source.line(*idle_test(idle, source), f"if not ({conditions.test(source)}): return False")


def clocks(optimizer: Any, groups: Sequence[Group]) -> Callable[[int], None]:
    """Return a function that moves the clocks of an optimizer and of all rules."""
    source = Source("clocks", "move(by)")
    write_clocks(source, optimizer, groups, "by")
    return source.function()


def write_clocks(source: Source, optimizer: Any, groups: Sequence[Group], by: str) -> None:
    """Append lines that move the clocks of an optimizer and of all rules."""
    for counted in (optimizer, *[check[0] for group in groups for check in group.checks]):
        source.line(f"{source.name(counted, 'counted')}.t += {by}")


_branching: weakref.WeakSet[type] = weakref.WeakSet()  # classes of rules that branch on numbers seen to change

# What tells how a hook is called and what it is to know: where a class changes any of these, it states another hook.
_FACTS = frozenset(("grad_expr", "__call__", "call_for_each_param", "needs_norm",
                    "needs_own_norms", "needs_noise", "normal_deviation"))
_OWN = frozenset(("_state", "hyperparam", "_hooks", "t", "enabled", "_fp32_param", "_use_fp32_update"))


def prepare(rule: Any, parameter: Any, dtype: Any) -> None:
    """Make the state of a rule, if it has none; raise unless its arrays have this dtype."""
    rule._prepare_state(updated_by(rule, parameter))
    if not all([getattr(a, "dtype", None) == dtype for a in rule._state.values()]):
        raise NotCompilable(f"the state of a {type(rule).__name__} has another dtype than its parameter")


def share_memory(parameters: Sequence[Any], grads: Sequence[Any]) -> bool:
    """Whether gradients may lie in the memory of parameters, of their states or of each other."""
    changed = [a for p in parameters for a in (p._array, *(p.update_rule._state or {}).values()) if has_address(a)]
    given = [g for g in grads if g is not None]
    own, found = [owner(a) for a in changed], [owner(a) for a in given]
    ids = {*map(id, found)}
    if len(ids) == len(found) and ids.isdisjoint(map(id, own)) and all([a.base is None for a in (*own, *found)]):
        return False  # each has memory of its own
    return not Spans([*changed, *given]).disjoint


def write_apart(source: Source, parameters: Sequence[Any], grads: Sequence[str]) -> None:
    """Append a test that returns False unless gradients, parameters and states are arrays with memory of their own."""
    every = [*grads, *[f"{source.name(p, 'p')}._array" for p in parameters], *[
        RuleStateBinding(p.update_rule, p, n).text(source) for p in parameters for n in p.update_rule._state or ()]]
    for i in range(len(grads), len(every)):
        name = source.fresh("array")
        source.line(f"{name} = {every[i]}")
        every[i] = name
    kinds = " is ".join([source.name(np.ndarray, "ndarray"), *[f"type({x})" for x in every]])
    source.line(f"if not ({kinds} and {' is '.join([f'{x}.base' for x in every])} is None "
                f"and len({{{', '.join([f'id({x})' for x in every])}}}) == {len(every)}): return False")


def timed_values(rule: Any) -> tuple[str, ...] | None:
    """Return which of a rule's values follow from its clock; None where they may follow from more than hyperparameters.
    """
    if not (is_ours(type(rule).hyper_values) and "hyper_values" not in vars(rule) and is_ours(Hyperparameter.get_dict)
            and are_plain(rule.hyperparam)):
        return None
    return following(rule, {COUNTED})


def are_plain(own: Any) -> bool:
    """Whether a rule's hyperparameters are entries of its own and of its optimizer's, and no more."""
    return (type(own) is type(own.parent) is Hyperparameter and own.parent.parent is None
            and "get_dict" not in vars(own) and "get_dict" not in vars(own.parent))


def following(rule: Any, names: Collection[str]) -> tuple[str, ...] | None:
    """Return which of a rule's values follow from its clock or hyperparameters of ``names``; None where none can tell.
    """
    read, own = ReadHyperparameters(), Hyperparameter()
    vars(own).update({n: Symbol(Arg(0)) if n in names else v for n, v in rule.hyperparam.get_dict().items()})
    clock = Symbol(Arg(0)) if COUNTED in names else rule.t + 1
    stated: Any = Stated(rule, {"hyperparam": own, COUNTED: clock}, read)
    try:
        values = state(stated.hyper_values, rule)
    except NotCompilable:
        return None
    if read.own or not all(map(_is_ours_throughout, read.of_class.values())):  # any of which may change
        return None
    return tuple([name for name, value in values.items() if isinstance(value, Symbol)])


def _is_ours_throughout(function: Any) -> bool:
    """Whether a function is the library's, and so is what it calls by name."""
    return is_ours(function) and all(
        is_ours(found) for name in function.__code__.co_names
        if callable(found := function.__globals__.get(name)) and not isinstance(found, type))


def _differ_in(now: dict[str, Any], known: dict[str, Any], names: Collection[str]) -> bool:
    """Whether dictionaries have the same keys, and differ, if at all, in numbers of ``names`` only."""
    return now.keys() == known.keys() and all([
        x is known[n] or (is_number(x) if n in names else _alike(x, known[n])) for n, x in now.items()])


def settings(rule: Any) -> dict[str, Any]:
    """The attributes of a rule besides counters, states and hyperparameters: its class's own settings."""
    return {k: v for k, v in vars(rule).items() if k not in _OWN}


def same_entries(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether dictionaries are equal, numbers among the values of one type; arrays are so where they are the same."""
    return a.keys() == b.keys() and all([x is b[name] or _alike(x, b[name]) for name, x in a.items()])


def _alike(x: Any, y: Any) -> bool:
    if is_plain(x):
        return same(x, y)
    try:
        return type(x) is type(y) and bool(x == y)
    except ValueError:
        return False


def is_number(value: Any) -> bool:
    """Whether a hyperparameter may be an input."""
    return type(value) is float or isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
