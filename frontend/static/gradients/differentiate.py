"""The backward graph of a recording, derived by running define-by-run's own gradients on stand-in arrays.

The forward graph is applied once more, function by function, to stand-ins of the recorded types; then
``kusari.grad`` runs under a tape on which those stand-ins are the forward graph's values. So compiled gradients are
by construction the functions that define-by-run applies, in its order, and accumulate as it accumulates: in the order
of ranks (``backprop``), which ``follow.joint_backward`` keeps. Only
``passes.join`` adds joined products after the others.
"""
from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kusari.ir import Graph, Node, Value

from ...backprop import grad
from ...configuration import using_config
from ...function_node import FunctionNode
from ...functions.array.indexing import example_masks
from ...tape import recording
from ...variable import Variable
from ..collector import without_collector
from ..errors import Fault, is_from_handler
from ..trace.ops import is_opaque, pristine
from ..trace.own_functions import operands
from ..trace.python_nodes import OPAQUE_GRADIENT, gap, prepare, surrogate
from ..trace.recorder import Tape
from ..trace.recording import NotStatic, Recording
from .backward_memo import BackwardMemo
from .stand_in import StandIn, stand_in

Gaps = Literal["refused", "zeros", "left out"]
REFUSED: Gaps = "refused"
ZEROS: Gaps = "zeros"
LEFT_OUT: Gaps = "left out"
_log = logging.getLogger("kusari.static")
# The Variable of each value, the node of each function in their graph, further arrays of values, and Variables that no
# value has, which ask for gradients.
Applied = tuple[dict[Value, Variable], dict[FunctionNode, Node], list[tuple[Value, Any]], list[Variable]]
# The graphs applied for recordings that are differentiated twice, from their results and from all that they store: the
# wanted values, the graph, how often functions have written to stand-ins, and the records of backwards.
_applied: weakref.WeakKeyDictionary[Recording, tuple[tuple[Value, ...], Applied, int, dict[Any, Any]]] = (
    weakref.WeakKeyDictionary())


@dataclass(frozen=True, eq=False)
class Backward:
    """The nodes that compute gradients, as a continuation of a forward graph.

    ``seeds`` are new values, the gradients of the differentiable outputs (``None`` where the caller has none);
    ``grads`` holds for each wanted value its gradient, or None when nothing depends on it.
    """

    seeds: tuple[Value | None, ...]
    nodes: tuple[Node, ...]
    consts: tuple[tuple[Value, Any], ...]
    wanted: tuple[Value, ...]
    grads: tuple[Value | None, ...]

    @property
    def present(self) -> tuple[Value, ...]:
        """The gradients that are not None."""
        return tuple([g for g in self.grads if g is not None])

    @property
    def reads(self) -> dict[Value, None]:
        """The operands of all nodes and the gradients, in order."""
        return dict.fromkeys([*(v for n in self.nodes for v in n.inputs), *self.present])


def wanted_values(recording_: Recording) -> tuple[Value, ...]:
    """Return the values whose gradients a caller may ask for: wanted inputs, then parameters that require gradients.

    Raises ``NotStatic`` where a parameter's array has been given another shape or dtype in place: its node, and so
    define-by-run's gradients, have the old one.
    """
    for v, p in recording_.parameters:
        if p.requires_grad and (p.node.shape, p.node.dtype) != (p._array.shape, p._array.dtype):
            where = recording_.where
            raise NotStatic(Fault(f"the array of {p.name or 'a parameter'} has got the shape {v.shape} or the dtype "
                                  f"{v.tensor.dtype} in place, by which gradients do not go; give it another array",
                                  where))
    inputs = [v for v, w in zip(recording_.leaves, recording_.wanted, strict=True) if w]
    parameters = [v for v, p in recording_.parameters if p.requires_grad]
    return tuple(dict.fromkeys(inputs + parameters))


