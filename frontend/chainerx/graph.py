"""Graphs and gradients of ChainerX, on the engine of Variables.

There is one graph, that of Variables; a `BackpropId` names a part of it. Nodes of arrays that want a gradient hold the
ids in which they do (``VariableNode.backprop_ids``), and where a part is left, a `Through` stands that lets no gradient
of its ids pass. An array is in the part of an id if a way leads from it to a node that wants it.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..backprop import Backward
from ..configuration import ConfigScope, config
from ..function_node import FunctionNode
from ..graph_walks import between
from ..variable import Variable, output_variable
from ..variable_node import VariableNode
from . import arrays as _arrays
from .arrays import AnyGraph, anygraph, ndarray
from .device import BackpropId, Context, get_default_context
from .errors import ChainerxError, DtypeError, GradientError

__all__ = [
    "AnyGraph", "BackpropScope", "anygraph", "backprop_scope", "backward", "force_backprop_mode", "grad",
    "is_backprop_required", "no_backprop_mode",
]


class _Mode(NamedTuple):
    """Whether functions are recorded in some graphs, or in all of a context."""

    ids: frozenset[BackpropId] | Context
    on: bool

    def covers(self, backprop_id: BackpropId) -> bool:
        return backprop_id.context is self.ids if isinstance(self.ids, Context) else backprop_id in self.ids


class _Current(threading.local):
    """The modes a thread is in, the inner ones last, and the graph that it computes gradients in."""

    modes: tuple[_Mode, ...] = ()
    running: BackpropId | None = None


current = _Current()


def recorded(backprop_id: BackpropId) -> bool:
    """Whether this thread records functions in a graph now."""
    for mode in reversed(current.modes):
        if mode.covers(backprop_id):
            return mode.on
    return True


class Through(FunctionNode):
    """An array as it is, or copied: gradients pass, but those in graphs that are left.

    Args:
        change: What makes the output array of the input.
        back: The same for gradients: a function of Variables.
        left: The graphs.
    """

    def __init__(self, change: Any, back: Any = None, left: frozenset[BackpropId] = frozenset()) -> None:
        super().__init__()
        self._change = change
        self._back = back
        self.left = left

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._change(inputs[0]),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if (current.running or get_default_context().default_backprop_id) in self.left:
            return None,
        gy = grad_outputs[0]
        return gy if self._back is None or gy is None else self._back(gy),


def ids_of(node: VariableNode) -> Iterable[BackpropId]:
    """Return the graphs in which the array of a node wants a gradient."""
    if node.backprop_ids is not None:
        return node.backprop_ids
    leaf = node.requires_grad and node.creator_node is None
    return (get_default_context().default_backprop_id,) if leaf else ()


def ids_behind(nodes: Iterable[VariableNode]) -> set[BackpropId]:
    """Return the graphs that arrays are part of."""
    found: set[BackpropId] = set()
    nothing: frozenset[BackpropId] = frozenset()
    pending = [(node, nothing) for node in nodes]
    seen = set(pending)
    while pending:
        node, left = pending.pop()
        found.update([one for one in ids_of(node) if one not in left])
        function = node.creator_node
        if function is None:
            continue
        if isinstance(function, Through):
            left |= function.left
        for x in function.inputs or ():
            if x.requires_grad and (x, left) not in seen:
                seen.add((x, left))
                pending.append((x, left))
    return found


def resolve(backprop_id: Any, array: ndarray | None = None) -> BackpropId:
    """Return the id that an argument means: None is the default graph of the context."""
    if backprop_id is None:
        context = get_default_context() if array is None else array.device.context
        return context.default_backprop_id
    if not isinstance(backprop_id, BackpropId):
        raise TypeError(f"backprop_id must be a BackpropId or None, not {type(backprop_id).__name__}")
    backprop_id.check()
    return backprop_id


def carrier(array: ndarray) -> Variable:
    """Return a Variable that has an array's elements and its place in the graph."""
    variable = array._variable
    if variable is None:
        return output_variable(array._elements, False)
    if not isinstance(variable._array, ndarray):
        return variable
    made = output_variable(array._elements, variable._requires_grad)
    made._node = variable.node
    return made


