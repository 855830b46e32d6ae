"""The backward engine: functions in descending rank, gradients summed at variable nodes."""
from __future__ import annotations

import heapq
import operator
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy

from . import tape as _tape
from . import variable as _variable
from .backend import get_array_module
from .backends import cuda
from .backends.chainerx import is_chainerx_array
from .configuration import ConfigScope, config
from .epochs import Cut, Given, Scaled, Whole
from .errors import GradientError, GradientTypeError, NaNError, wrong_gradient
from .function_node import FunctionNode, plain, select_gradients, shown
from .graph_walks import between, expand
from .utils.arrays import add_arrays, contains_nan
from .variable import Variable, output_variable
from .variable_node import VariableNode

__all__ = ["backward", "grad"]


def backward(
    outputs: Sequence[Variable],
    grad_outputs: Sequence[Variable | None] | None = None,
    *,
    retain_grad: bool = False,
    enable_double_backprop: bool = False,
    loss_scale: float | None = None,
) -> None:
    """Compute gradients of several variables at once with respect to all they were computed from.

    Args:
        outputs (tuple or list of Variable): Where to start.
        grad_outputs (tuple or list of Variable or None): Their gradients; a variable whose gradient is None is passed
            over. Without them variables start with the gradients that they have, each once; those without one are
            passed over, with a warning.
        retain_grad (bool): Keep the gradients of intermediate variables.
        enable_double_backprop (bool): Record the computation.
        loss_scale (float): The factor that the gradients of `outputs` have, against underflow in float16.

    Raises:
        TypeError: `outputs` is not a tuple or list.
        ValueError: A function returned a gradient of a wrong shape, or a wrong number of them.
    """
    _check_sequence("outputs", outputs)
    _check_sequence("grad_outputs", grad_outputs, optional=True)
    if grad_outputs is not None and len(grad_outputs) != len(outputs):
        raise ValueError(f"grad_outputs has {len(grad_outputs)} items, but there are {len(outputs)} outputs.")
    if grad_outputs is None:
        starts = {y.node: (y, gy) for y in outputs if (gy := y.grad_var) is not None}.values()
        if len(starts) < len(outputs):
            warnings.warn("outputs has a variable without a gradient, which is passed over, or one twice, which counts "
                          "once", RuntimeWarning, stacklevel=2)
        starts = [(y, gy) for y, gy in starts if y.creator_node is not None]
    else:
        starts = [(y, gy) for y, gy in zip(outputs, grad_outputs, strict=True) if gy is not None]
    _run(starts, retain_grad, enable_double_backprop, loss_scale)
    if grad_outputs is None and not retain_grad:
        for y, _ in starts:
            y.grad_var = None


def backward_of(y: Variable, retain_grad: bool, enable_double_backprop: bool, loss_scale: float | None) -> None:
    """Compute gradients of one variable, which starts with the gradient that it has, or with 1 for its one element."""
    gy = y.grad_var
    if gy is None and y._array is not None and y._array.size == 1:
        gy = output_variable(_ones_like(y._array, loss_scale), True)
    if y.creator_node is None:
        y.grad_var = gy
        return
    if gy is None:
        raise GradientError("backward has no gradient to start from: expected a variable of one element, got shape "
                            f"{y.shape} without a gradient. Reduce it, for example with kusari.functions.sum, or "
                            "set its grad first, for example y.grad = numpy.ones_like(y.array).")
    _run([(y, gy)], retain_grad, enable_double_backprop, loss_scale)
    if not retain_grad:
        y.grad_var = None


def _run(starts: list[tuple[Variable, Variable]], retain_grad: bool, enable_double_backprop: bool,
         loss_scale: float | None) -> None:  # fmt: skip
    if _tape.current.tape is not None:
        _tape.current.tape.note("backward() inside stores gradients, which replays cannot repeat; use kusari.grad(), "
                                "or call it outside the static function")
    if Whole.ever:
        everything = enable_double_backprop or _watched()
        if Cut.ever or Given.ever or everything or retain_grad:
            outputs = [y for y, _ in starts]
            expand(outputs, None if everything or retain_grad else (), everything, {y.node for y in outputs})
    with ConfigScope("enable_backprop", enable_double_backprop, config):
        run = Backward(enable_double_backprop, retain_grad)
        for y, gy in starts:
            run.start(y.node, gy)
        run.functions()
        run.finish_leaves(loss_scale)


