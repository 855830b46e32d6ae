"""Which names code reads and stores, as its instructions say."""
from __future__ import annotations

import dis
import functools
from types import CodeType

_BY_NAME = frozenset(("hasattr", "getattr", "setattr", "delattr", "attrgetter", "methodcaller"))  # in strings
_MODULES = ("kusari", "chainer", "ch")
_OF_VARIABLES = frozenset(("grad", "grad_var", "creator", "creator_node", "rank"))  # what another call may find changed


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
