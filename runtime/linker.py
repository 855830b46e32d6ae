"""A linker for object code: if all kernels come from the disk, LLVM is not even loaded.

Loading it takes 40 MB for a while and 9 MB for good, and some 40 ms. This module reads the objects that LLVM writes for
kernels on x86-64 Linux, ELF of the small code model; anything else raises ``Unlinkable``, and LLVM links it.
"""
from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_MAGIC, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62  # 64 bits, little-endian, version 1
_SYMBOLS, _ADDENDS, _EMPTY, _UNWINDING = 2, 4, 8, 0x70000001  # types of sections
_WRITE, _ALLOCATED, _THREADS = 1, 2, 0x400                    # flags of sections
_ABSOLUTE, _PC32, _PLT32, _PC64 = 1, 2, 4, 24                 # relocations; through a table of addresses:
_TABLE = frozenset((9, 41, 42))
_JUMP = b"\xff\x25\xf2\xff\xff\xff\x90\x90"  # jump to the address in the eight bytes before
_STUB_BYTES = 16
_LINE_BYTES = 64

SUPPORTED = sys.platform.startswith("linux") and platform.machine() == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8


class Unlinkable(RuntimeError):
    """An object is of another kind than is linked here, or needs a name that is not defined."""


@dataclass
class _Object:
    """An object file: its sections in memory, its definitions and its relocations."""

    code: bytes
    placed: dict[int, tuple[int, int, bool, int]] = field(default_factory=dict)  # section: (start, size, writable, at)
    symbols: list[tuple[str, int, int, int]] = field(default_factory=list)       # (name, binding, section, value)
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # section, at, kind, symbol, addend


def _text(table: bytes, at: int) -> str:
    return table[at:table.index(b"\0", at)].decode()


def _read(code: bytes) -> tuple[_Object, list[tuple[int, int, int, int, int]]]:
    """Read an object; return it, and (section, type, flags, size, alignment) of the sections in memory."""
    ident, kind, machine, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if not ident.startswith(_MAGIC) or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise Unlinkable("not an ELF object for x86-64")
    sections = [_SECTION.unpack_from(code, at + i * size) for i in range(count)]
    found = _Object(code)
    kept: list[tuple[int, int, int, int, int]] = []
    for i, (_, kind, flags, _, _, nbytes, _, _, alignment, _) in enumerate(sections):
        if flags & _ALLOCATED and kind != _UNWINDING and nbytes:
            if flags & _THREADS:
                raise Unlinkable("memory of threads")
            kept.append((i, kind, flags, nbytes, alignment))
    known = {i for i, *_ in kept}
    for _, kind, _, _, start, nbytes, link, info, _, _ in sections:
        part = code[start:start + nbytes]
        if kind == _SYMBOLS:
            names = code[sections[link][4]:sections[link][4] + sections[link][5]]
            found.symbols = [(_text(names, name), about >> 4, section, value)
                             for name, about, _, section, value, _ in _SYMBOL.iter_unpack(part)]
        elif kind == _ADDENDS and info in known:
            found.relocations += [(info, where, about & 0xffffffff, about >> 32, addend)
                            for where, about, addend in _RELOCATION.iter_unpack(part)]
    found.placed = {i: (sections[i][4], sections[i][5], bool(flags & _WRITE), -1) for i, _, flags, _, _ in kept}
    return found, kept