def grad(
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    grad_outputs: Sequence[Variable | None] | None = None,
    grad_inputs: Sequence[Variable | None] | None = None,
    set_grad: bool = False,
    retain_grad: bool = False,
    enable_double_backprop: bool = False,
    loss_scale: float | None = None,
) -> list[Variable | None]:
    """Compute gradients of `outputs` with respect to `inputs`, and only these.

    No ``grad`` of any variable is touched unless asked for.

    Args:
        outputs (tuple or list of Variable): The variables to differentiate.
        inputs (tuple or list of Variable): The variables with respect to which they are differentiated.
        grad_outputs (tuple or list of Variable or None): Gradients of the outputs; None means ones.
        grad_inputs (tuple or list of Variable or None): Gradients of the inputs to add to the result.
        set_grad (bool): Also store the results in the ``grad`` of `inputs`.
        retain_grad (bool): Also store the gradients of intermediate variables.
        enable_double_backprop (bool): Record the computation, so that the results can be differentiated.
        loss_scale (float): A factor for initial ones, against underflow in float16.

    Returns:
        list of Variable or None: One per input; None where the outputs do not depend on it.

    Raises:
        TypeError: An argument is not a tuple or list.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.grad.html

    Example:
        >>> import kusari, numpy as np
        >>> x = kusari.Variable(np.array([1, 2], np.float32))
        >>> gx, = kusari.grad([x * x * x], [x], enable_double_backprop=True)
        >>> ggx, = kusari.grad([gx], [x])
        >>> gx, ggx
        (variable([ 3., 12.]), variable([ 6., 12.]))
    """
    _check_sequence("outputs", outputs)
    _check_sequence("inputs", inputs)
    _check_sequence("grad_outputs", grad_outputs, optional=True)
    _check_sequence("grad_inputs", grad_inputs, optional=True)
    for name, given, wanted in (("grad_outputs", grad_outputs, outputs), ("grad_inputs", grad_inputs, inputs)):
        if given is not None and len(given) != len(wanted):
            raise ValueError(f"{name} has {len(given)} items, but {len(wanted)} are expected.")
    for x in inputs:
        if not isinstance(x, Variable):
            raise TypeError(f"inputs must be Variables, but there is a {type(x).__name__}.")

    expand(outputs, inputs if not retain_grad else None, everything=enable_double_backprop or _watched())
    with ConfigScope("enable_backprop", enable_double_backprop, config):
        wanted_nodes = {x.node: None for x in inputs}
        run = Backward(enable_double_backprop, retain_grad, wanted_nodes, between(outputs, wanted_nodes))
        for index, x in enumerate(inputs):
            gx = None if grad_inputs is None else grad_inputs[index]
            if gx is not None and x.node not in run.grads:
                run.grads[x.node] = plain(gx)
        for index, y in enumerate(outputs):
            gy = None if grad_outputs is None else grad_outputs[index]
            if gy is None:
                gy = output_variable(_tape.constant(_ones_like(y._array, loss_scale)), True)
            elif not isinstance(gy, Variable):
                gy = Variable(gy)
            run.start(y.node, gy)
            if retain_grad:
                y.grad_var = gy
        run.functions()
        results = [shown(run.grads.get(x.node), x) for x in inputs]
    if set_grad:
        if _tape.current.tape is not None:
            _tape.current.tape.note("grad(set_grad=True) inside stores gradients, which replays cannot repeat")
        for x, gx in zip(inputs, results, strict=True):
            x.grad_var = gx
    return results


def go_on(gradients: Sequence[tuple[VariableNode, Any]]) -> None:
    """Compute the gradients of what nodes in the middle of a graph were computed from, given their own as arrays."""
    with ConfigScope("enable_backprop", False, config):
        run = Backward(False, False)
        for node, gradient in gradients:
            run.start(node, output_variable(gradient, True))
        run.functions()
        run.finish_leaves(None)


def _check_sequence(name: str, value: Any, optional: bool = False) -> None:
    if not (isinstance(value, (tuple, list)) or (optional and value is None)):
        kinds = "a tuple or a list or None" if optional else "a tuple or a list"
        raise TypeError(f"{name} must be {kinds}, not {type(value)}.")


def _ones_like(array: Any, scale: float | None) -> Any:
    xp = numpy if isinstance(array, numpy.ndarray) else get_array_module(array)
    with cuda.get_device_from_array(array):
        return xp.ones_like(array) if scale is None else xp.full_like(array, scale)


def _watched() -> bool:
    """Whether the backward of every function is observed: by hooks, or by debug mode, which looks for NaN."""
    return bool(config.debug or _tape.own_hooks())


