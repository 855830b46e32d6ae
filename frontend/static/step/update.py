"""The optimizer's update as part of the compiled program: one kernel for all parameters that are updated alike.

An update rule states its arithmetic once (``update_exprs``), hooks state theirs (``grad_expr``); run on symbols they
give the expressions of one ``foreach`` node per group of parameters that are updated alike. Hyperparameters are
literals until they are seen to change; from then on they are inputs.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import PRIMITIVES, SCALAR, Arg, Builder, Expr, Symbol, Value, tensor_type
from kusari.ir.symbol import cast, expr_of

from ...backends.cuda import is_cupy_array
from ...epochs import Scaled
from ...link.walk import all_params
from ...update_rule import UpdateRule
from ..arrays.overlap import Spans, has_address
from ..errors import NotCompilable, Stale, is_from_handler
from ..source import Source
from .loss_scaling import Scaling, chosen, emit_finite, settle
from .reduction import Mean, means_alike
from .rule_groups import (
    Group,
    RuleStateBinding,
    StatedHook,
    clocks,
    holding,
    prepare,
    same_entries,
    settings,
    write_conditions,
)
from .taken_over import HOOKS, STEP, UPDATE, Conditions, Looks

if TYPE_CHECKING:
    from ..card.place import CardPlace


LONGEST_WAIT_CALLS = 1024


class UpdateProgram:
    """The parts of an optimizer's update, for as long as ``still_holds``.

    ``hooks`` says whether the optimizer's hooks are part of it or have run before it. Where it is part of a ``whole``
    step, losses are scaled there. With ``anywhere`` parameters may be on any device, for callers that do not run the
    update here; they take no scales, no noise and no float16 parameters.
    """

    def __init__(self, optimizer: Any, with_hooks: bool, anywhere: bool = False, whole: bool = False,
                 plain: bool = False) -> None:
        self.optimizer = optimizer
        self.anywhere = anywhere
        self.plain = plain or anywhere
        self.params = all_params(optimizer.target)
        self._looks = Looks(optimizer, self.params, (UPDATE, *[HOOKS] * with_hooks, *[STEP] * whole))
        self.with_hooks = with_hooks
        self.hooks = tuple(optimizer._hooks.pre.values()) if with_hooks and optimizer._hooks is not None else ()
        # Attributes of hooks, by the hook's id, that are inputs instead of literals.
        self.hook_inputs: dict[int, list[tuple[str, Value]]] = {}
        self.scaling = self._scaling(whole)
        self.more: list[tuple[Value, Callable[[], Any]]] = []  # further inputs, and what gives their arrays
        self.flags: tuple[Value, ...] = ()  # whether all gradients are finite, and which, with dynamic scaling
        self.general_steps = 0  # steps that were not the usual case
        self.groups: list[Group] = []
        self.members = [p for p in self.params if p.update_rule is not None and p.update_rule.enabled]
        self.idle = [p for p in self.params if not (p.update_rule is not None and p.update_rule.enabled)]
        if len({id(p) for p in self.members}) < len(self.members):
            raise NotCompilable("a parameter stands in two places")
        self.place = None if anywhere else _place_of([p._array for p in self.members])
        for p in self.members:
            self._join(p)
        self.stated = {id(hook): self._stated(hook) for hook in self.hooks}
        for group in self.groups:
            group.try_out()
        self._clocks = clocks(optimizer, self.groups)
        if not Spans(a for p in self.members if has_address(a := p._array)).disjoint:
            raise NotCompilable("parameters share memory")
        # Whether hooks are part of it: those change the gradients in place.
        self.changes_gradients = bool(self.hooks) or self.scaling is not None or any(
            check[3] is not None for group in self.groups for check in group.checks)
        self._read = self._reads()
        self._hold = (lambda: False) if anywhere else holding(self.write_test)  # others are not asked

    def _scaling(self, whole: bool) -> Scaling | None:
        """Return how gradients are scaled, if they are; raise unless the update can undo it."""
        scaling = Scaling.of(self.optimizer, self.params, whole)
        if scaling is not None and self.plain:
            raise NotCompilable("the loss is scaled")
        if scaling is not None and scaling.dynamic and not self.with_hooks:
            raise NotCompilable("hooks come between the look for what is not finite and the update")
        return scaling

    def _stated(self, hook: Any) -> StatedHook:
        """Return a hook of the optimizer as stated; raise unless it can be stated for these parameters."""
        stated = StatedHook(hook, self.scaling is not None)
        name = hook.name
        if getattr(hook, "needs_noise", False):
            if self.plain:
                raise NotCompilable(f"the hook {name!r} draws random numbers")
            if any(p.update_rule is None for p in self.params):
                raise NotCompilable(f"the hook {name!r} needs the rule of a parameter that has none")
            if hook.normal_deviation(0) is None:
                raise NotCompilable(f"the hook {name!r} has a noise function of the user's own")
        elif (hook.needs_norm or getattr(hook, "needs_own_norms", False)) and any(
                p._array is not None and p._array.dtype == np.float16 for p in self.params):
            raise NotCompilable(f"the hook {name!r} takes norms of float16 gradients, which may overflow")
        return stated

    def _join(self, p: Any) -> None:
        rule = p.update_rule
        if not rule.has_exprs() or rule.update_exprs is None:
            raise NotCompilable(f"{type(rule).__name__} states no expressions")
        if p._array is None:
            raise NotCompilable("a parameter has no array yet")
        dtype = p._array.dtype
        if dtype.kind != "f" or self.plain and dtype.itemsize < 4 or not (self.anywhere or has_address(p._array)):
            raise NotCompilable("a parameter is not a float32 or float64 array")
        wide = rule._use_fp32_update and dtype == np.float16
        if dtype == np.float16 and not wide and rule.computes_in_float32 \
                and type(rule).update_core_cpu is not UpdateRule.update_core_cpu:
            raise NotCompilable(f"{type(rule).__name__} rounds its states to float16 before it uses them; "
                                "with use_fp32_update() it does not")
        prepare(rule, p, np.dtype(np.float32) if wide else dtype)
        for group in self.groups:
            g = group.rule
            if type(g) is type(rule) and group.dtype == dtype and group.wide == wide and g.t == rule.t \
                    and same_entries(group.own, vars(rule.hyperparam)) \
                    and type(g.hyperparam) is type(rule.hyperparam) and tuple(g._state) == tuple(rule._state) \
                    and same_entries(settings(g), settings(rule)):
                group.add(p, self.scaling is not None)
                return
        group = Group(rule, dtype, wide)
        group.add(p, self.scaling is not None)
        self.groups.append(group)

    def still_holds(self) -> bool:
        """Whether the optimizer would still do what this program was made from."""
        scaling = self.scaling
        if self.optimizer._loss_scale is not None or self._scaled() if scaling is None else not scaling.holds():
            return False
        return self._hold()

    def write_test(self, source: Source) -> None:
        """Append lines that return False, or raise, where the optimizer would do something else; scales apart."""
        write_conditions(source, self.optimizer, self.params, self.hooks if self.with_hooks else None, self.groups,
                         self.idle, self.conditions())

    def _reads(self) -> list[Any]:
        """Return the reads by which rules and hooks have stated their arithmetic."""
        return [x.read.kept() for x in (*self.groups, *self._every_hook())]

    def _every_hook(self) -> Iterator[StatedHook]:
        yield from self.stated.values()
        for group in self.groups:
            for _, _, _, hooks, _ in group.checks:
                yield from () if hooks is None else (*hooks.pre, *hooks.post)

    def conditions(self) -> Conditions:
        """Return under which conditions, besides those of rules and parameters, this holds no longer."""
        conditions = self._looks.conditions.copy()
        for group in self.groups:
            group.add_conditions(conditions)
        for stated in self._every_hook():
            stated.add_conditions(conditions)
        return conditions

    def _scaled(self) -> bool:
        """Whether gradients that are there are to be divided by the scale of a loss."""
        return Scaled.ever and any(p._loss_scale is not None for p in self.params)

    def settle(self, flags: Sequence[Any]) -> None:
        """Take note of which gradients were finite: where one was not, nothing was updated."""
        if not flags[0]:
            self.retreat()
        settle(self.optimizer, self.params, flags)
        if not flags[0]:
            self.optimizer.t += 1

    def advance(self) -> bool:
        """Count the step and take over the hyperparameters; returns False when one changed that is a literal.

        Raises ``Stale`` where a rule raises: define-by-run finds out at which parameter, and what is left then.
        """
        self._clocks(1)
        try:
            return all([group.advance() for group in self.groups])
        except BaseException as error:
            self.retreat()
            for group in self.groups:
                group.values = {}  # some may have been taken over
            if isinstance(error, NotCompilable) or not isinstance(error, Exception) or is_from_handler(error):
                raise
            raise Stale(f"hyperparameters have no values: {error}") from error

    def retreat(self) -> None:
        """Undo the count of ``advance``: the step failed."""
        self._clocks(-1)
        for group in self.groups:
            group.parent_values = {}

    def hyper_arrays(self) -> list[Any]:
        """Return the values of the hyperparameters that are inputs, and of ``more``, in the order of ``emit``."""
        try:
            found = [np.asarray(g.values[k], g.inner) for g in self.groups for k in g.dynamic]
        except (TypeError, ValueError, OverflowError) as error:
            raise Stale(f"hyperparameters are no numbers of their parameters' dtype: {error}") from error
        return [*[now() for _, now in self.more], *found] if self.more else found

    def _input(self, name: str, dtype: Any, now: Callable[[], Any]) -> Value:
        """Return a number that is another in every step, the same value for the same ``name``."""
        for value, _ in self.more:
            if value.hint == name:
                return value
        value = Value(tensor_type(dtype, ()), name)
        self.more.append((value, lambda: np.asarray(now(), dtype)))
        return value

    def _scale(self, p: Any) -> Value | None:
        """The scale of the gradient of ``p``, by which it is divided; None if it is not scaled."""
        scaling = self.scaling
        if scaling is None or id(p) not in scaling.reached:
            return None
        kind = np.promote_types(p._array.dtype, np.float32)
        return self._input(f"scale_{kind.name}", kind, scaling.number)

    def emit(self, b: Builder, grads: Mapping[int, Any], params: dict[int, Value],
             ) -> tuple[list[Value], list[tuple[Value, RuleStateBinding]], dict[int, Any]]:
        """Append the update to ``b``.

        ``grads`` and ``params`` map ``id(parameter)`` to values; a gradient may be a `Mean`, and stays one where
        nothing but the update reads it. Returns the hyperparameters' inputs, the states with their bindings, and the
        gradients as the hooks left them.
        """
        hyper_inputs: list[Value] = []
        states: list[tuple[Value, RuleStateBinding]] = []
        grads = {i: g.value(b) if isinstance(g, Mean) and self.changes_gradients else g for i, g in grads.items()}
        self.more = []
        every: Value | None = None
        if self.scaling is not None and self.scaling.dynamic:
            self.flags = emit_finite(b, [grads[id(p)] for p in self.params])
            every = self.flags[0]
        for hook in self.hooks:
            self._emit_hook(b, self.stated[id(hook)], grads, params)
        for group in self.groups:
            _require_alike(group)
            own: list[dict[str, Any]] = []
            for p, check in zip(group.members, group.checks, strict=True):
                one = {"grad": grads[id(p)], "before": grads[id(p)]}
                one["start"] = one["param"] = params[id(p)]
                if group.wide:
                    one["param"] = Value(tensor_type(group.inner, p._array.shape), "wide")
                    states.append((one["param"], RuleStateBinding(p.update_rule, p, "param")))
                    one["start"] = _start(b, one["param"], params[id(p)])
                    one["grad"] = b.cast(one["grad"], group.inner)
                scale = self._scale(p)
                if scale is not None:
                    divided = b.call("true_divide", one["grad"], scale)
                    one["grad"] = b.cast(divided, one["grad"].tensor.dtype)
                seen = None if group.wide else scale  # by hooks
                for hook in check[3].pre if check[3] is not None else ():
                    one["grad"] = self._emit_one(b, hook, one["grad"], one["start"], scale=seen)
                own.append(one)
            shared = [Value(tensor_type(group.inner, ()), name) for name in group.dynamic]
            hyper_inputs += shared
            states += self._emit_group(b, group, shared, own, every)
            for p, check, one in zip(group.members, group.checks, own, strict=True):
                for hook in check[3].post if check[3] is not None else ():
                    one["grad"] = self._emit_one(b, hook, one["grad"], one["updated"],
                                                 scale=None if group.wide else self._scale(p))
                new = one["before"] if group.wide else one["grad"]
                grads[id(p)] = chosen(b, every, new, one["before"])
                if group.wide:
                    narrow = b.cast(one["updated"], group.dtype)
                    b.assign(params[id(p)], chosen(b, every, narrow, params[id(p)]))
        if not self.anywhere and self._read != (read := self._reads()):
            self._read, self._hold = read, holding(self.write_test)
        return [*[v for v, _ in self.more], *hyper_inputs], states, grads

    def _emit_group(self, b: Builder, group: Group, shared: list[Value], own: list[dict[str, Any]],
                    every: Value | None) -> list[tuple[Value, RuleStateBinding]]:
        """Append the update of a group, where ``every`` gradient is finite; returns states with their bindings.

        ``own`` has for each member the values of its gradient, of its parameter and of its start; appended is the value
        that the parameter is ``updated`` to.
        """
        hyper = SimpleNamespace(**group.values)
        for i, name in enumerate(group.dynamic):
            setattr(hyper, name, Symbol(Arg(i)))
        asked = [] if every is None else [every]
        names = tuple(group.rule._state)
        first = len(shared) + len(asked)
        widened = group.inner != group.dtype and not group.wide
        grads = means_alike(b, [one["grad"] for one in own])
        behind = 1 + len(grads[0].parts)  # the parameter and the parts of its gradient
        symbols = [Symbol(Arg(first + i)) for i in range(behind + len(names))]
        wide = [cast(s, group.inner) for s in symbols] if widened else symbols
        new = group.new_values(wide[0], grads[0].formula(wide[1:behind]),
                               dict(zip(names, wide[behind:], strict=True)), hyper)
        old = {"param": symbols[0], **dict(zip(names, symbols[behind:], strict=True))}
        targets = list(new)
        found = [cast(new[t], group.dtype) if widened else new[t] for t in targets]
        if asked:
            found = [SCALAR.where(Symbol(Arg(len(shared))), x, old[t]) for x, t in zip(found, targets, strict=True)]
        exprs: tuple[Expr, ...] = tuple(expr_of(x) for x in found)
        states: list[tuple[Value, RuleStateBinding]] = []
        operands: list[Value] = []
        written: list[Value] = []
        for p, one, grad in zip(group.members, own, grads, strict=True):
            for name in names:
                array = p.update_rule._state[name]
                value = Value(tensor_type(array.dtype, array.shape), name)
                one[f"state {name}"] = value
                states.append((value, RuleStateBinding(p.update_rule, p, name)))
            operands += [one["start"], *grad.parts, *(one[f"state {n}"] for n in names)]
            written += [one["param"] if t == "param" else one[f"state {t}"] for t in targets]
        results = b.emit(PRIMITIVES["foreach"], *shared, *asked, *operands, exprs=exprs,
                         shared=len(shared) + len(asked), arity=behind + len(names))
        updated = dict(zip(written, results, strict=True))
        for one in own:
            one["updated"] = updated.get(one["param"], one["start"])
        for target, result in updated.items():
            b.assign(target, result)
        return states

    def _emit_hook(self, b: Builder, stated: StatedHook, grads: dict[int, Value], params: dict[int, Value]) -> None:
        hook = stated.hook
        norm: Value | None = None
        if hook.needs_norm:
            total: Value | None = None
            for p in self.params:
                square = _square(b, grads[id(p)])
                total = square if total is None else b.call("add", total, square)
            if total is None:
                return
            norm = b.call("sqrt", total)
        if getattr(hook, "needs_noise", False):
            self._emit_noise(b, stated, grads)
            return
        for p in self.params:
            scale = self._scale(p) if self.scaling is not None and hook.scaled_attributes else None
            grads[id(p)] = self._emit_one(b, stated, grads[id(p)], params[id(p)], norm, scale)

    def _emit_noise(self, b: Builder, stated: StatedHook, grads: dict[int, Value]) -> None:
        """Append normally distributed noise, drawn as define-by-run draws it; a rule's clock gives its deviation."""
        hook = stated.hook
        counted = {id(p) for p in self.members}
        for p in self.params:
            rule, ahead = p.update_rule, int(id(p) in counted)  # hooks see the clock before the step is counted
            group = next((i for i, g in enumerate(self.groups) if any(m is p for m in g.members)), f"idle{id(p)}")
            deviation = self._input(f"deviation_{id(hook)}_{group}", np.float64,
                                    lambda rule=rule, ahead=ahead: hook.normal_deviation(rule.t - ahead))
            grad = grads[id(p)]
            noise = b.call("multiply", b.random("standard_normal", (), grad.shape, np.float64), deviation)
            found = stated.new_gradient({}, None, Symbol(Arg(0)), cast(Symbol(Arg(1)), grad.tensor.dtype))
            grads[id(p)] = b.map(expr_of(found), grad, noise)

    def _emit_one(self, b: Builder, stated: StatedHook, grad: Value, param: Value, norm: Value | None = None,
                  scale: Value | None = None) -> Value:
        """Append a hook's change of one gradient; ``norm`` is the norm of all gradients, for hooks that take it.

        ``scale`` is the factor of gradients, as the hook sees it.
        """
        hook = stated.hook
        more = self.hook_inputs.get(id(hook), [])
        given: dict[str, Any] = {
            name: cast(Symbol(Arg(2 + i)), grad.tensor.dtype) for i, (name, _) in enumerate(more)}
        # Operands: the gradient, the norm or the parameter, what is an input, then their norms, or the scale.
        last = 2 + len(more)
        further: list[Value] = []
        if norm is not None:
            found = stated.new_gradient(given, Symbol(Arg(last)), Symbol(Arg(0)), Symbol(Arg(1)))
        elif getattr(hook, "needs_own_norms", False):
            further = [b.call("sqrt", _square(b, v)) for v in (param, grad)]
            found = stated.new_gradient(
                given, Symbol(Arg(1)), Symbol(Arg(0)), Symbol(Arg(last)), Symbol(Arg(last + 1)))
        else:
            if scale is not None and hook.scaled_attributes:
                further = [scale]
                for name in hook.scaled_attributes:
                    given[name] = Symbol(Arg(last)) * stated.attribute(name)
            found = stated.new_gradient(given, Symbol(Arg(1)), Symbol(Arg(0)))
            if grad.tensor.dtype == np.float16:
                found = cast(found, np.float16)
        return b.map(expr_of(found), grad, param if norm is None else norm, *(v for _, v in more), *further)