@without_collector()
def differentiate(rec: Recording, seeded: tuple[bool, ...], wanted: tuple[Value, ...],
                  gaps: Gaps = REFUSED) -> Backward:
    """Return the backward graph for gradients given at the outputs ``seeded`` marks.

    ``gaps`` is the treatment of gradients that functions of the user's do not give: they are left out as far as is
    known, or zeros, or ``NotStatic`` is raised if a caller would see them. It is also raised when a gradient uses
    arrays that no function made.
    """
    graph = rec.graph
    for n in graph.nodes:
        if (kind := getattr(n.attrs.get("function"), "_own_kind", None)) is not None and kind.changes:
            raise NotStatic(Fault(f"the backward of {n.op.name} changes an array that it has retained, which others "
                                  "may read; let it change a copy", n.where or "unknown"))
    shown = {rec.aliases.root(v) for v in (*graph.sources(), *graph.outputs)}
    changing = {v for n in graph.nodes for v in (*n.inputs, *n.outputs) if rec.aliases.root(v) in shown}
    random_state = np.random.get_state()
    try:
        with np.errstate(all="ignore"), using_config("debug", False), using_config("type_check", False):
            writes = StandIn.writes
            try:
                before, applied, written, known = _applied.pop(rec, ((), None, 0, {}))
                if applied is None or before != wanted:
                    applied, known = _apply(graph, wanted, rec.detached, stand_in), {}
                    written = StandIn.writes - writes
                    if rec.result[0] == "stored":
                        _applied[rec] = wanted, applied, written, known
                prepare(applied[1], gaps == LEFT_OUT, changing)
                found = _differentiate(graph, seeded, wanted, applied, stand_in, known)
                if found.consts:  # whose elements count
                    writes = StandIn.writes
                    found = _differentiate(graph, seeded, wanted, applied, stand_in)
                if gaps == REFUSED:
                    _refuse_gaps(rec, found)
                if not found.consts or StandIn.writes == writes and not written:
                    return found
                reason: object = "there are constants"
            except NotStatic:
                raise
            except Exception as error:  # a function needs ordinary arrays
                if is_from_handler(error):
                    raise
                reason = error
            _log.debug("%s: gradients are derived on ordinary arrays: %s", graph.name, reason)
            np.random.set_state(random_state)
            applied = _apply(graph, wanted, rec.detached, np.full)
            prepare(applied[1], gaps == LEFT_OUT, changing)
            found = _differentiate(graph, seeded, wanted, applied, np.full)
            if gaps == REFUSED:
                _refuse_gaps(rec, found)
            return found
    finally:
        np.random.set_state(random_state)


def _refuse_gaps(rec: Recording, found: Backward) -> None:
    """Raise ``NotStatic`` where zeros in place of a gradient that is not there would be seen.

    Optimizers take zeros for it, but Variables among the arguments have none then.
    """
    node = gap(found.nodes)
    if node is None and any(rec.wanted):
        node = next((n for n in found.nodes if n.op is OPAQUE_GRADIENT), None)
    if node is not None:
        raise NotStatic(Fault("a function of the user's own need not give a gradient", node.where))


def _of_type(value: Value, make: Any) -> Any:
    t = value.tensor
    return make(t.shape, 1 if t.dtype.kind in "fc" else 0, t.dtype)


def _types(node: Node) -> tuple[list[Any], list[Any]]:
    return [v.type for v in node.inputs], [v.type for v in node.outputs]


