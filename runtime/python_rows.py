"""Rows that Python runs: how a frame calls functions that have no kernel, and what their exceptions say."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from kusari.ir import NO_INDEX, Arena, Instruction, Node, Plan, TensorType, Value

COMPARED_BYTES = 1 << 20  # of an operand that nothing has to copy otherwise: whether a function changes it


class RunError(Exception):
    """A Python instruction gave other results than when it was traced; the message names the user's line.

    ``node`` is the instruction's, ``run`` are (node, results, result of ``Frame.noting``) of all opaque ones so far; of
    one that has ``raised``, the exception stands for results. Operands that it has ``changed`` have their
    numbers.
    """

    node: Node | None = None
    raised: Exception | None = None  # by the user's own Python, whose code around it may catch it
    run: Sequence[tuple[Node, Any, Any]] = ()
    changed: Sequence[tuple[int, Any]] = ()


class LateIndexError(IndexError):
    """An earlier run has had an index out of bounds; the one that was about to begin has not.

    It was report ``number``; ``undone`` runs of the program that was about to run have changed nothing since.
    """

    number: int = 0
    undone: int = 0


def explain(error: BaseException, node: Node) -> None:
    """Add to an exception of Python code its place in the schedule: the node, its operands and the user's line."""
    operands = ", ".join(repr(v.type) for v in node.inputs if isinstance(v.type, TensorType))
    note = f"in compiled code: {node.op.name}({operands}) of {node.where or 'an unknown place'}"
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.__cause__ is None:  # before Python 3.11
        error.__cause__ = RunError(note)


def index_error(number: int, node: Node, kind: type[IndexError] = IndexError) -> IndexError:
    """The error of a gather or scatter that was given a row which is not there."""
    rows = node.inputs[0].shape[0] if node.op.name == "take" else node.output.shape[0]
    given = "a negative index" if number == NO_INDEX else f"index {number}"
    error = kind(f"{given} is out of bounds for axis 0 with size {rows}\nLabels and indices count "
                 "from 0, and the largest is the number of classes or rows less one.")
    explain(error, node)
    return error


def _same(a: Any, b: Any) -> bool:
    """Whether two arrays, of one type, have the same bytes; those of a card are not compared, as that would wait."""
    if type(a) is not np.ndarray or a.nbytes < 1 << 14:
        return type(a) is not np.ndarray or a.tobytes() == b.tobytes()
    words = f"u{min(a.itemsize, 8)}"
    return bool((a.reshape(-1).view(words) == b.reshape(-1).view(words)).all())


def part_of(array: Any, offset: int, shape: tuple[int, ...]) -> Any:
    """Return a view of a contiguous array that begins ``offset`` bytes inside, with its dtype."""
    if array.shape == shape:
        return array
    size = prod(shape)
    if size == array.size:
        return array.reshape(shape)
    start = offset // array.itemsize
    return array.reshape(-1)[start:start + size].reshape(shape)


