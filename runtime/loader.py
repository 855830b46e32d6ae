"""Texts become functions: LLVM IR and Numba source are compiled once per process, and kept on disk as object code."""
from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kusari.ir import Facts, Kernel

from .cache import Entry, ObjectCache
from .target import host, initialize, llvm

FORMAT = "4"  # part of every key: raised when the same text is compiled in another way
FAST_MATH = ("contract", "reassoc", "nsz", "arcp")  # what keeps NaN and infinity


class LoadError(Exception):
    """A kernel's text cannot be compiled or linked; the message shows the text's faulty part."""


@dataclass
class LoadReport:
    """What loading has cost so far in this process."""

    compiled: int = 0
    compile_seconds: float = 0.0
    cached: int = 0
    code_bytes: int = 0


def machine(opt: int = 2) -> Any:
    """Return LLVM's target machine for this host."""
    initialize()
    facts = host()
    target = llvm.Target.from_triple(facts.triple)
    # The small model keeps constants next to the code; the linker makes stubs for functions that are far away.
    model = "small" if facts.triple.startswith(("x86_64", "aarch64", "arm64")) else "jitdefault"
    return target.create_target_machine(cpu=facts.cpu, features=facts.features, opt=opt, reloc="pic", codemodel=model)


def _mark(text: str, message: str) -> str:
    """``message`` with the line of ``text`` that it points to."""
    for part in message.split(":"):
        if part.strip().isdigit():
            lines = text.splitlines()
            at = int(part) - 1
            if 0 <= at < len(lines):
                return f"{message.strip()}\n--> {lines[at]}"
    return message.strip()


