"""Where code goes from a loss straight on to its backward and an update: read from bytecode, once per code object.

    loss = model.loss(x, t)     # or model(x, t)
    model.cleargrads()          # here, before it, or nowhere
    loss.backward()
    optimizer.update()

Invariant: between the loss and the end of the update nothing runs but these calls, and ``loss`` is a local variable of
which the code reads nothing but its array: no other function sees the Variable.
"""
from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

#: The first version of Python whose instructions have not been tried: steps of its loops are made in parts.
UNTRIED = (3, 15)
#: Attributes that the code may read of a loss.
READ = frozenset(("array", "data", "shape", "dtype"))
#: Names in code that could show its variables to others.
_SHOWING = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack"))
_SKIPPED = frozenset(("NOP", "CACHE", "RESUME", "NOT_TAKEN"))
_LOCAL = frozenset(("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"))
_LOADS = _LOCAL | {"LOAD_DEREF", "LOAD_GLOBAL"}
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_CALLS = frozenset(("CALL", "CALL_METHOD", "CALL_FUNCTION"))
_MOST_FUNCTIONS = 256

Range = tuple[int, int]
"""The offsets that a frame may have while one of its calls runs."""


@dataclass(frozen=True)
class Name:
    """A variable of the code; ``outside``: one of its module."""

    name: str
    outside: bool


@dataclass(frozen=True)
class Site:
    """The calls of one place: what ``model``, ``method`` (empty for a call of the object itself), and where."""

    model: Name
    method: str
    loss: Range
    cleared: Name | None
    optimizer: Name
    update: Range


@dataclass(frozen=True)
class _Step:
    """An instruction; one that does two things is two of these."""

    name: str
    value: Any
    effect: int
    span: Range


_known: dict[int, tuple[weakref.ref[CodeType], tuple[Site, ...]]] = {}


def site_of(frame: FrameType) -> Site | None:
    """Return the place whose update a frame is at, if there is one."""
    now = frame.f_lasti
    return next((s for s in sites(frame.f_code) if s.update[0] <= now < s.update[1]), None)


def sites(code: CodeType) -> tuple[Site, ...]:
    """Return all such places of some code."""
    known = _known.get(id(code))
    if known is None or known[0]() is not code:
        if len(_known) >= _MOST_FUNCTIONS:
            _known.clear()
        found = tuple(_found(code)) if sys.version_info < UNTRIED else ()
        known = _known[id(code)] = weakref.ref(code), found
    return known[1]


def _found(code: CodeType) -> Iterator[Site]:
    if not code.co_flags & 0x1 or _SHOWING & {*code.co_names, *code.co_freevars, *code.co_cellvars}:
        return  # not a function's, or one that shows its variables
    steps, targets = _steps(code)
    found: list[tuple[Site, str]] = []
    for i, step in enumerate(steps[:-1]):
        after = steps[i + 1]
        if (step.name in _CALLS or step.name == "CALL_FUNCTION_EX") and after.name == "STORE_FAST":
            if (site := _site(steps, i, targets)) is not None:
                found.append((site, after.value))
    for site, loss in found:
        own = [(s.loss, s.update) for s, name in found if name == loss]
        if _only_read(steps, loss, own):
            yield site