class PythonRows:
    """The arrays of a frame, and its part that runs Python: ``array`` has a value of its ``plan``, ``tokens`` others.

    ``bound`` are the arrays of externals; for those in another layout others stand, with which they are ``replaced``.
    ``failed`` is the node that has raised; ``noting`` is called after each opaque instruction.
    """

    noting: Callable[[Node], Any] | None = None
    has_run: Sequence[tuple[Node, Any, Any]] = ()  # when an index was out of range

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tokens: dict[Value, Any] = {}
        self.bound: list[Any] = [None] * len(plan.externals)
        self.replaced: dict[int, tuple[Any, Any]] = {}
        self.failed: Node | None = None
        self._views: dict[Value, Any] = {}
        self._run: list[tuple[Node, Any, Any]] = []  # opaque instructions of the current run, with their results

    def array(self, value: Value) -> Any:
        """Return the array of ``value`` in this frame: a view of its memory, or of the bound array."""
        slot = self.plan.slots[value]
        if not isinstance(slot, Arena):
            bound = self.bound[slot.index]
            if bound is None:
                raise ValueError(f"external {slot.index}, {value!r}, is not bound")
            return part_of(bound, slot.offset, value.shape)
        view = self._views.get(value)
        if view is None:
            view = self._views[value] = self._view(slot.offset, value.tensor)
        return view

    def _view(self, offset: int, kind: TensorType) -> Any:
        """A view of the frame's memory."""
        raise NotImplementedError

    def bind(self, index: int, array: Any) -> None:
        """Bind an external to an array."""
        raise NotImplementedError

    def replace(self, node: Node, array: Any) -> None:
        """Bind another array in the place of a param, the first operand of ``node``, and where the node puts it."""
        slot = self.plan.slots[node.inputs[0]]
        assert not isinstance(slot, Arena)
        node.attrs["put"](array)
        self.bind(slot.index, array)

    def restore(self, index: int, array: Any) -> None:
        """Copy the elements of ``array`` to the array bound to an external."""
        for there in (self.bound[index], *self.replaced.get(index, ())):
            if there is not None:
                there[...] = array

    def outputs(self) -> list[Any]:
        """Return the graph's outputs: the bound arrays, copies of values in the arena, tokens as they are."""
        found: list[Any] = []
        for value in self.plan.graph.outputs:
            if not isinstance(value.type, TensorType):
                found.append(self.tokens[value])
            elif isinstance(self.plan.slots[value], Arena):
                found.append(self.array(value).copy())
            else:
                found.append(self.array(value))
        return found

    def _call(self, node: Node, arrays: Sequence[Any]) -> Sequence[Any]:
        return node.op.call(node.attrs, *arrays)

    def python(self, instruction: Instruction) -> None:
        """Run one row."""
        node = instruction.node
        arrays = [self.array(v) if isinstance(v.type, TensorType) else self.tokens[v] for v in node.inputs]
        given = arrays
        if node.op.is_opaque and not node.op.is_confined:  # it may keep its operands, and their memory is reused
            arrays = [a.copy() if isinstance(self.plan.slots.get(v), Arena) else a
                      for v, a in zip(node.inputs, arrays, strict=True)]
            if "function" in node.attrs:  # which may write to its inputs
                given = [a.copy() if a is b and type(a) is np.ndarray and 0 < a.nbytes <= COMPARED_BYTES else b
                         for a, b in zip(arrays, given, strict=True)][:len(given) - len(node.attrs.get("held", ()))]
        if node.op.fills:
            arrays += [self.array(v) for v in node.outputs]
        try:
            results = self._call(node, arrays)
        except RunError as fault:  # its own word that this is another call
            self.failed = fault.node = node
            if fault.raised is not None:
                explain(fault.raised, node)
                self._run.append((node, fault.raised, self.noting and self.noting(node)))
            fault.run = tuple(self._run)
            raise
        except BaseException as error:
            self.failed = node
            explain(error, node)
            raise
        if node.op.is_opaque:
            self._run.append((node, results, self.noting and self.noting(node)))
            if given is not arrays:
                self._expect(node, given, arrays)
        if node.op.fills:
            return
        if node.op.writes and results:
            self.replace(node, results[0])
            return
        try:
            for value, result in zip(node.outputs, results, strict=True):
                if isinstance(value.type, TensorType):
                    self._put(value, result)
                else:
                    self.tokens[value] = result
        except (AttributeError, TypeError, ValueError) as error:
            self.failed = node
            fault = RunError(f"{node.op.name} at {node.where or 'an unknown place'} failed: "
                            f"{type(error).__name__}: {error}")
            fault.node, fault.run = node, tuple(self._run)
            raise fault from error

    def _expect(self, node: Node, before: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Raise ``RunError`` where a function has changed operands, which others are then to find as they were."""
        pairs = enumerate(zip(before, arrays, strict=False))
        changed = [(i, x) for i, (b, x) in pairs if b is not x and not _same(b, x)]
        if not changed:
            return
        for k, (i, x) in enumerate(changed):
            if not isinstance(self.plan.slots.get(node.inputs[i]), Arena):  # from outside: the call begins anew
                changed[k] = i, x.copy()
                x[...] = before[i]
        self.failed = node
        fault = RunError(f"{node.op.name} changes an array that it is given")
        fault.node, fault.run, fault.changed = node, tuple(self._run), changed
        raise fault

    def _put(self, value: Value, result: Any) -> None:
        target = self.array(value)
        if result is target:
            return
        if np.shape(result) != target.shape or result.dtype != target.dtype:
            got = getattr(result, "dtype", type(result).__name__)
            raise ValueError(f"expected {value.type!r}, as when it was traced, got an array of "
                             f"{got}{list(np.shape(result))}")
        target[...] = result
