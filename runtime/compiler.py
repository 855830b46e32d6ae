"""One text becomes object code; several threads may do this at the same time."""
from __future__ import annotations

import ctypes
import hashlib
import importlib
import linecache
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kusari.ir import Facts, Kernel, parts_of

from .cache import Entry
from .target import host, initialize, llvm

FAST_MATH = ("contract", "reassoc", "nsz", "arcp")  # the flags that keep NaN and infinity


class LoadError(Exception):
    """A kernel's text cannot be compiled or linked; the message shows the text's faulty part."""


def machine(level: int = 2) -> Any:
    """Return a new target machine of LLVM's for this host, which emits code at a level of optimisation."""
    initialize()
    facts = host()
    target = llvm.Target.from_triple(facts.triple)
    # The small model keeps constants next to the code; the linker makes stubs for functions that are far away.
    model = "small" if facts.triple.startswith(("x86_64", "aarch64", "arm64")) else "jitdefault"
    return target.create_target_machine(cpu=facts.cpu, features=facts.features, opt=level, reloc="pic", codemodel=model)


def _own_machine(level: int) -> Any:
    """The calling thread's target machine, made once: it takes as long as the code of a short function."""
    machines: dict[int, Any] = _own.__dict__.setdefault("machines", {})
    if level not in machines:
        machines[level] = machine(level)
    return machines[level]


def _level(text: str) -> int:
    """The level at which the code of a text is emitted: 0, in a fraction of the time, if no function is optimised."""
    return 0 if all([" optnone" in line for line in re.findall(r"(?m)^define .*", text)]) else 2


_own = threading.local()


def _mark(text: str, message: str) -> str:
    """``message`` with the line of ``text`` that it points to."""
    for part in message.split(":"):
        if part.strip().isdigit():
            lines = text.splitlines()
            at = int(part) - 1
            if 0 <= at < len(lines):
                return f"{message.strip()}\n--> {lines[at]}"
    return message.strip()


@contextmanager
def _module(parse: Any, source: Any, kernel: Kernel) -> Generator[Any, None, None]:
    """A parsed module in an LLVM context of its own.

    Both are closed here, in order: left to the garbage collector, which may find them in the traceback of a fault,
    the context might go first, and the process with it.
    """
    context = llvm.create_context()
    module = None
    try:
        try:
            module = parse(source, context=context)
            module.verify()
        except RuntimeError as error:
            message = _mark(kernel.text, str(error))
            raise LoadError(f"the text of {kernel.symbol} is not valid: {message}") from None
        yield module
    finally:
        if module is not None:
            module.close()
        context.close()


def compile_llvm(kernel: Kernel, unique: str, opt: int = 0, vectorize: bool = False) -> Entry:
    """Compile LLVM IR text; the code's entry point is called ``unique``. Raises ``LoadError``."""
    text, parts = parts_of(kernel.text)
    with _module(llvm.parse_assembly, text, kernel) as module:
        entry = _emit(module, kernel.symbol, unique, opt, vectorize, kernel.facts, _level(text))
    codes = {name: _part(name, part, opt, vectorize) for name, part in parts.items()}
    return replace(entry, needs=tuple([n for n in entry.needs if n not in codes]), parts=codes)


def _part(name: str, text: str, opt: int, vectorize: bool) -> bytes:
    """The object code of a part of texts, which is compiled once: another thread that needs it waits."""
    key, mine = (name, opt, vectorize), threading.Event()
    try:
        while True:
            with _parts_lock:
                if key in _parts:
                    return _parts[key]
                other = _pending.setdefault(key, mine)
            if other is mine:
                break
            other.wait()  # if that thread failed, this one tries itself
        with _module(llvm.parse_assembly, text, Kernel("llvm", name, text)) as module:
            code = _parts[key] = _emit(module, name, name, opt, vectorize, Facts(name)).code
        return code
    finally:
        if _pending.get(key) is mine:
            del _pending[key]
        mine.set()


_parts: dict[tuple[str, int, bool], bytes] = {}
_pending: dict[tuple[str, int, bool], threading.Event] = {}
_parts_lock = threading.Lock()


def after_fork() -> None:
    """In the child of a fork, forget the parts that threads of the parent were at."""
    global _parts_lock
    _parts_lock = threading.Lock()
    _pending.clear()


def compile_numba(kernel: Kernel, unique: str) -> Entry:
    """Compile Numba text; the code does not need Numba to run, unless the text can raise. Raises ``LoadError``."""
    function = numba_function(kernel)
    numba: Any = importlib.import_module("numba")
    types = numba.types
    signature = types.void(types.CPointer(types.voidptr), types.int64, types.int64)
    try:
        compiled = numba.cfunc(signature, fastmath=set(FAST_MATH), error_model="numpy")(function)
    except numba.core.errors.NumbaError as error:
        raise LoadError(f"Numba cannot compile {kernel.symbol}: {error}") from error
    bitcode = compiled._library._final_module.as_bitcode()  # the module that Numba itself gives to its engine
    with _module(llvm.parse_bitcode, bitcode, kernel) as module:
        return _emit(module, compiled.native_name, unique, 2, False, kernel.facts)


def _emit(module: Any, symbol: str, unique: str, opt: int, vectorize: bool, facts: Facts, level: int = 2) -> Entry:
    """Optimise a module of which only ``symbol`` stays visible, as ``unique``, and return its object code.

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
    target = _own_machine(level)
    module.triple = host().triple
    module.data_layout = str(target.target_data)
    if opt or vectorize:
        tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
        tuning.loop_vectorization = vectorize
        tuning.slp_vectorization = vectorize
        builder = llvm.create_pass_builder(target, tuning)
        passes = builder.getModulePassManager()
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    names = [*module.functions, *module.global_variables]
    needs = sorted(v.name for v in names if v.is_declaration and not v.name.startswith("llvm."))
    return Entry(unique, _object_code(target, module), facts, tuple(needs))


def _unlocked(name: str) -> Callable[..., Any]:
    """A function of llvmlite's library without the lock that llvmlite holds around every call.

    Each text is compiled in an LLVM context of its own, the only condition that LLVM has for threads; with the lock
    they would wait for each other. If llvmlite looks different, its own function is used.
    """
    function: Any = getattr(llvm.ffi.lib, name)
    return getattr(function, "_cfn", function)


def _object_code(target: Any, module: Any) -> bytes:
    library = llvm.ffi.lib
    with llvm.ffi.OutputString() as message:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(target, module, 1, message)
        if not buffer:
            raise LoadError(f"no object code: {message}")
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


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