def stopped(array: ndarray, left: frozenset[BackpropId]) -> ndarray:
    """Return an array that has left graphs."""
    variable = array._variable
    if variable is None or not ids_behind([variable.node]) - left:
        return ndarray.of(array._elements, array.device)
    y, = Through(lambda x: x, left=left).apply((carrier(array),))
    return ndarray.of(y._array, array.device, y)


def require_grad(array: ndarray, backprop_id: Any) -> ndarray:
    one = resolve(backprop_id, array)
    if array.dtype.kind != "f":
        raise DtypeError(f"an array of {array.dtype} has no gradient: only floating point arrays have")
    if array._variable is None:
        array._variable = output_variable(array._elements, True)
        array._variable.node.backprop_ids = set()
    _want(array._variable.node, one)
    return array


def _want(node: VariableNode, one: BackpropId) -> None:
    node.backprop_ids = {*ids_of(node), one}


def is_grad_required(array: ndarray, backprop_id: Any) -> bool:
    return array._variable is not None and resolve(backprop_id, array) in ids_of(array._variable.node)


def get_grad(array: ndarray, backprop_id: Any) -> Any:
    one = resolve(backprop_id, array)
    variable = array._variable
    if variable is None or one not in ids_of(variable.node):
        raise ChainerxError("the array wants no gradient in this graph: call x.require_grad() first")
    return _stored(variable, one, array.device)


def set_grad(array: ndarray, gradient: Any, backprop_id: Any) -> None:
    one = resolve(backprop_id, array)
    variable = array._variable
    if variable is None or one not in ids_behind([variable.node]):
        raise ChainerxError("the array is not part of this graph: call x.require_grad() first")
    if gradient is not None:
        if not isinstance(gradient, ndarray):
            raise TypeError(f"a gradient must be a ChainerX array, not {type(gradient).__name__}")
        _check(array, gradient)
        _want(variable.node, one)
    _store(variable, one, gradient)


def _check(array: ndarray, gradient: ndarray) -> None:
    for name in ("dtype", "shape", "device"):
        if getattr(array, name) != getattr(gradient, name):
            raise GradientError(f"the gradient is of another {name} than the array: {getattr(gradient, name)} "
                                f"instead of {getattr(array, name)}")


# Gradients of the default graph lie where Variables have theirs, so that both see the same one; those of others beside.

def _stored(variable: Variable, one: BackpropId, device: Any) -> Any:
    if one is not device.context.default_backprop_id:
        return variable.__dict__.get("_other_grads", {}).get(one)
    if variable._grad_var is not None:
        return of_variable(variable._grad_var, device)
    if variable._grad is not None and not isinstance(variable._grad, ndarray):
        variable._grad = ndarray.of(variable._grad, device)  # the engine has put it there
    return variable._grad


def _store(variable: Variable, one: BackpropId, gradient: ndarray | None) -> None:
    if one is not one.context.default_backprop_id:
        variable.__dict__.setdefault("_other_grads", {})[one] = gradient
    elif isinstance(variable._array, ndarray) and gradient is not None and gradient._variable is not None:
        variable.grad_var = Variable(gradient)
    elif isinstance(variable._array, ndarray):
        variable.grad = gradient
    else:  # a Variable that only stands behind an array
        variable._grad, variable._grad_var = gradient, None


def of_variable(variable: Variable, device: Any) -> ndarray:
    """Return the array of a Variable with its place in the graph."""
    array = getattr(variable._array, "_elements", variable._array)
    node = variable._node  # None where nothing was recorded
    if node is None or not variable._requires_grad or array.dtype.kind != "f" or (
            node.creator_node is None and not ids_of(node)):
        return ndarray.of(array, device)
    return ndarray.of(array, device, variable)


def backward(outputs: Any, backprop_id: Any = None, enable_double_backprop: bool = False,
             loss_scale: float | None = None) -> None:  # fmt: skip
    """Compute gradients of all that ``outputs`` were computed from and wants them; they are added to ``grad``.

    It starts from the ``grad`` of the outputs, and from ones where they have none.

    Args:
        outputs (ndarray or list of ndarrays): Where to start.
        backprop_id (BackpropId): The graph; None is the default one.
        enable_double_backprop (bool): Whether gradients can be differentiated in the same graph.
        loss_scale (float): The initial gradient instead of 1, against underflow; gradients are divided by it.
    """
    starts = [outputs] if isinstance(outputs, ndarray) else list(outputs)
    if not starts:
        return
    run = _Run(starts, backprop_id, enable_double_backprop, loss_scale)
    given = {y._variable.node for y in run.starts if y._variable is not None}
    wanted = [node for node in run.behind() if run.id in ids_of(node)]
    for node, gradient in zip(wanted, run.gradients(wanted), strict=True):
        variable = node.get_variable_or_none()
        if gradient is None or variable is None:
            continue
        before = None if node in given else _stored(variable, run.id, run.device)
        _store(variable, run.id, gradient if before is None else before + gradient)


