"""The thread pool: all threads walk the same table of instructions, with barriers between them.

An instruction is {kernel, slots, flags}: bit 0 of its flags says that the next one may begin before all threads are
done with this one; the bits from 8 on are 0 if threads share it, else one more than the number of its only thread.

Workers are Python threads that stay in native code: between runs they spin for a while and then sleep until woken, by a
futex on Linux, by polling elsewhere. A caller that finds the pool busy (another Python thread is running a table) walks
its table alone, so results never depend on other runs.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from typing import Any

from kusari.ir import Kernel
from kusari.ir.threads import MAX_THREADS

from .blas import Worker
from .loader import Loader, default_loader
from .pool_text import (
    ARRIVED,
    BUSY,
    MOVED,
    PATIENCE,
    READY,
    ROUND,
    SLEEPING,
    SPIN,
    STATE_BYTES,
    STOP,
    WORKERS,
    pool_text,
)
from .prepared import Invoker
from .target import host

SPIN_SECONDS = 300e-6
PATIENCE_SECONDS = 10e-6


class Pool:
    """Threads that run tables together; ``size`` counts the calling thread.

    Invariant: the state's address never changes, so that prepared calls stay valid after growing and after a fork.
    """

    def __init__(self, loader: Loader | None = None, futex: bool | None = None) -> None:
        self._loader, self._futex = loader or default_loader(), futex
        self.alone = Invoker(self._loader)  # of runs by the calling thread, which need nothing of the pool
        self._memory = ctypes.create_string_buffer(STATE_BYTES + 128)
        self.state = -(-ctypes.addressof(self._memory) // 128) * 128
        self._threads: list[threading.Thread] = []
        self._frames: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._loaded: tuple[int, ...] = ()
        self._together: Invoker | None = None
        self._write(MOVED, -16)

    def _functions(self) -> tuple[int, ...]:
        """The addresses of the functions of the text, which is loaded for the first run of several threads."""
        if self._loaded:
            return self._loaded
        parts = (ctypes.c_size_t * 4)()
        address = self._loader.load_one(Kernel("llvm", "parts", pool_text(host().triple, self._futex)))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(parts)
        pause: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64)(parts[3])
        start = time.perf_counter()
        pause(2000)
        each = max((time.perf_counter() - start) / 2000, 1e-10)
        self._write(SPIN, max(1, int(SPIN_SECONDS / each)))
        self._write(PATIENCE, max(1, int(PATIENCE_SECONDS / each)))
        self._loaded = tuple(parts)
        return self._loaded

    @property
    def is_loaded(self) -> bool:
        """Whether the functions for several threads are."""
        return bool(self._loaded)

    @property
    def invoker(self) -> Invoker:
        """Makes calls of runs by several threads."""
        if self._together is None:
            self._together = Invoker(self._loader, self._functions()[0])
        return self._together

    @property
    def run(self) -> Any:
        """The function that runs a table on several threads."""
        return self.invoker.plain

    @property
    def size(self) -> int:
        """Threads that take part in a run, the caller included."""
        return self._read(WORKERS) + 1

    def _read(self, at: int) -> int:
        return int(ctypes.c_int64.from_address(self.state + at).value)

    def _write(self, at: int, value: int) -> None:
        ctypes.c_int64.from_address(self.state + at).value = value

    def ensure(self, threads: int) -> int:
        """Start workers until ``threads`` threads can run together, and return how many can."""
        threads = min(threads, MAX_THREADS)
        if self._read(WORKERS) + 1 >= threads:
            return threads
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._functions()[1])
        with self._lock:
            while len(self._threads) + 1 < threads:
                tid = len(self._threads) + 1
                thread = Worker(target=work, args=(self.state, tid), name=f"kusari-{tid}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    break
                self._threads.append(thread)
            deadline = time.monotonic() + 10
            while self._read(READY) < len(self._threads) and time.monotonic() < deadline:
                time.sleep(20e-6)
            if self._read(READY) == len(self._threads):
                self._write(WORKERS, len(self._threads))
        return min(threads, self._read(WORKERS) + 1)

    def stop(self) -> None:
        """Let the workers return; later runs use the calling thread alone until ``ensure`` is called."""
        with self._lock:
            if self._threads:
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._functions()[2])(self.state)
                for thread in self._threads:
                    thread.join(timeout=5)
                self._forget()

    def _forget(self) -> None:
        """Set the state as if no worker had ever been started."""
        self._threads = []
        for at in (ARRIVED, ROUND, STOP, SLEEPING, BUSY, WORKERS, READY):
            self._write(at, 0)

    def watch(self, frame: Any) -> None:
        """Register ``frame`` for a fork: ``frame.after_fork()`` is called then, to start threads again."""
        self._frames.add(frame)

    def after_fork(self) -> None:
        """In the child of a fork, reset the pool: it has no workers, and a run of the parent's is not its own.

        Workers are started again by the first run that wants some: most children never do one.
        """
        self._lock = threading.Lock()
        self._forget()
        for frame in list(self._frames):
            frame.after_fork()


_default: Pool | None = None
_default_lock = threading.Lock()


def default_pool() -> Pool:
    """Return the pool of this process."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Pool()
            atexit.register(_default.stop)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_default.after_fork)
        return _default
