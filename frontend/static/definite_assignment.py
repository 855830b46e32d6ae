"""Which attributes code reads only where it has stored them itself: what was there before the call does not matter."""
from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import Any

from ..link import Chain, ChainList, Link
from ..variable import Variable

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_STORES = (object.__setattr__, Link.__setattr__, Chain.__setattr__, ChainList.__setattr__)  # that store what they say
_Facts = frozenset[tuple[str, str]]


@functools.lru_cache(maxsize=4096)
def read_from_before(code: CodeType) -> frozenset[str]:
    """Return the attributes that code, nested code included, may read as they were before it ran.

    ``self.losses = {…}`` says on every way that goes on from there what ``self.losses`` is, as long as ``self`` is the
    same variable. Invariant: what is not known to be stored is returned.
    """
    return _exposed(code, frozenset())


def is_fresh(reached: Any, x: Any, name: str, value: Any) -> bool:
    """Whether all code that a walk has reached and that reads an attribute of ``x`` has stored it before."""
    kind = type(x)
    return (name in reached.stores and name not in reached.from_before and not reached.dynamic
            and (type(value) is Variable or isinstance(value, (list, dict, tuple)))
            and kind.__setattr__ in _STORES and kind.__getattribute__ is object.__getattribute__)


def _exposed(code: CodeType, known: _Facts) -> frozenset[str]:
    """The same, where nested code begins with the attributes ``known`` to be stored, pairs of a variable and a name."""
    steps = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "NOP", "CACHE")]
    at = {i.offset: k for k, i in enumerate(steps)}
    handlers = [(e.start, e.end, e.target) for e in getattr(dis.Bytecode(code), "exception_entries", ())]
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    shared = {name for c in inner for name in _rebound(c)}  # closure variables that nested code binds anew
    facts: dict[int, _Facts] = {}

    def follow(k: int, start: _Facts) -> None:
        waiting = [(k, start)]
        while waiting:
            k, now = waiting.pop()
            if k >= len(steps):
                continue
            before = facts.get(k)
            now = now if before is None else before & now
            if now == before:
                continue
            facts[k] = now
            i = steps[k]
            waiting += [(at[target], now) for start, end, target in handlers
                        if start <= i.offset < end and target in at]
            after = _after(i, steps[k - 1] if k else None, now, shared)
            if i.opcode in _JUMPS and not i.opname.startswith("SETUP_"):
                waiting.append((at.get(i.argval, len(steps)), after))
            if not i.opname.startswith(_ENDS):
                waiting.append((k + 1, after))

    follow(0, known)
    for k in range(len(steps)):
        if k not in facts:  # reached in a way that is not followed
            follow(k, frozenset())
    found: set[str] = set()
    for k, i in enumerate(steps):
        name = i.argval
        if isinstance(name, CodeType):
            found |= _exposed(name, frozenset([f for f in facts[k] if f[0] not in shared]))
        elif i.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")) and isinstance(name, str):
            variable = _variable(steps[k - 1]) if k else None
            if variable is None or (variable, name) not in facts[k]:
                found.add(name)
    return frozenset(found)


def _after(i: Any, before: Any, facts: _Facts, shared: set[str]) -> _Facts:
    """What is known after one instruction."""
    if i.opname == "STORE_ATTR":
        variable = _variable(before) if before is not None else None
        return facts if variable is None or variable in shared else facts | {(variable, i.argval)}
    if i.opname == "DELETE_ATTR":
        return frozenset([f for f in facts if f[1] != i.argval])
    if "STORE_FAST" in i.opname or i.opname in ("DELETE_FAST", "STORE_DEREF", "DELETE_DEREF", "LOAD_FAST_AND_CLEAR"):
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        return frozenset([f for f in facts if f[0] not in names])
    return facts


def _variable(i: Any) -> str | None:
    """The local or closure variable that an instruction puts on top of the stack."""
    if i.opname.startswith("LOAD_FAST") and i.opname != "LOAD_FAST_AND_CLEAR" or i.opname == "LOAD_DEREF":
        return i.argval[-1] if isinstance(i.argval, tuple) else i.argval
    return None


def _rebound(code: CodeType) -> set[str]:
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return names.union(*(_rebound(c) for c in code.co_consts if isinstance(c, CodeType)))