def grad(outputs: Sequence[ndarray], inputs: Sequence[ndarray], backprop_id: Any = None,
         enable_double_backprop: bool = False, set_grad: bool = False, retain_grad: bool = False,
         grad_outputs: Sequence[ndarray | None] = (), loss_scale: float | None = None) -> list[Any]:  # fmt: skip
    """Compute gradients of ``outputs`` with respect to ``inputs``, and return them.

    Args:
        outputs (list of ndarrays): The arrays to differentiate.
        inputs (list of ndarrays): With respect to which arrays.
        backprop_id (BackpropId): The graph; None is the default one.
        enable_double_backprop (bool): Whether gradients can be differentiated in the same graph.
        set_grad (bool): Whether gradients become the ``grad`` of inputs, too.
        retain_grad (bool): Whether those of arrays in between are kept in their ``grad``.
        grad_outputs (list of ndarrays): Gradients of the outputs; else those they have, or ones.
        loss_scale (float): The initial gradient instead of 1, against underflow; gradients are divided by it.

    Returns:
        list of ndarray or None: One per input; None where no output depends on it.
    """
    if not outputs or not inputs:
        return [None] * len(inputs)
    run = _Run(outputs, backprop_id, enable_double_backprop, loss_scale, grad_outputs)
    behind = [node for node in run.behind() if run.id in ids_behind([node])]
    nodes = [None if x._variable is None else x._variable.node for x in inputs]
    wanted = [node for node in nodes if node in behind]
    between_ = [node for node in behind if node not in wanted] if retain_grad else []
    found = dict(zip([*wanted, *between_], run.gradients([*wanted, *between_]), strict=True))
    for node in between_:
        variable = node.get_variable_or_none()
        if variable is not None and found[node] is not None:
            _want(node, run.id)
            _store(variable, run.id, found[node])
    results = [None if node is None else found.get(node) for node in nodes]
    if set_grad:
        for x, gx in zip(inputs, results, strict=True):
            x.set_grad(gx, run.id)
    return results


class _Run:
    """One computation of gradients, in one graph."""

    def __init__(self, outputs: Sequence[ndarray], backprop_id: Any, double: bool, scale: float | None,
                 grad_outputs: Sequence[ndarray | None] = ()) -> None:
        if grad_outputs and len(grad_outputs) != len(outputs):
            raise GradientError(f"there are {len(outputs)} outputs, but {len(grad_outputs)} gradients of them")
        self.device = outputs[0].device
        self.id = resolve(backprop_id, outputs[0])
        self._double = double
        self._scale = scale
        self.starts: list[ndarray] = []
        self._given: list[ndarray | None] = []
        for i, y in enumerate(outputs):
            if y._variable is not None and self.id in ids_behind([y._variable.node]):
                gy = grad_outputs[i] if grad_outputs else None
                self.starts.append(y)
                self._given.append(_stored(y._variable, self.id, y.device) if gy is None else gy)

    def behind(self) -> dict[VariableNode, None]:
        """Return the nodes that gradients may reach."""
        found = {y._variable.node: None for y in self.starts if y._variable is not None}
        pending = list(found)
        while pending:
            function = pending.pop().creator_node
            if function is None or isinstance(function, Through) and self.id in function.left:
                continue
            new = [x for x in function.inputs or () if x.requires_grad and x not in found]
            found.update(dict.fromkeys(new))
            pending.extend(new)
        return found

    def gradients(self, wanted: Sequence[VariableNode]) -> list[ndarray | None]:
        """Return the gradients of nodes."""

        outputs = [carrier(y) for y in self.starts]
        gys = [self._initial(y) if gy is None else carrier(gy) for y, gy in zip(self.starts, self._given, strict=True)]
        # Gradients in this graph are part of others, whose nodes they were computed from.
        others = ids_behind([x.node for x in (*outputs, *gys)]) - {self.id}
        keep = dict.fromkeys(wanted)
        double = self._double or bool(others)
        before, current.running = current.running, self.id
        try:
            with ConfigScope("enable_backprop", double, config):
                run = Backward(double, False, keep, between(outputs, keep))
                for y, gy in zip(outputs, gys, strict=True):
                    run.start(y.node, gy)
                run.functions()
        finally:
            current.running = before
        seen = {id(gy._array) for gy in gys}
        return [self._result(run.grads.get(node), seen) for node in wanted]

    def _initial(self, y: ndarray) -> Variable:
        with y.device.active():
            return output_variable(y.device.xp.full_like(y._elements, 1 if self._scale is None else self._scale), False)

    def _result(self, gradient: Variable | None, seen: set[int]) -> ndarray | None:
        if gradient is None:
            return None
        found = of_variable(gradient, self.device)
        if self._scale is not None:
            found = found / self._scale
        if found._variable is None and id(found._elements) in seen:  # two arrays do not share one
            found = found.copy()
        seen.add(id(found._elements))
        return found if self._double else stopped(found, frozenset((self.id,)))