def _steps(code: CodeType) -> tuple[list[_Step], set[int]]:
    """Return the instructions, and the offsets that are jumped to."""
    listed = list(dis.get_instructions(code))
    ends = [x.offset for x in listed[1:]] + [len(code.co_code)]
    steps: list[_Step] = []
    targets = {entry.target for entry in getattr(dis.Bytecode(code), "exception_entries", ())}
    start, before = -1, 0  # of what belongs to the next instruction: where, and its effect
    for x, end in zip(listed, ends, strict=True):
        if x.opcode in dis.hasjrel or x.opcode in dis.hasjabs:
            targets.add(x.argval)
        if start < 0:
            start = x.offset
        if x.opname == "EXTENDED_ARG":
            continue
        effect = before + dis.stack_effect(x.opcode, x.arg if x.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if x.opname == "PRECALL":
            before = effect
            continue
        span, start, before = (start, end), -1, 0
        if x.opname in _SKIPPED:
            continue
        if type(x.argval) is tuple and x.opname.count("_FAST") == 2:  # two in one
            kinds = x.opname.replace("_BORROW", "").split("_FAST")
            for kind, value in zip(kinds, x.argval, strict=False):
                name = kind.strip("_") + "_FAST"
                steps.append(_Step(name, value, 1 if name == "LOAD_FAST" else -1, span))
        else:
            steps.append(_Step(x.opname, x.argval, effect, span))
    return steps, targets


def _site(steps: Sequence[_Step], call: int, targets: set[int]) -> Site | None:
    """Return the place whose loss is the result of the call at ``call``."""
    at, loss = call + 2, steps[call + 1].value
    callee = _callee(steps, call)
    if callee is None:
        return None
    cleared: Name | None = None
    found = _method_call(steps, at)
    if found is not None and found[1] == "cleargrads":
        cleared, at = found[0], at + 4
        found = _method_call(steps, at)
    if found is None or found[1] != "backward" or found[0] != Name(loss, False):
        return None
    at += 4
    found = _method_call(steps, at)
    if found is None or found[1] != "update":
        return None
    optimizer, first = found[0], callee[2]
    begin, end = steps[first].span[0], steps[at + 3].span[1]
    if any(begin < target < end for target in targets):
        return None
    return Site(callee[0], callee[1], steps[call].span, cleared, optimizer, steps[at + 2].span)


def _name(step: _Step) -> Name | None:
    """Return the variable that an instruction loads."""
    return Name(step.value, step.name == "LOAD_GLOBAL") if step.name in _LOADS else None


def _method_call(steps: Sequence[_Step], at: int) -> tuple[Name, str] | None:
    """Return the object and the method of a statement ``object.method()``."""
    part = steps[at:at + 4]
    if len(part) < 4 or part[1].name not in _ATTRIBUTES or part[2].name not in _CALLS or part[3].name != "POP_TOP":
        return None
    name = _name(part[0])
    return None if name is None or part[2].value not in (0, None) else (name, part[1].value)


def _callee(steps: Sequence[_Step], call: int) -> tuple[Name, str, int] | None:
    """Return the object and the method that are called (no method: the object is), and where they are loaded."""
    needed = 1 - steps[call].effect
    first = call
    while needed and first:
        first -= 1
        if steps[first].name.startswith(("JUMP", "POP_JUMP", "FOR_ITER", "SEND", "YIELD")):
            return None
        needed -= steps[first].effect
    if needed:
        return None
    at = first + (steps[first].name == "PUSH_NULL")
    name, method = _name(steps[at]), ""
    if name is None:
        return None
    if steps[at + 1].name in _ATTRIBUTES:
        at, method = at + 1, steps[at + 1].value
    if steps[at + 1].name == "PUSH_NULL":
        at += 1
    depth, arguments = 0, steps[at + 1:call]
    if arguments and (arguments[0].effect != 1 or arguments[0].name in _ATTRIBUTES):
        return None  # an attribute of an attribute, or more
    for step in arguments:  # arguments lie above the function that is called, which nothing else may take
        depth += step.effect
        if depth < 1:
            return None
    return name, method, first


def _only_read(steps: Sequence[_Step], loss: str, own: Sequence[tuple[Range, Range]]) -> bool:
    """Whether all uses of a variable are reads of its array, or the backwards of places between ``own`` offsets."""
    for i, step in enumerate(steps):
        values = step.value if type(step.value) is tuple else (step.value,)
        if loss not in values or not ("_FAST" in step.name or "_DEREF" in step.name or "CELL" in step.name
                                      or "CLOSURE" in step.name):
            continue
        if step.name in ("STORE_FAST", "DELETE_FAST"):
            continue
        if step.name not in _LOCAL or i + 1 == len(steps):
            return False
        after = steps[i + 1]
        if after.name == "LOAD_ATTR" and after.value in READ:
            continue
        inside = any(begin[1] <= step.span[0] < end[0] for begin, end in own)
        if not (inside and after.name in _ATTRIBUTES and after.value == "backward"):
            return False
    return True
