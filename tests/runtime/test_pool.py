"""Threads walk one table in step; forks, exits, busy pools and busy machines do not disturb them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from runtime_texts import BARRIER

from kusari.ir.threads import thread_limit
from kusari.runtime import Pool, default_loader, host
from kusari.runtime.pool_text import MOVED, pool_text

TESTS = str(Path(__file__).parents[1])


class Table:
    """``rows`` times the kernel that counts per thread and sees whether the others are in step."""

    def __init__(self, pool: Pool, rows: int, threads: int) -> None:
        self.counters = np.zeros(threads, np.int64)
        self.errors = np.zeros(1, np.int64)
        address = default_loader().load_one(BARRIER)
        self.slots = (ctypes.c_void_p * 2)(self.counters.ctypes.data, self.errors.ctypes.data)
        self.table = (ctypes.c_size_t * (3 * rows))(*[address, ctypes.addressof(self.slots), 0] * rows)
        self.call = (ctypes.c_size_t * 4)(ctypes.addressof(self.table), rows, pool.state, threads)
        self.argument = ctypes.c_void_p(ctypes.addressof(self.call))


@pytest.fixture(params=[None, False], ids=["futex", "polling"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    made = Pool(futex=request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("threads", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))])
def test_all_threads_walk_every_row_in_step(pool: Pool, threads: int) -> None:
    assert pool.ensure(threads) == threads
    table = Table(pool, 50, threads)
    for _ in range(20):
        pool.run(table.argument)
    assert table.counters.tolist() == [1000] * threads
    assert table.errors[0] == 0


def test_a_thread_alone_runs_every_row_and_loads_nothing_of_the_pool(pool: Pool) -> None:
    table = Table(pool, 50, 1)
    run, _kept = pool.alone.prepare(ctypes.addressof(table.call), holding=False)
    run()
    assert pool.ensure(1) == 1
    assert table.counters.tolist() == [50]
    assert not pool.is_loaded


def test_a_thread_alone_runs_no_row_of_an_empty_table(pool: Pool) -> None:
    table = Table(pool, 1, 1)
    table.call[1] = 0
    pool.alone.prepare(ctypes.addressof(table.call), holding=True)[0]()
    assert table.counters.tolist() == [0]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs to pin threads")
def test_a_worker_on_the_processor_of_the_caller_asks_for_another(pool: Pool) -> None:
    """With one processor there is none; what each thread may use stays as it was."""
    pool.ensure(2)
    worker = pool._threads[0].native_id
    allowed = {thread: os.sched_getaffinity(thread) for thread in (0, worker)}
    one = {min(allowed[0])}

    def moved() -> int:
        return ctypes.c_int64.from_address(pool.state + MOVED).value
    try:
        for mask in (one, allowed[0]):
            for thread in allowed:
                os.sched_setaffinity(thread, mask)
            table = Table(pool, 5, 2)
            for _ in range(40):
                pool.run(table.argument)
            assert table.counters.tolist() == [200, 200] and table.errors[0] == 0
            assert os.sched_getaffinity(worker) == mask
            if len(mask) == 1:
                assert moved() >= 16, "tried twice at least"
    finally:
        for thread, mask in allowed.items():
            os.sched_setaffinity(thread, mask)


def test_fewer_threads_than_there_are(pool: Pool) -> None:
    pool.ensure(4)
    for threads in (2, 4, 1, 3, 2) * 20:
        table = Table(pool, 5, threads)
        pool.run(table.argument)
        assert table.counters.tolist() == [5] * threads and table.errors[0] == 0


def test_workers_wake_after_sleeping(pool: Pool) -> None:
    pool.ensure(2)
    table = Table(pool, 3, 2)
    for _ in range(5):
        threading.Event().wait(0.02)  # much longer than they spin
        pool.run(table.argument)
    assert table.counters.tolist() == [15, 15]


def test_a_second_caller_runs_alone(pool: Pool) -> None:
    """Callers that meet a busy pool do all the work themselves: kernels see one thread."""
    pool.ensure(2)
    tables = [Table(pool, 200, 2) for _ in range(4)]

    def work(table: Table) -> None:
        for _ in range(50):
            pool.run(table.argument)

    threads = [threading.Thread(target=work, args=(t,)) for t in tables]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for table in tables:
        assert table.counters[0] == 10_000  # thread 0 is the caller, alone or not


def test_without_workers_a_run_is_alone(pool: Pool) -> None:
    table = Table(pool, 10, 2)
    pool.run(table.argument)
    assert table.counters.tolist() == [10, 0]


def test_stop_and_start_again(pool: Pool) -> None:
    for _ in range(3):
        pool.ensure(3)
        table = Table(pool, 10, 3)
        pool.run(table.argument)
        assert table.counters.tolist() == [10] * 3
        pool.stop()
        assert pool.size == 1
        pool.run(table.argument)
        assert table.counters.tolist() == [20, 10, 10]


def test_growing(pool: Pool) -> None:
    for threads in (2, 3, 4):
        pool.ensure(threads)
        assert pool.size == threads
        table = Table(pool, 10, threads)
        pool.run(table.argument)
        assert table.counters.tolist() == [10] * threads


@pytest.mark.parametrize(("text", "expected"), [("3", 3), (" 1 ", 1), ("0", 1), ("99999", 255)])
def test_number_of_threads_by_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("KUSARI_NUM_THREADS", text)
    assert thread_limit() == expected


def test_number_of_threads_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_NUM_THREADS", "two")
    with pytest.raises(ValueError, match="KUSARI_NUM_THREADS must be a number of threads, got 'two'"):
        thread_limit()


def test_default_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUSARI_NUM_THREADS", raising=False)
    assert 1 <= thread_limit() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin23", "x86_64-pc-windows-msvc",
                                    "riscv64-unknown-linux-gnu", "s390x-unknown-linux-gnu"])
def test_the_text_is_valid_for_other_machines(triple: str) -> None:
    import llvmlite.binding as llvm
    host()
    module = llvm.parse_assembly(pool_text(triple), context=llvm.create_context())
    module.verify()
    names = {f.name for f in module.functions if f.is_declaration}
    assert ("syscall" in names) == ("linux" in triple and "s390x" not in triple)


PRELUDE = f"""
import sys
sys.path[:0] = [{TESTS!r}, {TESTS + "/runtime"!r}]
from test_pool import Table
from kusari.runtime.thread_pool import default_pool
import os, threading, time
pool = default_pool()
pool.ensure(3)
table = Table(pool, 20, 3)
pool.run(table.argument)
assert table.counters.tolist() == [20] * 3
"""

SCRIPTS = {
    "exit": "",
    "exit while another thread runs": """
