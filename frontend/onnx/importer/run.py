"""Running a program: names to values, step by step, with the control flow of ONNX, and its gradients."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...backprop import grad
from ...configuration import config, force_backprop_mode
from ...variable import Variable
from . import elementwise, indexing, layers, recurrent, reductions, shapes
from .program import GRADIENT, Program, Step
from .reference import apply
from .registry import Table, number

OPERATORS: Table = Table()
for _module in (elementwise, shapes, indexing, reductions, layers, recurrent):
    OPERATORS.update(_module.TABLE)


def run(program: Program, values: dict[str, Any]) -> tuple[Any, ...]:
    """Return the outputs of a program; ``values`` are those of its inputs, of names around it, and of parameters.

    A value is released when no later step reads it.
    """
    env = dict(values)
    for name, array in program.constants.items():
        env.setdefault(name, array)
    for i, step in enumerate(program.steps):
        inputs = [env[name] if name else None for name in step.inputs]
        for name, value in zip(step.outputs, results_of(step, inputs, env), strict=False):
            if name:
                env[name] = value
        for name in program.last.get(i, ()):
            env.pop(name, None)
    return tuple([env[name] for name in program.outputs])


def results_of(step: Step, inputs: list[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    """Return the results of one step."""
    control = CONTROL.get((step.domain, step.operator))
    if control is not None:
        return control(step, inputs, env)
    if any(isinstance(x, Variable) for x in inputs):
        function = OPERATORS.get(step.operator) if not step.domain else None
        found = NotImplemented if function is None else function(step, *inputs)
        if found is not NotImplemented:
            return found if isinstance(found, tuple) else (found,)
    return apply(step, inputs)


def _if(step: Step, inputs: list[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    return run(step("then_branch") if number(inputs[0]) else step("else_branch"), env)


def _loop(step: Step, inputs: list[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    body: Program = step("body")
    count = None if inputs[0] is None else number(inputs[0])
    going = inputs[1] is None or bool(number(inputs[1]))
    state = list(inputs[2:])
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(state):]]
    i = 0
    while going and (count is None or i < count):
        given = dict(zip(body.inputs, [np.array(i, np.int64), np.array(going), *state], strict=True))
        more, *found = run(body, {**env, **given})
        going, state = bool(number(more)), found[:len(state)]
        for rows, value in zip(scanned, found[len(state):], strict=True):
            rows.append(value)
        i += 1
    return (*state, *[_stacked(rows, 0) for rows in scanned])


def _scan(step: Step, inputs: list[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    if step.version < 9:
        return apply(step, inputs)
    body: Program = step("body")
    count = step("num_scan_inputs")
    state, sequences = list(inputs[:-count]), inputs[-count:]
    axes = [a % x.ndim for a, x in zip(step("scan_input_axes") or [0] * count, sequences, strict=True)]
    backwards = step("scan_input_directions") or [0] * count
    scanned: list[list[Any]] = [[] for _ in body.outputs[len(state):]]
    length = sequences[0].shape[axes[0]]
    for i in range(length):
        rows = [x[(*(slice(None),) * a, length - 1 - i if back else i)]
                for x, a, back in zip(sequences, axes, backwards, strict=True)]
        found = run(body, {**env, **dict(zip(body.inputs, [*state, *rows], strict=True))})
        state = list(found[:len(state)])
        for made, value in zip(scanned, found[len(state):], strict=True):
            made.append(value)
    outputs = len(scanned)
    to = step("scan_output_axes") or [0] * outputs
    reverse = step("scan_output_directions") or [0] * outputs
    return (*state, *[_stacked(made[::-1] if back else made, axis)
                      for made, axis, back in zip(scanned, to, reverse, strict=True)])


def _stacked(rows: list[Any], axis: int) -> Any:
    if any(isinstance(x, Variable) for x in rows):
        return F.stack(rows, axis)
    return np.stack(rows, axis) if rows else np.zeros((0,), np.float32)


def _gradient(step: Step, inputs: list[Any], env: dict[str, Any]) -> tuple[Any, ...]:
    body: Program = step("body")
    is_on = config.enable_backprop
    with force_backprop_mode():
        given = [x if isinstance(x, Variable) and x.requires_grad else Variable(getattr(x, "array", x)) for x in inputs]
        y, = run(body, {**env, **dict(zip(body.inputs, given, strict=True))})
        xs = given[:len(step("xs"))]
        found = grad([y], xs, enable_double_backprop=is_on) if isinstance(y, Variable) else [None] * len(xs)
    return tuple([np.zeros_like(x.array) if g is None else g for x, g in zip(xs, found, strict=True)])


CONTROL = {("", "If"): _if, ("", "Loop"): _loop, ("", "Scan"): _scan, GRADIENT: _gradient}
