"""Hyperparameters of an exported training step: inputs of the graph, as the number of updates is."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import PRIMITIVES, Arg, Lit, Node, Symbol, Value, substitute, tensor_type, walk
from kusari.ir import Call as ExprCall
from kusari.ir.symbol import expr_of

from ..hyperparameter import Hyperparameter
from ..static.step.rule_groups import Group
from ..static.step.update import UpdateProgram
from .errors import ExportError

CLOCK = "/t"       # the number of updates done so far
PREFIX = "hyper"   # "hyper/lr", "hyper/WeightDecay/rate"; "hyper/l1/W/lr" where a parameter has its own


@dataclass(frozen=True, eq=False)
class Clock:
    """The number of updates that a rule has done, as a binding."""

    rule: Any

    def array(self) -> Any:
        """The number now."""
        return np.asarray(self.rule.t, np.int64)


@dataclass(frozen=True, eq=False)
class Entry:
    """One hyperparameter, an attribute of ``holder``, as a binding; a float64 as Python's numbers are."""

    holder: Any
    name: str

    def array(self) -> Any:
        """The number now."""
        return np.asarray(getattr(self.holder, self.name), np.float64)


class Inputs:
    """The inputs of an update besides gradients, parameters and states: clocks and hyperparameters, as values.

    Invariant: ``nodes`` compute from ``values`` what ``UpdateProgram.emit`` takes as inputs once it is given to
    ``finish``; where a rule branches on a hyperparameter, that one is a literal.
    """

    def __init__(self, program: UpdateProgram, paths: dict[int, str]) -> None:
        self.program = program
        self.clocks: list[tuple[Value, Clock]] = []
        self.entries: list[tuple[str, Value, Entry]] = []
        self._values: dict[tuple[int, str], Value] = {}
        self._of: dict[int, list[Value]] = {}
        self._clock_of: dict[int, Value] = {}
        for group in program.groups:
            self._symbolic(group, paths[id(group.members[0])])
        program.hook_inputs = {}
        names = program.optimizer._hooks.pre if program.hooks else {}
        for title, hook in names.items():
            program.hook_inputs[id(hook)] = [
                (name, self._value(hook, name, f"{PREFIX}/{title}/{name}")) for name in _numbers(vars(hook))]

    def _value(self, holder: Any, name: str, title: str) -> Value:
        key = id(holder), name
        if key not in self._values:
            self._values[key] = Value(tensor_type(np.float64, ()), name)
            self.entries.append((title, self._values[key], Entry(holder, name)))
        return self._values[key]

    def _symbolic(self, group: Group, path: str) -> None:
        """Let the values of a group's hyperparameters be expressions of the clock, ``Arg(0)``, and of the others."""
        rule = group.rule
        names = _numbers(rule.hyperparam.get_dict())
        group.values = group.next_values()
        symbolic = _evaluated(rule, names, True)
        if symbolic is None:
            names = [name for name in names if _evaluated(rule, [name], False) is not None]
            symbolic = _evaluated(rule, names, True)
        if symbolic is None:
            raise ExportError(f"{type(rule).__name__} computes its hyperparameters from the number of updates in a way "
                              "that has no ONNX form")
        group.dynamic = tuple(k for k, v in symbolic.items() if isinstance(v, Symbol))
        group.values.update((k, symbolic[k]) for k in group.dynamic)
        self._of[id(group)] = [
            self._value(rule.hyperparam, name, f"{PREFIX}{path}/{name}") if name in vars(rule.hyperparam)
            else self._value(rule.hyperparam.parent, name, f"{PREFIX}/{name}") for name in names]
        if any(Arg(0) in walk(expr_of(group.values[k])) for k in group.dynamic):
            t = rule.t
            found = next((v for v, clock in self.clocks if clock.rule.t == t), None)
            if found is None:
                found = Value(tensor_type(np.int64, ()), "t")
                self.clocks.append((found, Clock(rule)))
            self._clock_of[id(group)] = found

    def nodes(self, made: Iterable[Value]) -> list[Node]:
        """Return the nodes that compute ``made``, the inputs of the update, in the order of ``emit``."""
        wanted = iter(made)
        nodes: list[Node] = []
        for group in self.program.groups:
            clock = self._clock_of.get(id(group))
            inputs = ((clock,) if clock is not None else ()) + tuple(self._of[id(group)])
            arguments = [Arg(i - (clock is None)) for i in range(len(self._of[id(group)]) + 1)]
            for k in group.dynamic:
                expr = substitute(expr_of(group.values[k]), [Lit(0) if a == Arg(-1) else a for a in arguments])
                nodes.append(Node(PRIMITIVES["map"], inputs, (next(wanted),),
                                  {"expr": ExprCall(np.dtype(group.dtype).name, (expr,))}, "optimizer"))
        return nodes


def _numbers(entries: dict[str, Any]) -> list[str]:
    return [k for k, v in entries.items() if isinstance(v, (int, float, np.number)) and not isinstance(v, bool)]


def _evaluated(rule: Any, names: list[str], timed: bool) -> dict[str, Any] | None:
    """Return the hyperparameters of the next update as symbols; None where the rule needs to know a number."""
    t, kept = rule.t, rule.hyperparam
    rule.t = Symbol(ExprCall("add", (ExprCall("float64", (Arg(0),)), Lit(1)))) if timed else t + 1
    rule.hyperparam = Hyperparameter()
    for name, value in kept.get_dict().items():
        setattr(rule.hyperparam, name, Symbol(Arg(1 + names.index(name))) if name in names else value)
    try:
        return rule.hyper_values()
    except TypeError:
        return None
    finally:
        rule.t, rule.hyperparam = t, kept