class Backward:
    """One backward pass.

    Invariant: when a function is taken from the heap, no function of a higher rank is left, so that the gradients of
    its outputs are complete.
    """

    def __init__(
        self, double: bool, retain: bool,
        keep: dict[VariableNode, None] | None = None, needed: set[VariableNode] | None = None,
    ) -> None:  # fmt: skip
        self.grads: dict[VariableNode, Any] = {}
        self.leaves: dict[VariableNode, None] = {}
        self.keep = keep or {}
        self.needed = needed
        self.retain = retain
        self.everything = needed is None
        # Sums are part of the computation where it is recorded; elsewhere arrays are added directly.
        tape = _tape.current.tape
        self.recorded = double or tape is not None
        self.memo = getattr(tape, "memo", None)
        self.lazy = bool(config.lazy_grad_sum)
        self.debug = bool(config.debug)
        self._heap: list[tuple[int, int, FunctionNode]] = []
        self._seen: set[FunctionNode] = set()

    def start(self, node: VariableNode, gradient: Variable) -> None:
        """Give an output its gradient; one that no function made adds it to the one it has."""
        if node.creator_node is None:
            self._load_leaf(node)
        else:
            self._push(node.creator_node)
        self._add(node, plain(gradient))

    def _push(self, function: FunctionNode) -> None:
        if function not in self._seen:
            self._seen.add(function)
            heapq.heappush(self._heap, (-function.rank, len(self._seen), function))

    def _add(self, node: VariableNode, gradient: Variable) -> None:
        before = self.grads.get(node)
        if before is None:
            self.grads[node] = gradient
        elif self.lazy:
            self.grads[node] = (*before, gradient) if type(before) is tuple else (before, gradient)
        else:
            self.grads[node] = self._sum(before, gradient)

    def _sum(self, x: Variable, y: Variable) -> Variable:
        if self.memo is not None:
            return self.memo.sum(x, y)
        if self.recorded:
            return operator.add(x, y)
        return output_variable(add_arrays(x._array, y._array), True)

    def _complete(self, gradient: Any) -> Any:
        if type(gradient) is not tuple:
            return gradient
        total, *rest = gradient
        for one in rest:
            total = self._sum(total, one)
        return total

    def functions(self) -> None:
        """Run the functions' backward computations until none is left."""
        heap = self._heap
        tape = _tape.current.tape
        while heap:
            function = heapq.heappop(heap)[2]
            if function.inputs is None or function.outputs is None:
                continue
            if tape is not None:
                tape.differentiating(function)
            gys: list[Any] = []
            for reference in function.outputs:
                node = reference()
                if node is None:
                    gys.append(None)
                    continue
                gy = self._complete(self.grads.get(node))
                if gy is None and self.everything and function.expand is None:
                    gy = self._given(node)
                if node in self.keep:
                    if gy is not None:
                        self.grads[node] = gy
                else:
                    self.grads.pop(node, None)
                if self.retain and gy is not None:
                    variable = node.get_variable_or_none()
                    if variable is not None:
                        variable.grad_var = gy
                gys.append(gy)
            needed = self.needed
            if needed is None:
                targets = tuple([i for i, x in enumerate(function.inputs) if x.requires_grad])
            else:
                targets = tuple([i for i, x in enumerate(function.inputs) if x in needed and x.requires_grad])
            if not targets or all([gy is None for gy in gys]):
                continue
            known = gys[0]
            if known is None:
                known = next(gy for gy in gys if gy is not None)
            if type(known._array) is numpy.ndarray:
                self._step(function, targets, tuple(gys))
            else:
                with cuda.get_device_from_array(known._array):
                    self._step(function, targets, tuple(gys))
        for node, gradient in self.grads.items():
            if type(gradient) is tuple:
                self.grads[node] = self._complete(gradient)

    def _given(self, node: VariableNode) -> Any:
        """Take the gradient that a user gave an output none flows to."""
        variable = node.get_variable_or_none()
        gy = None if variable is None else variable.grad_var
        if gy is not None and variable is not None and not self.retain:
            variable.grad_var = None
        return None if gy is None else plain(gy)

    def _step(self, function: FunctionNode, targets: tuple[int, ...], gys: tuple[Any, ...]) -> None:
        inputs = function.inputs or ()
        hooks: Any = ()
        if _tape.current.function_hooks or function._local_function_hooks:
            hooks = function._active_hooks()
            in_data = tuple([x.data for x in inputs])
            out_grad = tuple([None if gy is None else gy._array for gy in gys])
            for hook in hooks:
                hook.backward_preprocess(function, in_data, out_grad)
        try:
            if type(function).backward_accumulate is FunctionNode.backward_accumulate:
                gxs = (select_gradients(function, targets, function.backward(targets, gys)) if self.memo is None
                       else self.memo.backward(function, targets, gys))
                self._receive(function, targets, gxs)
            else:
                self._accumulate(function, targets, gys)
            if self.debug:  # an error of this function's kernels is raised here
                cuda.synchronize([gy._array for gy in gys if gy is not None])
        except Exception as error:
            if function.stack is not None:
                _add_stack(error, function.stack)
            raise
        for hook in hooks:
            hook.backward_postprocess(function, in_data, out_grad)  # pyright: ignore[reportPossiblyUnboundVariable]

    def _accumulate(self, function: FunctionNode, targets: tuple[int, ...], gys: tuple[Any, ...]) -> None:
        """Let the function add to the gradients itself."""
        inputs = function.inputs or ()
        before: list[Any] = []
        for position, index in enumerate(targets):
            node = inputs[index]
            first = all(inputs[other] is not node for other in targets[:position])
            self._load_leaf(node)
            before.append(self._complete(self.grads.pop(node, None)) if first else None)
        gxs = function.backward_accumulate(targets, gys, tuple(before))
        self._receive(function, targets, select_gradients(function, targets, gxs))

    def _load_leaf(self, node: VariableNode) -> None:
        """A leaf's gradient starts with the one its variable has."""
        if self.everything and node.creator_node is None and node not in self.leaves:
            self.leaves[node] = None
            variable = node.get_variable_or_none()
            if variable is not None and node not in self.grads:
                gradient = variable.grad_var if variable._array is not None else None
                if gradient is not None:
                    self.grads[node] = plain(gradient)

    def _receive(self, function: FunctionNode, targets: tuple[int, ...], gxs: tuple[Any, ...]) -> None:
        inputs = function.inputs or ()
        for index, gx in zip(targets, gxs, strict=True):
            if gx is None:
                continue
            node = inputs[index]
            if not isinstance(gx, Variable):
                raise wrong_gradient(
                    function, f"backward must return variables: input-index={index}, actual {type(gx)}", TypeError
                )
            if gx._array is not None and gx._array.shape != node.shape:
                raise wrong_gradient(
                    function,
                    f"shape of gradients returned from backward is incorrect: input-index={index}, "
                    f"actual {gx._array.shape} != expected {node.shape}",
                )
            if self.debug:
                self._check(function, index, gx, node)
            self._load_leaf(node)
            self._add(node, gx)
            if node.creator_node is not None:
                self._push(node.creator_node)

    def _check(self, function: FunctionNode, index: int, gx: Variable, node: VariableNode) -> None:
        if gx._array.dtype != node.dtype:
            raise wrong_gradient(
                function,
                f"dtype of gradients returned from backward is incorrect: input-index={index}, "
                f"actual {gx._array.dtype} != expected {node.dtype}",
                GradientTypeError,
            )
        if contains_nan(gx._array):
            raise NaNError(f"NaN is detected on backward computation of {function.label}")

    def finish_leaves(self, loss_scale: float | None) -> None:
        """Give the leaves' variables their gradients."""
        seen: set[int] = set()
        for node in self.leaves:
            gradient = self.grads.get(node)
            variable = node.get_variable_or_none()
            if gradient is None or variable is None:
                continue
            scale = loss_scale
            if loss_scale is not None and type(variable._array) is not numpy.ndarray and (
                    is_chainerx_array(variable._array)):  # whose gradients are scaled back at once
                scale, gradient = None, gradient / loss_scale
            array = gradient._array
            if id(array) in seen and not self.recorded:
                # Optimizers' hooks change gradients in place: two leaves must not share one array.
                with cuda.get_device_from_array(array):
                    array = array.copy()
                gradient = output_variable(array, True)
            seen.add(id(array))
            if self.recorded:
                variable.grad_var = gradient
            else:
                variable.grad = array
            variable._loss_scale = scale
        Scaled.ever = Scaled.ever or loss_scale is not None


def _add_stack(error: Exception, stack: Any) -> None:
    """Append to an error where the function that failed had been applied."""
    shown = "".join(traceback.format_list(stack))
    text = f"\n{'-' * 80}\nStacktrace of the function is below:\n{shown}"
    if error.args and isinstance(error.args[0], str) and "Stacktrace of the function" not in error.args[0]:
        error.args = (error.args[0] + text, *error.args[1:])


_variable.backward_of = backward_of
