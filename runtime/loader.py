"""Texts become functions: LLVM IR and Numba source are compiled once per process, and kept on disk as object code."""
from __future__ import annotations

import hashlib
import importlib
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kusari.ir import Facts, Kernel
from kusari.ir.threads import thread_limit

from . import compiler
from .blas import BUFFERS
from .cache import Entry, ObjectCache
from .compiler import LoadError, compile_llvm, compile_numba, machine
from .linker import Image, Unlinkable, symbol_address
from .memory import discard_pages, trim_heap
from .target import code_of_llvm, host, llvm

FORMAT = "4"  # part of every key: raised when the same text is compiled in another way
IDLE_BYTES = 8 << 20  # of linked code that no executable has any more


@dataclass
class LoadReport:
    """The cost of loading so far in this process."""

    compiled: int = 0
    compile_seconds: float = 0.0
    cached: int = 0
    #: Called after each kernel that is compiled with how many are done, and how many there are to do.
    progress: Callable[[int, int], None] | None = None


@dataclass(eq=False)
class Library:
    """Kernels that were linked in one go: their code may be run as long as this object is alive."""

    code: Any
    nbytes: int


@dataclass
class Loader:
    """Compiles, keeps and links kernels.

    ``opt`` is the level of LLVM's optimiser for LLVM texts, which hardly need it: they are written as they should run,
    with explicit vectors, and at level 0, where no pass of it runs, they compile in half the time to code as fast.
    ``vectorize`` lets LLVM's vectorisers run.

    Invariant: a text is compiled once, whatever the number of threads that ask for it, and linked once as long as its
    code is loaded. Code without an owner (``lend``) stays while it is among the last ``IDLE_BYTES`` asked for: a
    program that sees new shapes all the time would grow by the code for each of them.
    """

    cache: ObjectCache = field(default_factory=ObjectCache.from_environment)
    opt: int = 0
    vectorize: bool = False
    report: LoadReport = field(default_factory=LoadReport)

    def __post_init__(self) -> None:
        self._loaded: dict[str, tuple[int, Facts, weakref.ref[Library]]] = {}
        self._jit: Any = None
        self._libraries: weakref.WeakSet[Library] = weakref.WeakSet()  # all alive
        self._recent: OrderedDict[Library, None] = OrderedDict()       # asked for last
        self._kept: set[Library] = set()                               # for good
        self._count = 0
        self._linked = 0
        self._lock = threading.RLock()
        self._pending: dict[str, threading.Event] = {}
        self._released = (0, 0)  # kernels linked and compiled when memory was last released
        facts = host()
        self._salt = "\0".join((FORMAT, facts.triple, facts.cpu, facts.features, str(self.opt), str(self.vectorize),
                                facts.compiler))

    def key(self, kernel: Kernel) -> str:
        """Return the name under which the kernel's object code is kept: a digest of everything it depends on."""
        extra = _numba_version() if kernel.language == "numba" else ""
        return hashlib.sha256("\0".join((self._salt, extra, kernel.key)).encode()).hexdigest()

    def load(self, kernels: Iterable[Kernel]) -> list[int]:
        """Return the addresses of ``kernels``, valid as long as the loader; else as ``lend``."""
        addresses, libraries = self.lend(kernels)
        with self._lock:
            self._kept.update(libraries)
        return addresses

    def lend(self, kernels: Iterable[Kernel]) -> tuple[list[int], tuple[Library, ...]]:
        """Return the addresses of ``kernels``, valid as long as the caller has the libraries that come with them.

        Kernels without object code are compiled; raises ``LoadError``. Afterwards all kernels have their facts, also
        kernels whose text was never written.
        """
        wanted = list(kernels)
        held: list[Library] = []  # until all are loaded
        while True:
            with self._lock:
                found = {key: self._linked_kernel(key) for key in dict.fromkeys(k.key for k in wanted)}
                missing = dict.fromkeys(k for k in wanted if found[k.key] is None)
                if not missing:
                    there = {key: known for key, known in found.items() if known is not None}
                    for kernel in wanted:
                        kernel.adopt_facts(there[kernel.key][1])
                    libraries = tuple(dict.fromkeys(library for _, _, library in there.values()))
                    self._touch(libraries)
                    return [there[kernel.key][0] for kernel in wanted], libraries
                others = [self._pending[k.key] for k in missing if k.key in self._pending]
                mine = [k for k in missing if k.key not in self._pending]
                self._pending.update((k.key, threading.Event()) for k in mine)
            try:
                if mine:
                    entries = self._entries(mine)
                    with self._lock:
                        held += self._link(entries)
            finally:
                with self._lock:
                    for kernel in mine:
                        self._pending.pop(kernel.key).set()
            for event in others:  # if that thread failed, this one tries itself
                event.wait()

    def _linked_kernel(self, key: str) -> tuple[int, Facts, Library] | None:
        """Return address, facts and library of a kernel whose code is loaded; else None."""
        found = self._loaded.get(key)
        library = None if found is None else found[2]()
        return None if found is None or library is None else (found[0], found[1], library)

    def _touch(self, libraries: Iterable[Library]) -> None:
        """Keep the libraries asked for last, and release the ones least recently used."""
        for library in libraries:
            self._recent[library] = None
            self._recent.move_to_end(library)
        total = sum(library.nbytes for library in self._recent)
        while total > IDLE_BYTES and len(self._recent) > 1:
            total -= self._recent.popitem(last=False)[0].nbytes

    def has(self, kernel: Kernel) -> bool:
        """Whether a kernel needs no compilation, as its code is loaded or on disk."""
        with self._lock:
            loaded = self._linked_kernel(kernel.key) is not None
        return loaded or self.cache.has(self.key(kernel))

    def load_one(self, kernel: Kernel) -> int:
        """Return the address of ``kernel``."""
        return self.load((kernel,))[0]

    def release_memory(self) -> None:
        """Release memory that LLVM holds since kernels were last loaded: to be called when no more are expected soon.

        That is its code, which the system keeps a copy of, and its heap; with it goes memory that define-by-run has
        left behind, in the C library and in OpenBLAS.
        """
        now = self._linked, self.report.compiled
        before, self._released = self._released, now
        if now != before:
            trim_heap()
            discard_pages(code_of_llvm())
            BUFFERS.release()

    def after_fork(self) -> None:
        """In the child of a fork, reset the locks and compilations of the parent's threads."""
        global _numba_lock
        _numba_lock = threading.Lock()
        self._lock = threading.RLock()
        self._pending.clear()
        compiler.after_fork()

    def _entries(self, kernels: list[Kernel]) -> dict[Kernel, Entry]:
        """Return object code from the disk, and compile the rest on all cores."""
        found: dict[Kernel, Entry] = {}
        absent: list[Kernel] = []
        for kernel in kernels:
            entry = self.cache.get(self.key(kernel))
            if entry is None:
                absent.append(kernel)
            else:
                found[kernel] = entry
                self.report.cached += 1
        if absent:
            start = time.perf_counter()
            self._compile_all(absent, found)
            self.report.compiled += len(absent)
            self.report.compile_seconds += time.perf_counter() - start
        return found

    def _compile_all(self, kernels: list[Kernel], found: dict[Kernel, Entry]) -> None:
        waiting = kernels[::-1]
        faults: list[BaseException] = []

        def work() -> None:
            while waiting and not faults:
                try:
                    kernel = waiting.pop()
                except IndexError:
                    return
                try:
                    found[kernel] = self._compile(kernel)
                    if (progress := self.report.progress) is not None:
                        progress(len(kernels) - len(waiting), len(kernels))
                except BaseException as fault:
                    faults.append(fault)

        threads: list[threading.Thread] = []
        try:
            for _ in range(min(len(kernels), thread_limit()) - 1):
                threads.append(threading.Thread(target=work))
                threads[-1].start()
        except RuntimeError:  # no more threads, or the interpreter is ending: this one does the work
            threads.pop()
        work()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]

    def _compile(self, kernel: Kernel) -> Entry:
        key = self.key(kernel)
        unique = f"k{key[:24]}"
        if kernel.language == "numba":
            with _numba_lock:
                entry = compile_numba(kernel, unique)
        else:
            entry = compile_llvm(kernel, unique, self.opt, self.vectorize)
        self.cache.put(key, entry)
        kernel.drop_text()
        return entry

    def _link(self, entries: dict[Kernel, Entry]) -> list[Library]:
        try:
            return [self._register(entries, self._library(list(entries.values())))]
        except RuntimeError:
            # One object out of many does not fit this process: find it and compile it anew.
            return [self._register({kernel: entry}, self._link_alone(kernel, entry))
                    for kernel, entry in entries.items()]

    def _register(self, entries: dict[Kernel, Entry], linked: tuple[dict[str, int], Library]) -> Library:
        """Note the addresses of kernels, for as long as their library lives; return the library."""
        addresses, library = linked
        keys, loaded = [kernel.key for kernel in entries], self._loaded

        def forget(gone: weakref.ref[Library]) -> None:  # at any time in any thread: no lock
            for key in keys:
                if (known := loaded.get(key)) is not None and known[2] is gone:
                    loaded.pop(key, None)
        reference = weakref.ref(library, forget)
        for kernel, entry in entries.items():
            loaded[kernel.key] = addresses[entry.symbol], entry.facts, reference
        self._linked += len(keys)
        return library

    def _link_alone(self, kernel: Kernel, entry: Entry) -> tuple[dict[str, int], Library]:
        if kernel.language == "numba":
            importlib.import_module("numba")  # brings the functions of its runtime into the process
        try:
            return self._library([entry])
        except RuntimeError:
            self.cache.discard(self.key(kernel))
        again = self._compile(kernel)
        self.report.compiled += 1
        try:
            return self._library([again])
        except RuntimeError as error:
            self.cache.discard(self.key(kernel))
            unknown = [name for name in again.needs
                       if symbol_address(name) is None and llvm.address_of_symbol(name) is None]
            reason = f"no function {', '.join(unknown)} in this process" if unknown else str(error).strip()
            raise LoadError(f"{kernel.symbol} cannot be linked: {reason}") from error

    def _library(self, entries: list[Entry]) -> tuple[dict[str, int], Library]:
        """Link objects in one go; raises ``RuntimeError`` when a name is not found in this process."""
        try:
            found: Any = Image(_objects(entries), symbol_address)
            addresses = {entry.symbol: found[entry.symbol] for entry in entries}
            library = Library(found, found.nbytes)
        except (Unlinkable, KeyError):
            found = self._by_llvm(entries)
            addresses = {entry.symbol: int(found[entry.symbol]) for entry in entries}
            library = Library(found, sum(map(len, _objects(entries))))
        self._libraries.add(library)
        return addresses, library

    def _by_llvm(self, entries: list[Entry]) -> Any:
        """Link objects of other kinds than our linker handles.

        By LLVM's newer linker: the older one (MCJIT) ends the process at an unknown name, and several objects of the
        large code model in one of its engines silently read each other's constants.
        """
        if self._jit is None:
            self._jit = llvm.create_lljit_compiler(machine(), suppress_errors=True)
        builder = llvm.JITLibraryBuilder().add_current_process()
        for name in dict.fromkeys(n for entry in entries for n in entry.needs):
            # Functions given to LLVM by address (BLAS, Numba's runtime) are no symbols of the process.
            address = symbol_address(name) or llvm.address_of_symbol(name)
            if address is not None:
                builder.import_symbol(name, address)
        for code in _objects(entries):
            builder.add_object_img(code)
        for entry in entries:
            builder.export_symbol(entry.symbol)
        self._count += 1
        return builder.link(self._jit, f"kernels{self._count}")


def _objects(entries: Iterable[Entry]) -> list[bytes]:
    """The code of kernels, and once that of each part of them."""
    parts: dict[str, bytes] = {}
    codes: list[bytes] = []
    for entry in entries:
        codes.append(entry.code)
        parts.update(entry.parts)
    return [*codes, *parts.values()]


def _numba_version() -> str:
    """Numba's version without importing it, which would cost a tenth of a second."""
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("numba")
    except PackageNotFoundError:
        return ""


_numba_lock = threading.Lock()  # Numba compiles one function at a time anyway
_default: Loader | None = None
_default_lock = threading.Lock()


def default_loader() -> Loader:
    """Return the loader of this process."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Loader()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_default.after_fork)
        return _default