def _apply(graph: Graph, wanted: tuple[Value, ...], detached: frozenset[Value], make: Any) -> Applied:
    """Apply the functions of a graph to the arrays of ``make(shape, value, dtype)``."""
    made: dict[FunctionNode, Node] = {}
    masks: list[tuple[Value, Any]] = []
    asking: list[Variable] = []
    env: dict[Value, Variable] = {}
    wanted_set = set(wanted)
    for value in graph.sources():
        env[value] = Variable(_of_type(value, make), requires_grad=value in wanted_set)
    for value, array in graph.consts:
        env[value] = Variable(array, requires_grad=False)
    with recording(None), using_config("enable_backprop", True):
        for node in graph.nodes:
            function = node.attrs.get("function")
            if function is None:  # side-effect code: its results carry no gradient
                results = [Variable(_of_type(v, make), requires_grad=False) for v in node.outputs]
            elif is_opaque(function):
                results = surrogate(node, _operands(node, env, asking))
            else:
                given = [env[v] for v in node.inputs]
                for i, mask in enumerate(example_masks(function, *_types(node)) or (), 1):
                    if mask is not None:
                        given[i] = Variable(mask, requires_grad=False)
                        masks.append((node.inputs[i], mask))
                try:
                    results = list(pristine(function).apply(tuple(given)))
                except Exception as error:
                    if make is stand_in or is_from_handler(error):
                        raise
                    raise NotStatic(Fault(f"in its backward: {function.label} refuses arrays of ones, on which "
                                          f"gradients are derived ({error})", node.where)) from error
            made.update((y.creator_node, node) for y in results if y.creator_node is not None)
            results = [Variable(y._array, requires_grad=False) if v in detached else y
                       for v, y in zip(node.outputs, results, strict=False)]
            for y in results:  # a function that returns its operand: another value
                if any(y._array is env[v]._array for v in node.inputs):
                    y._array = y._array.view()
            env.update(zip(node.outputs, results, strict=False))  # an opaque node's last output is its token
    return env, made, masks, asking


def _operands(node: Node, env: dict[Value, Variable], asking: list[Variable]) -> list[Variable]:
    """Return the inputs of a function of the user's, of which those count as asking that did so in the call.

    Such as a Variable of an argument's array: that gradient goes nowhere, but the user's backward runs.
    """
    given = [env[v] for v in operands(node)]
    if "asks" in node.attrs and not any([x.requires_grad for x in given]):
        given = [Variable(x._array, requires_grad=x.dtype.kind in "fc") for x in given]
        asking += given
    return given


def _differentiate(graph: Graph, seeded: tuple[bool, ...], wanted: tuple[Value, ...], applied: Applied,
                   make: Any, known: dict[Any, Any] | None = None) -> Backward:
    """``make(shape, value, dtype)`` gives the seeds; ``known`` has records of backwards, if those may be repeated."""
    tape = Tape()
    env, made, masks, asking = applied
    tape.places.update((function, node.where) for function, node in made.items())
    if known is not None:
        tape.memo = BackwardMemo(tape, env, made, known)
    for value, array in (*((value, variable._array) for value, variable in env.items()), *masks):
        tape.alias(array, value)
    seeds: list[Value | None] = []
    starts: list[Variable] = []
    gys: list[Variable] = []
    for value, given in zip(graph.outputs, seeded, strict=True):
        if not given:
            seeds.append(None)
            continue
        gy = Variable(_of_type(value, make), requires_grad=False)
        seeds.append(tape.define(gy._array, "gy"))
        starts.append(env[value])
        gys.append(gy)
    xs = [*(env[v] for v in wanted), *asking]
    with recording(tape), using_config("enable_backprop", False):
        gxs = grad(starts, xs, gys, enable_double_backprop=False) if starts and xs else [None] * len(xs)
    grads: list[Value | None] = []
    for value, gx in zip(wanted, gxs, strict=False):
        found = None if gx is None else tape.known(gx._array)
        if gx is not None and found is None:
            tape.note(f"the gradient of a {value.type!r} is an array that no function made")
        grads.append(found)
    tape.close()
    if tape.fault is not None:
        raise NotStatic(Fault(f"in its backward: {tape.fault.reason}", tape.fault.where))
    return Backward(tuple(seeds), tuple(tape.nodes), tuple(tape.consts), wanted, tuple(grads))
