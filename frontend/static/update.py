"""The optimizer's update as part of the compiled program: all parameters in one kernel.

An update rule states its arithmetic once (``update_exprs``), hooks state theirs (``grad_expr``); run on symbols they
give the expressions of one ``foreach`` node per group of parameters that are updated alike. Hyperparameters are
literals until they are seen to change; from then on they are inputs.
"""
from __future__ import annotations

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from kusari.ir import PRIMITIVES, Arg, Builder, Expr, Graph, Value, tensor_type

from ..backprop import Scaled
from ..link.walk import all_params
from ..symbolic import SCALAR, Symbol, cast, expr_of
from ..update_rule import UpdateRule
from .arguments import Arguments, Stale
from .compile import SCALAR_BYTES, compile_graph
from .overlap import Spans
from .tape import ParameterBinding


@dataclass(frozen=True, eq=False)
class RuleStateBinding:
    """A value that is the state ``name`` of an update rule."""

    rule: Any
    parameter: Any
    name: str

    def array(self) -> Any:
        """The array bound now; states that are not there yet are made."""
        state = self.rule._state
        if not state:
            self.rule._prepare_state(self.parameter)
            state = self.rule._state
        return state[self.name]


class Group:
    """Parameters whose rules have one class and get their hyperparameters from one place, at the same step."""

    def __init__(self, rule: Any, dtype: Any) -> None:
        self.rule = rule
        self.dtype = dtype
        self.members: list[Any] = []
        self.own = dict(vars(rule.hyperparam))
        # Values that only repeat an optimizer's hyperparameters need no look while those stay the same.
        self.parent = rule.hyperparam.parent
        self.plain = (type(rule).hyper_values is UpdateRule.hyper_values and self.parent is not None
                      and self.parent.parent is None)
        self.parent_values: dict[str, Any] | None = None
        # What has to stay as it is for the group to hold: (rule, its hooks before and after, as they were if there were
        # any, its own hyperparameters).
        self.checks: list[tuple[Any, dict[str, Any], dict[str, Any], RuleHooks | None, dict[str, Any]]] = []
        self.values: dict[str, Any] = {}
        self.dynamic: tuple[str, ...] = ()

    def next_values(self) -> dict[str, Any]:
        """The hyperparameters of the step after this one: what differs from this step's is an input from the start."""
        self.rule.t += 1
        try:
            return self.rule.hyper_values()
        finally:
            self.rule.t -= 1

    def add(self, p: Any) -> None:
        """Take in a parameter."""
        rule = p.update_rule
        self.members.append(p)
        hooks = RuleHooks(rule) if rule._hooks.pre or rule._hooks.post else None
        self.checks.append((rule, rule._hooks.pre, rule._hooks.post, hooks, vars(rule.hyperparam)))


class RuleHooks:
    """The hooks of one rule, which change its parameter's gradient before and after the update, as they are now."""

    def __init__(self, rule: Any) -> None:
        self.pre = tuple(rule._hooks.pre.values())
        self.post = tuple(rule._hooks.post.values())
        for hook in (*self.pre, *self.post):
            _check_stated(hook, " of a rule")
            if getattr(hook, "needs_norm", False):
                raise NotCompilable(f"the hook {hook.name!r} of a rule takes all parameters")
        self._values = [dict(vars(h)) for h in (*self.pre, *self.post)]

    def hold(self, pre: dict[str, Any], post: dict[str, Any]) -> bool:
        """Whether a rule's hooks are still these, with the same attributes."""
        now = (*pre.values(), *post.values())
        return len(pre) == len(self.pre) and now == (*self.pre, *self.post) and [vars(h) for h in now] == self._values


def _check_stated(hook: Any, whose: str = "") -> None:
    """Raise unless ``grad_expr`` is the whole truth: no class below the one that states it changes the call."""
    for base in type(hook).__mro__:
        if "grad_expr" in vars(base):
            return
        if "__call__" in vars(base):
            break
    raise NotCompilable(f"the hook {getattr(hook, 'name', hook)!r}{whose} states no expression")


_OWN = frozenset(("_state", "hyperparam", "_hooks", "t", "enabled", "_fp32_param", "_use_fp32_update"))


def _settings(rule: Any) -> dict[str, Any]:
    """What a rule has besides counters, states and hyperparameters: its class's own settings."""
    return {k: v for k, v in vars(rule).items() if k not in _OWN}


