"""Which names code reads and stores, as its instructions say."""
from __future__ import annotations

import dis
import functools
import importlib.util
from types import CodeType, FunctionType

_BY_NAME = frozenset(("hasattr", "getattr", "setattr", "delattr", "attrgetter", "methodcaller"))  # in strings
_MODULES = ("kusari", "chainer", "ch")
_OF_VARIABLES = frozenset(("grad", "grad_var", "creator", "creator_node", "rank"))  # what another call may find changed
_ANYWHERE = frozenset(("eval", "exec", "globals", "__import__"))
_STATES = frozenset(("get_state", "getstate", "bit_generator", "__getstate__", "__reduce__"))
_COPIES = frozenset(("copy", "deepcopy", "pickle", "dumps"))


def identifiers(code: CodeType) -> set[str]:
    """Return the names in the strings of code that looks attributes up by strings."""
    if not _BY_NAME.intersection(code.co_names):
        return set()
    return {part for c in code.co_consts if isinstance(c, str) for part in c.split(".") if part.isidentifier()}


@functools.lru_cache(maxsize=4096)
def names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    """Return the attributes that code reads and stores, and the globals it reads and stores; nested code included."""
    loads: set[str] = set()
    stores: set[str] = set()
    globals_read: set[str] = set()
    globals_stored: set[str] = set()
    for i in dis.get_instructions(code):
        name = i.argval
        if not isinstance(name, str):
            continue
        op = i.opname
        if op in ("LOAD_GLOBAL", "LOAD_NAME"):
            globals_read.add(name)
        elif op in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            globals_stored.add(name)
        elif op in ("STORE_ATTR", "DELETE_ATTR"):
            stores.add(name)
        elif op.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")) or op == "IMPORT_FROM":
            loads.add(name)
    named = identifiers(code)
    loads |= named
    if {"setattr", "delattr"} & globals_read:
        stores |= named
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = names_in(const)
            for mine, theirs in zip((loads, stores, globals_read, globals_stored), inner, strict=True):
                mine |= theirs
    return frozenset(loads), frozenset(stores), frozenset(globals_read), frozenset(globals_stored)


@functools.lru_cache(maxsize=4096)
def of_variables(code: CodeType) -> frozenset[str]:
    """Return what code may read or store of Variables besides arrays: attributes of such names, but not of modules."""
    found: set[str] = set()
    before = ""
    for i in dis.get_instructions(code):
        name = i.argval
        if i.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")):
            stored = i.opname == "STORE_ATTR"
            if (name in _OF_VARIABLES or (stored and name in ("array", "data"))) and before not in _MODULES:
                found.add(name)
        if i.opname != "PUSH_NULL":
            before = name if isinstance(name, str) else ""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found |= of_variables(const)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def looks_anywhere(code: CodeType) -> str | None:
    """Return what lets code read globals that it does not name, if anything does."""
    loads, _, globals_read, _ = names_in(code)
    found = sorted(globals_read & _ANYWHERE) + ["import_module"] * ("import_module" in loads | globals_read)
    return found[0] if found else "sys.modules" if "sys" in globals_read and "modules" in loads else None


def reads_states(code: CodeType) -> bool:
    """Whether code may read, or copy, the state of a generator of random numbers without drawing from it."""
    loads, _, globals_read, _ = names_in(code)
    return bool(loads & _STATES or globals_read & (_COPIES | _STATES))


@functools.lru_cache(maxsize=4096)
def _imports(code: CodeType) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    before: list[object] = []  # the level, then the names that are wanted of the module
    for i in dis.get_instructions(code):
        if i.opname == "IMPORT_NAME":
            found.append((i.argval, before[-2] if len(before) > 1 and isinstance(before[-2], int) else 0))
        if i.opname not in ("EXTENDED_ARG", "CACHE"):
            before.append(i.argval)
    return (*found, *(x for c in code.co_consts if isinstance(c, CodeType) for x in _imports(c)))


def imports_of(f: FunctionType) -> list[str]:
    """Return the modules that a function imports when it runs, by their full names."""
    found: list[str] = []
    for name, level in _imports(f.__code__):
        try:
            found.append(importlib.util.resolve_name("." * level + name, f.__globals__.get("__package__")))
        except ImportError:
            pass
    return [part for name in found for part in dict.fromkeys((name.partition(".")[0], name))]