@dataclass
class Loader:
    """Compiles, keeps and links kernels.

    ``opt`` is the level of LLVM's optimiser for LLVM texts, which hardly need it: they are written as they should
    run, with explicit vectors, and level 0 (functions marked ``alwaysinline`` are inlined, instructions selected and
    scheduled as ever) compiles them in half the time to code as fast. ``vectorize`` lets LLVM's vectorisers run.

    Invariant: a text is compiled at most once per loader, whatever the number of threads that ask for it; the
    addresses it returns stay valid as long as the loader lives.
    """

    cache: ObjectCache = field(default_factory=ObjectCache.from_environment)
    opt: int = 0
    vectorize: bool = False
    report: LoadReport = field(default_factory=LoadReport)

    def __post_init__(self) -> None:
        self._loaded: dict[str, tuple[int, Facts]] = {}
        self._jit: Any = None
        self._libraries: list[Any] = []
        self._count = 0
        self._lock = threading.RLock()
        facts = host()
        self._salt = "\0".join((FORMAT, facts.triple, facts.cpu, facts.features, str(self.opt), str(self.vectorize),
                                ".".join(map(str, llvm.llvm_version_info))))

    def key(self, kernel: Kernel) -> str:
        """Return the name under which the kernel's object code is kept: a digest of all it depends on."""
        extra = _numba_version() if kernel.language == "numba" else ""
        return hashlib.sha256("\0".join((self._salt, extra, kernel.key)).encode()).hexdigest()

    def load(self, kernels: Iterable[Kernel]) -> list[int]:
        """Return the addresses of ``kernels``, compiling what was never compiled; raises ``LoadError``.

        Afterwards the kernels know their facts, also those whose text nobody has written.
        """
        wanted = list(kernels)
        with self._lock:
            missing = dict.fromkeys(k for k in wanted if k.key not in self._loaded)
            if missing:
                self._link({k: self._entry(k) for k in missing})
            for kernel in wanted:
                kernel.know(self._loaded[kernel.key][1])
            return [self._loaded[kernel.key][0] for kernel in wanted]

    def load_one(self, kernel: Kernel) -> int:
        """Return the address of ``kernel``."""
        return self.load((kernel,))[0]

    def after_fork(self) -> None:
        """In the child of a fork nobody holds the lock, even if a thread of the parent did."""
        self._lock = threading.RLock()

    def _entry(self, kernel: Kernel) -> Entry:
        key = self.key(kernel)
        entry = self.cache.get(key)
        if entry is not None:
            self.report.cached += 1
            return entry
        start = time.perf_counter()
        unique = f"k{key[:24]}"
        entry = (self._compile_llvm if kernel.language == "llvm" else self._compile_numba)(kernel, unique)
        self.report.compiled += 1
        self.report.compile_seconds += time.perf_counter() - start
        self.cache.put(key, entry)
        return entry

    def _compile_llvm(self, kernel: Kernel, unique: str) -> Entry:
        try:
            module = llvm.parse_assembly(kernel.text, context=llvm.create_context())
            module.verify()
        except RuntimeError as error:
            raise LoadError(f"the text of {kernel.symbol} is not valid: {_mark(kernel.text, str(error))}") from None
        return self._emit(module, kernel.symbol, unique, self.opt, kernel.facts)

    def _compile_numba(self, kernel: Kernel, unique: str) -> Entry:
        function = numba_function(kernel)
        numba: Any = importlib.import_module("numba")
        types = numba.types
        signature = types.void(types.CPointer(types.voidptr), types.int64, types.int64)
        try:
            compiled = numba.cfunc(signature, fastmath=set(FAST_MATH), error_model="numpy")(function)
        except numba.core.errors.NumbaError as error:
            raise LoadError(f"Numba cannot compile {kernel.symbol}: {error}") from error
        bitcode = compiled._library._final_module.as_bitcode()  # what Numba itself hands to its engine
        module = llvm.parse_bitcode(bitcode, context=llvm.create_context())
        return self._emit(module, compiled.native_name, unique, 2, kernel.facts)

    def _emit(self, module: Any, symbol: str, unique: str, opt: int, facts: Facts) -> Entry:
        """Optimise a module of which only ``symbol`` stays visible, under a name of its own, and emit its object code.

        So many objects can be linked together, and Numba's wrapper loses the error paths that need Numba.
        """
        entry = None
        for function in module.functions:
            if function.is_declaration:
                continue
            if function.name == symbol:
                entry = function
            else:
                function.linkage = "internal"
        if entry is None:
            raise LoadError(f"the text does not define @{symbol}")
        entry.name = unique
        for variable in module.global_variables:
            if not variable.is_declaration:
                variable.linkage = "internal"
        target = machine()
        module.triple = host().triple
        module.data_layout = str(target.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
        tuning.loop_vectorization = self.vectorize
        tuning.slp_vectorization = self.vectorize
        builder = llvm.create_pass_builder(target, tuning)
        builder.getModulePassManager().run(module, builder)
        names = [*module.functions, *module.global_variables]
        needs = sorted(v.name for v in names if v.is_declaration and not v.name.startswith("llvm."))
        return Entry(unique, target.emit_object(module), facts, tuple(needs))

    def _link(self, entries: dict[Kernel, Entry]) -> None:
        try:
            addresses = self._library(list(entries.values()))
        except RuntimeError:
            # One object out of many does not fit this process: find it and make it anew.
            addresses = {entry.symbol: self._link_alone(kernel, entry) for kernel, entry in entries.items()}
        for kernel, entry in entries.items():
            self._loaded[kernel.key] = addresses[entry.symbol], entry.facts

    def _link_alone(self, kernel: Kernel, entry: Entry) -> int:
        if kernel.language == "numba":
            importlib.import_module("numba")  # brings the functions of its runtime into the process
        try:
            return self._library([entry])[entry.symbol]
        except RuntimeError:
            self.cache.discard(self.key(kernel))
        entry = self._entry(kernel)
        try:
            return self._library([entry])[entry.symbol]
        except RuntimeError as error:
            self.cache.discard(self.key(kernel))
            unknown = [name for name in entry.needs if llvm.address_of_symbol(name) is None]
            reason = f"no function {', '.join(unknown)} in this process" if unknown else str(error).strip()
            raise LoadError(f"{kernel.symbol} cannot be linked: {reason}") from error

    def _library(self, entries: list[Entry]) -> dict[str, int]:
        """Link objects in one go; raises ``RuntimeError`` when a name is not found in this process."""
        if self._jit is None:
            self._jit = llvm.create_lljit_compiler(machine(), suppress_errors=True)
        builder = llvm.JITLibraryBuilder().add_current_process()
        for name in dict.fromkeys(n for entry in entries for n in entry.needs):
            # Functions given to LLVM by address (BLAS, Numba's runtime) are no symbols of the process.
            address = llvm.address_of_symbol(name)
            if address is not None:
                builder.import_symbol(name, address)
        for entry in entries:
            builder.add_object_img(entry.code).export_symbol(entry.symbol)
        self._count += 1
        library = builder.link(self._jit, f"kernels{self._count}")
        self._libraries.append(library)
        self.report.code_bytes += sum(len(entry.code) for entry in entries)
        return {entry.symbol: int(library[entry.symbol]) for entry in entries}


def _numba_version() -> str:
    """Numba's version without importing it, which would cost a tenth of a second."""
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("numba")
    except PackageNotFoundError:
        return ""


def numba_function(kernel: Kernel) -> Any:
    """Return the Python function that a Numba text defines; a debugger can step through it."""
    name = f"<kusari {kernel.symbol} {hashlib.sha256(kernel.text.encode()).hexdigest()[:8]}>"
    linecache.cache[name] = (len(kernel.text), None, kernel.text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": name}
    try:
        exec(compile(kernel.text, name, "exec"), scope)
        return scope[kernel.symbol]
    except SyntaxError as error:
        raise LoadError(f"the text of {kernel.symbol} is not valid Python: {error}\n--> {error.text}") from None
    except KeyError:
        raise LoadError(f"the text does not define {kernel.symbol}") from None


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


def load(kernels: Sequence[Kernel]) -> list[int]:
    """Return the addresses of ``kernels`` from the loader of this process."""
    return default_loader().load(kernels)