def _require_alike(group: Group) -> None:
    """Raise unless arrays of a group still have its dtype: it may be compiled again long after it was made."""
    for p in group.members:
        try:
            prepare(p.update_rule, p, np.dtype(np.float32) if group.wide else group.dtype)
        except NotCompilable as error:
            raise Stale(str(error)) from error
        if p._array.dtype != group.dtype or tuple(p.update_rule._state) != tuple(group.rule._state):
            raise Stale("a parameter is of another dtype, or its rule has other states, than the rest of its group")


def _place_of(arrays: Sequence[Any]) -> CardPlace | None:
    """Return the card on which all arrays lie, None for the host; raises where they lie on several devices."""
    devices = {a.device.id if is_cupy_array(a) else None for a in arrays if a is not None}
    if len(devices) > 1:
        raise NotCompilable("parameters lie on several devices")
    device = devices.pop() if devices else None
    if device is None:
        return None
    from ..card.place import card
    return card(device)


def _start(b: Builder, wide: Value, narrow: Value) -> Value:
    """Append the start of an update: the float32 copy, or the parameter where that has been changed since."""
    changed = b.call("not_equal", b.cast(wide, narrow.tensor.dtype), narrow)
    return b.call("where", b.reshape(b.reduce("any", changed), ()), b.cast(narrow, wide.tensor.dtype), wide)


def _square(b: Builder, x: Value) -> Value:
    """Append the sum of the squares of ``x``."""
    return b.reshape(b.reduce("sum", b.call("multiply", x, x)), ())


class Patience:
    """Waits for one step, then for two, four, …: a step that is refused for good is hardly ever tried."""

    def __init__(self) -> None:
        self._wait = self._left = 0

    def begin(self) -> None:
        """It was refused: wait longer than before."""
        self._wait = self._left = min(2 * self._wait, LONGEST_WAIT_CALLS) or 1

    def over(self) -> bool:
        """Count one step; returns whether that was the last to wait for."""
        self._left -= 1
        return self._left < 0