class Image:
    """Objects linked together, in executable memory that is read-only, but for their data."""

    def __init__(self, objects: Sequence[bytes], symbol_address: Callable[[str], int | None]) -> None:
        if not SUPPORTED:
            raise Unlinkable("not x86-64 Linux")
        try:
            self._build(objects, symbol_address)
        except (struct.error, IndexError, ValueError, OSError) as error:
            raise Unlinkable(f"not an object that can be read: {error}") from error

    def _build(self, objects: Sequence[bytes], symbol_address: Callable[[str], int | None]) -> None:
        read = [_read(code) for code in objects]
        fixed = self._place(read, False, 0)
        outside = {fix[3:4] + (k,) for k, (each, _) in enumerate(read) for fix in each.relocations
                   if fix[2] in _TABLE or not each.symbols[fix[3]][2]}
        self._stub, fixed = fixed, fixed + _STUB_BYTES * len(outside)
        fixed = -(-fixed // mmap.PAGESIZE) * mmap.PAGESIZE
        size = self._place(read, True, fixed)
        self.base, self.nbytes = _mapped(size), size
        # Not at the end of the process: daemon threads may still be in there.
        weakref.finalize(self, _libc().munmap, ctypes.c_void_p(self.base), ctypes.c_size_t(size)).atexit = False
        self._memory = memoryview((ctypes.c_char * size).from_address(self.base)).cast("B")
        self._stubs: dict[int, int] = {}
        self._symbols: dict[str, int] = {}
        for each, kept in read:
            for i, kind, *_ in kept:
                start, nbytes, _, at = each.placed[i]
                if kind != _EMPTY:
                    self._memory[at:at + nbytes] = each.code[start:start + nbytes]
            self._symbols.update((name, self.base + each.placed[section][3] + value)
                                 for name, binding, section, value in each.symbols
                                 if binding and section in each.placed)
        for each, _ in read:
            self._relocate(each, symbol_address)
        if _libc().mprotect(ctypes.c_void_p(self.base), ctypes.c_size_t(fixed), mmap.PROT_READ | mmap.PROT_EXEC):
            raise Unlinkable("the system does not let this memory be run")

    @staticmethod
    def _place(read: Sequence[tuple[_Object, list[tuple[int, int, int, int, int]]]], writable: bool, end: int) -> int:
        """Assign addresses from ``end`` on to the sections that are, or are not, written; return their end."""
        for each, kept in read:
            end = -(-end // _LINE_BYTES) * _LINE_BYTES
            for i, _, flags, nbytes, alignment in kept:
                if bool(flags & _WRITE) is writable:
                    if alignment > mmap.PAGESIZE:
                        raise Unlinkable(f"an alignment of {alignment}")
                    end = -(-end // max(1, alignment)) * max(1, alignment)
                    each.placed[i] = *each.placed[i][:3], end
                    end += nbytes
        return end

    def _relocate(self, each: _Object, symbol_address: Callable[[str], int | None]) -> None:
        """Apply the relocations."""
        memory, base = self._memory, self.base
        for section, where, kind, symbol, addend in each.relocations:
            _, nbytes, _, start = each.placed[section]
            wide = kind in (_ABSOLUTE, _PC64)
            if where + (8 if wide else 4) > nbytes:
                raise Unlinkable("an address outside of its section")
            at = start + where
            name, binding, home, value = each.symbols[symbol]
            if home in each.placed:
                target = base + each.placed[home][3] + value
            elif not home and name in self._symbols:
                target = self._symbols[name]
            elif not home and binding and name and (address := symbol_address(name)):
                target = address
                if kind == _PLT32:
                    target = self._through(target) + 8
            else:
                raise Unlinkable(f"no function {name} in this process")
            if kind in _TABLE:
                target = self._through(target)
            if kind == _ABSOLUTE:
                struct.pack_into("<Q", memory, at, (target + addend) % 2**64)
            elif kind == _PC64:
                struct.pack_into("<q", memory, at, target + addend - base - at)
            elif kind in (_PC32, _PLT32) or kind in _TABLE:
                struct.pack_into("<i", memory, at, target + addend - base - at)
            else:
                raise Unlinkable(f"relocation {kind}")

    def _through(self, target: int) -> int:
        """Return the address of a word that holds ``target``, right in front of a stub that jumps there."""
        at = self._stubs.get(target)
        if at is None:
            at = self._stubs[target] = self._stub
            struct.pack_into("<Q", self._memory, at, target)
            self._memory[at + 8:at + _STUB_BYTES] = _JUMP
            self._stub += _STUB_BYTES
        return self.base + at

    def __getitem__(self, symbol: str) -> int:
        """The address of a function that one of the objects defines; raises ``KeyError``."""
        return self._symbols[symbol]


@lru_cache(maxsize=1)
def _libc() -> Any:
    """The global symbols of this process."""
    return ctypes.CDLL(None)


def _mapped(size: int) -> int:
    """Return the address of new writable memory; raises ``Unlinkable`` if there is none."""
    take = _libc().mmap
    take.restype = ctypes.c_void_p
    take.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    address = take(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise Unlinkable("no memory")
    return int(address)


_defined: dict[str, int] = {}


def define_symbol(name: str, address: int | None) -> None:
    """Define ``name`` for kernels: a function, or an object, that is no symbol of this process."""
    if address is not None:
        _defined[name] = address


def symbol_address(name: str) -> int | None:
    """Return the address defined for ``name`` here, or that of the process's symbol; None without one."""
    address = _defined.get(name)
    if address is None:
        try:
            address = ctypes.cast(getattr(_libc(), name), ctypes.c_void_p).value
        except (AttributeError, OSError, TypeError):
            return None
    return address