class NotCompilable(Exception):
    """An update has a part that states no expressions; the message says which."""


class UpdateProgram:
    """What an optimizer's update consists of, for as long as ``still_holds``.

    ``hooks`` says whether the optimizer's hooks are part of it or have run before it. With ``anywhere`` parameters may
    be on any device, as those who do not run the update here may want it.
    """

    def __init__(self, optimizer: Any, with_hooks: bool, anywhere: bool = False) -> None:
        self.optimizer = optimizer
        self.anywhere = anywhere
        if not optimizer.updates_by_rules():
            raise NotCompilable(f"{type(optimizer).__name__} updates parameters in a way of its own")
        self.params = all_params(optimizer.target)
        self.with_hooks = with_hooks
        self.hooks = tuple(optimizer._hooks.pre.values()) if with_hooks and optimizer._hooks is not None else ()
        for hook in self.hooks:
            _check_stated(hook)
        self._hook_values = [dict(vars(h)) for h in self.hooks]
        # Attributes of hooks, by the hook's id, that are inputs instead of literals.
        self.hook_inputs: dict[int, list[tuple[str, Value]]] = {}
        if optimizer._loss_scale is not None or self._scaled():
            raise NotCompilable("the loss is scaled")
        self.varying = False  # whether any hyperparameter is an input
        self.groups: list[Group] = []
        self.members = [p for p in self.params if p.update_rule is not None and p.update_rule.enabled]
        self.idle = [p for p in self.params if not (p.update_rule is not None and p.update_rule.enabled)]
        if len({id(p) for p in self.members}) < len(self.members):
            raise NotCompilable("a parameter stands in two places")
        for p in self.members:
            self._join(p)
        if not Spans(a for p in self.members if isinstance(a := p._array, np.ndarray)).disjoint:
            raise NotCompilable("parameters share memory")

    @property
    def changes_gradients(self) -> bool:
        """Whether hooks are part of it: those change the gradients in place."""
        return bool(self.hooks) or any(check[3] is not None for group in self.groups for check in group.checks)

    def _scaled(self) -> bool:
        """Whether gradients are to be divided by the scale of a loss."""
        return Scaled.ever and any(p._loss_scale is not None for p in self.params)

    def _join(self, p: Any) -> None:
        rule = p.update_rule
        if not rule.has_exprs() or rule.update_exprs is None:
            raise NotCompilable(f"{type(rule).__name__} states no expressions")
        if p._array is None:
            raise NotCompilable("a parameter has no array yet")
        if p._array.dtype.kind != "f" or p._array.dtype.itemsize < 4 or not (
                self.anywhere or isinstance(p._array, np.ndarray)):
            raise NotCompilable("a parameter is not a float32 or float64 array" + " on the CPU" * (not self.anywhere))
        rule._prepare_state(p)
        for group in self.groups:
            g = group.rule
            if type(g) is type(rule) and group.dtype == p._array.dtype and g.t == rule.t \
                    and group.own == vars(rule.hyperparam) and tuple(g._state) == tuple(rule._state) \
                    and _settings(g) == _settings(rule):
                group.add(p)
                return
        group = Group(rule, p._array.dtype)
        group.add(p)
        self.groups.append(group)

    def still_holds(self) -> bool:
        """Whether the optimizer would still do what this program was made from."""
        optimizer = self.optimizer
        if all_params(optimizer.target) is not self.params or optimizer._loss_scale is not None or self._scaled():
            return False
        hooks = optimizer._hooks
        if self.with_hooks and hooks is not None and (self.hooks or hooks.pre):
            if tuple(hooks.pre.values()) != self.hooks:
                return False
            for hook, values in zip(self.hooks, self._hook_values, strict=True):
                if vars(hook) != values:
                    return False
        for p in self.idle:
            if p.update_rule is not None and p.update_rule.enabled:
                return False
        for group in self.groups:
            t, own = group.rule.t, group.own
            for rule, pre, post, hooks, hyper in group.checks:
                if not rule.enabled or rule.t != t or hyper != own or (
                        pre or post if hooks is None else not hooks.hold(pre, post)):
                    return False
        return True

    def advance(self) -> bool:
        """Count the step and take over the hyperparameters; returns False when one changed that is a literal."""
        fits = True
        for group in self.groups:
            for check in group.checks:
                check[0].t += 1
            if group.plain and vars(group.parent) == group.parent_values:
                continue
            now = group.rule.hyper_values()
            if now != group.values:
                before = group.values or group.next_values()
                changed = tuple([k for k, v in now.items() if v != before.get(k) and k not in group.dynamic])
                if changed:
                    group.dynamic += changed
                    self.varying = True
                    fits = False
                group.values = now
                group.parent_values = dict(vars(group.parent))
        return fits

    def retreat(self) -> None:
        """Take back what ``advance`` counted: the step failed."""
        for group in self.groups:
            for check in group.checks:
                check[0].t -= 1

    def hyper_arrays(self) -> list[Any]:
        """Return the values of the hyperparameters that are inputs, in the order of ``emit``."""
        return [np.asarray(g.values[k], g.dtype) for g in self.groups for k in g.dynamic]

    def emit(self, b: Builder, grads: dict[int, Value], params: dict[int, Value],
             ) -> tuple[list[Value], list[tuple[Value, RuleStateBinding]], dict[int, Value]]:
        """Append the update to ``b``.

        ``grads`` and ``params`` map ``id(parameter)`` to values. Returns the hyperparameters' inputs, the states with
        their bindings, and the gradients as the hooks left them.
        """
        hyper_inputs: list[Value] = []
        states: list[tuple[Value, RuleStateBinding]] = []
        grads = dict(grads)
        for hook in self.hooks:
            self._emit_hook(b, hook, grads, params)
        for group in self.groups:
            own_hooks = [(p, check[3]) for p, check in zip(group.members, group.checks, strict=True)
                         if check[3] is not None]
            for p, hooks in own_hooks:
                for hook in hooks.pre:
                    grads[id(p)] = self._emit_one(b, hook, grads[id(p)], params[id(p)])
            shared = [Value(tensor_type(group.dtype, ()), name) for name in group.dynamic]
            hyper_inputs += shared
            hyper = SimpleNamespace(**group.values)
            for i, name in enumerate(group.dynamic):
                setattr(hyper, name, Symbol(Arg(i)))
            names = tuple(group.rule._state)
            first = len(shared)
            p_symbol, g_symbol = Symbol(Arg(first)), Symbol(Arg(first + 1))
            new = group.rule.update_exprs(SCALAR, hyper, p_symbol, g_symbol, **{
                name: Symbol(Arg(first + 2 + i)) for i, name in enumerate(names)})
            targets = list(new)
            exprs: tuple[Expr, ...] = tuple(expr_of(new[t]) for t in targets)
            operands: list[Value] = []
            written: list[Value] = []
            for p in group.members:
                own: dict[str, Value] = {"param": params[id(p)]}
                for name in names:
                    array = p.update_rule._state[name]
                    own[name] = Value(tensor_type(array.dtype, array.shape), name)
                    states.append((own[name], RuleStateBinding(p.update_rule, p, name)))
                operands += [own["param"], grads[id(p)], *(own[n] for n in names)]
                written += [own[t] for t in targets]
            results = b.emit(PRIMITIVES["foreach"], *shared, *operands, exprs=exprs, shared=len(shared),
                             arity=2 + len(names))
            updated = dict(zip(written, results, strict=True))
            for target, result in updated.items():
                b.assign(target, result)
            for p, hooks in own_hooks:
                for hook in hooks.post:
                    param = params[id(p)]
                    grads[id(p)] = self._emit_one(b, hook, grads[id(p)], updated.get(param, param))
        return hyper_inputs, states, grads

    def _emit_hook(self, b: Builder, hook: Any, grads: dict[int, Value], params: dict[int, Value]) -> None:
        norm: Value | None = None
        if hook.needs_norm:
            total: Value | None = None
            for p in self.params:
                square = _square(b, grads[id(p)])
                total = square if total is None else b.call("add", total, square)
            if total is None:
                return
            norm = b.call("sqrt", total)
        for p in self.params:
            if norm is not None or not hook.call_for_each_param or p.update_rule is not None:
                grads[id(p)] = self._emit_one(b, hook, grads[id(p)], params[id(p)], norm)

    def _emit_one(self, b: Builder, hook: Any, grad: Value, param: Value, norm: Value | None = None) -> Value:
        """Append what a hook does to one gradient; ``norm`` is that of all of them, for hooks that take it."""
        more = self.hook_inputs.get(id(hook), [])
        symbolic = copy.copy(hook)
        for i, (name, _) in enumerate(more):
            setattr(symbolic, name, cast(Symbol(Arg(2 + i)), grad.tensor.dtype))
        # Operands: the gradient, the norm or the parameter, what is an input, then the norms of these two.
        last = 2 + len(more)
        norms: list[Value] = []
        if norm is not None:
            found = symbolic.grad_expr(SCALAR, Symbol(Arg(last)), Symbol(Arg(0)), Symbol(Arg(1)))
        elif getattr(hook, "needs_own_norms", False):
            norms = [b.call("sqrt", _square(b, v)) for v in (param, grad)]
            found = symbolic.grad_expr(SCALAR, Symbol(Arg(1)), Symbol(Arg(0)), Symbol(Arg(last)), Symbol(Arg(last + 1)))
        else:
            found = symbolic.grad_expr(SCALAR, Symbol(Arg(1)), Symbol(Arg(0)))
        return b.map(expr_of(found), grad, param if norm is None else norm, *(v for _, v in more), *norms)