def forever():
    while True:
        pool.run(table.argument)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
""",
    "exit by exception": "raise SystemExit(0)",
    "fork": """
pid = os.fork()
if pid == 0:
    assert pool.size == 1
    pool.run(table.argument)
    assert table.counters.tolist() == [40, 20, 20]
    pool.ensure(3)
    pool.run(table.argument)
    assert table.counters.tolist() == [60, 40, 40]
    pool.stop()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
pool.run(table.argument)
assert table.counters.tolist() == [40] * 3
""",
    "fork while another thread runs": """
def forever():
    other = Table(pool, 20, 3)
    while True:
        pool.run(other.argument)
threading.Thread(target=forever, daemon=True).start()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        fresh = Table(pool, 20, 3)
        pool.ensure(3)
        pool.run(fresh.argument)
        os._exit(0 if fresh.counters.tolist() == [20] * 3 else 1)
    assert os.waitpid(pid, 0)[1] == 0
""",
    "multiprocessing": """
import multiprocessing
def job(n, out):
    pool.ensure(2)
    t = Table(pool, n, 2)
    pool.run(t.argument)
    out.put(t.counters.tolist())
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    jobs = [context.Process(target=job, args=(7, out)) for _ in range(2)]
    [j.start() for j in jobs]
    assert [out.get(timeout=300) for _ in jobs] == [[7, 7]] * 2
    [j.join() for j in jobs]
    assert [j.exitcode for j in jobs] == [0, 0]
""",
}


@pytest.mark.parametrize("name", [  # the same with another thread that runs is the harder one
    pytest.param(name, marks=pytest.mark.slow) if f"{name} while another thread runs" in SCRIPTS else name
    for name in SCRIPTS])
def test_process(name: str) -> None:
    if "fork" in SCRIPTS[name] and not hasattr(os, "fork"):
        pytest.skip("no fork here")
    # Python 3.12 warns of forks in processes with threads: that this is harmless here is what is tested.
    done = subprocess.run([sys.executable, "-c", PRELUDE + SCRIPTS[name]], timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "Traceback" not in done.stderr, done.stderr