class BackpropScope:
    """A context manager that makes a graph, and gives it up at the end.

    Args:
        name (str): Its name, for messages.
        context (Context): The context; None is the default one.
    """

    def __init__(self, name: str, context: Context | None = None) -> None:
        self._name = name
        self._context = context

    def __enter__(self) -> BackpropId:
        self._id = (self._context or get_default_context()).make_backprop_id(self._name)
        return self._id

    def __exit__(self, *exc: object) -> None:
        self._id.context.release_backprop_id(self._id)


def backprop_scope(name: str, context: Context | None = None) -> BackpropScope:
    """Return a context manager that gives a graph of its own, a `BackpropId`.

    Gradients computed in one graph are part of the others, so that they can be differentiated there.

    Example:
        >>> import kusari.chainerx as chx
        >>> with chx.backprop_scope("outer") as outer, chx.backprop_scope("inner") as inner:
        ...     x = chx.array([3.0], dtype="float32").require_grad(outer).require_grad(inner)
        ...     gx, = chx.grad([x * x], [x], inner)
        ...     gx.backward(outer)
        ...     x.get_grad(outer).tolist()
        [2.0]
    """
    return BackpropScope(name, context)


class _ModeScope:
    """A context manager for modes of a thread; it can be entered several times."""

    def __init__(self, graphs: Any, context: Context | None, on: bool) -> None:
        if isinstance(graphs, Context):
            graphs, context = None, graphs
        if isinstance(graphs, BackpropId):
            graphs = (graphs,)
        self._mode = _Mode((context or get_default_context()) if graphs is None else frozenset(graphs), on)
        self._before: list[tuple[_Mode, ...]] = []

    def __enter__(self) -> None:
        self._before.append(current.modes)
        current.modes = (*current.modes, self._mode)

    def __exit__(self, *exc: object) -> None:
        current.modes = self._before.pop()


def no_backprop_mode(backprop_id: Any = None, context: Context | None = None) -> _ModeScope:
    """Return a context manager in which nothing is recorded: results are not part of graphs.

    Args:
        backprop_id (BackpropId, list of them or Context): The graphs; None is all of the context.
        context (Context): The context; None is the default one.
    """
    return _ModeScope(backprop_id, context, False)


def force_backprop_mode(backprop_id: Any = None, context: Context | None = None) -> _ModeScope:
    """Return a context manager in which functions are recorded, also inside `no_backprop_mode`.

    Args:
        backprop_id (BackpropId, list of them or Context): The graphs; None is all of the context.
        context (Context): The context; None is the default one.
    """
    return _ModeScope(backprop_id, context, True)


def is_backprop_required(backprop_id: Any = None, context: Context | None = None) -> bool:
    """Return whether functions are recorded by this thread now.

    Args:
        backprop_id (BackpropId): The graph; None is the default one.
        context (Context): The context; None is the default one.
    """
    if isinstance(backprop_id, Context):
        backprop_id, context = None, backprop_id
    if context is not None and not isinstance(context, Context):
        raise TypeError(f"context must be a Context, not {type(context).__name__}")
    if backprop_id is None and context is not None:
        backprop_id = context.default_backprop_id
    return bool(config.enable_backprop) and recorded(resolve(backprop_id))


_arrays.graph = sys.modules[__name__]