def _square(b: Builder, x: Value) -> Value:
    """Append the sum of the squares of ``x``."""
    return b.reshape(b.reduce("sum", b.call("multiply", x, x)), ())


class CompiledUpdate:
    """The update of one optimizer, compiled on its own: for gradients that are there already."""

    def __init__(self, optimizer: Any) -> None:
        try:
            self.program = UpdateProgram(optimizer, with_hooks=True)
        except NotCompilable:
            self.program = UpdateProgram(optimizer, with_hooks=False)
        self._arguments: Arguments | None = None

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of an optimizer compiles for itself."""

    def __reduce__(self) -> Any:
        return type(None), ()

    def still_holds(self) -> bool:
        """Whether the optimizer would still do what was compiled."""
        return self.program.still_holds()

    @property
    def with_hooks(self) -> bool:
        """Whether the optimizer's pre-update hooks are compiled too."""
        return self.program.with_hooks

    def __call__(self, grads: list[Any]) -> None:
        """Update all parameters, given their gradients."""
        program = self.program
        if not program.advance() or self._arguments is None:
            self._compile()
        arrays = [] if program.changes_gradients else grads
        if len(program.members) < len(grads) and arrays:
            arrays = [p.grad for p in program.members]
        if program.varying:
            arrays = program.hyper_arrays() + arrays
        try:
            self._arguments.run(arrays)  # type: ignore[union-attr]
        except Stale:
            self._compile()
            try:
                self._arguments.run(arrays)  # type: ignore[union-attr]
            except Stale:  # no array is what it was compiled for: as if nothing was
                self._arguments = None
                program.retreat()
                program.optimizer.reallocate_cleared_grads()
                for hook in program.hooks:
                    program.optimizer.call_hook(hook)
                program.optimizer.update_params()

    def _compile(self) -> None:
        program = self.program
        b = Builder("optimizer")
        used = program.params if program.hooks else program.members
        params = {id(p): Value(tensor_type(p._array.dtype, p._array.shape), p.name or "param") for p in used}
        grads = {id(p): Value(tensor_type(p._array.dtype, p._array.shape), "grad") for p in used}
        hyper, states, final = program.emit(b, grads, params)
        bindings: list[Any] = [ParameterBinding(p) for p in used]
        values = [params[id(p)] for p in used]
        inputs = [grads[id(p)] for p in used]
        if program.changes_gradients:  # hooks change gradients in place: so do we
            bindings += [GradientBinding(p) for p in used]
            values += inputs
            for p in used:
                if final[id(p)] is not grads[id(p)]:
                    b.assign(grads[id(p)], final[id(p)])
            inputs = []
        graph = Graph("update", (*hyper, *inputs), (*values, *(v for v, _ in states)), (), tuple(b.nodes), ())
        self._arguments = Arguments(compile_graph(graph, copy_in=SCALAR_BYTES), [*bindings, *(s for _, s in states)])


@dataclass(frozen=True, eq=False)
class GradientBinding:
    """A value that is the gradient of a parameter, written to: nearly always a new array."""

    parameter: Any
    passing = True

    def array(self) -> Any:
        """The array bound now."""
        return self.parameter.grad
