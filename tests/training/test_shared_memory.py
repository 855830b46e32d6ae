"""Processes that share memory: iterators that read in processes, and updaters over several."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.iterators import MultiprocessIterator, SerialIterator, _shared_memory


class Examples:
    """Examples with arrays of several kinds; the last ones are larger than the first."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        big = np.full((4, 5 + 100 * (i > 6)), i, "f")
        return big, {"t": np.int32(i), "transposed": big.T, "empty": big[:0]}, f"text {i}"


@pytest.mark.parametrize("shared_mem", [None, 0, 16, 100_000])
def test_examples_come_through_shared_memory_as_they_are(shared_mem: int | None) -> None:
    own = MultiprocessIterator(Examples(), 3, repeat=False, shuffle=False, n_processes=2, n_prefetch=2,
                               shared_mem=shared_mem)
    try:
        found = [example for batch in own for example in batch]
    finally:
        own.finalize()
    for (x, d, text), (y, e, other) in zip(found, map(Examples().__getitem__, range(10)), strict=True):
        assert text == other and d["t"] == e["t"] and x.flags.writeable
        for a, b in ((x, y), (d["transposed"], e["transposed"]), (d["empty"], e["empty"])):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_data_of_arrays_is_not_in_the_message() -> None:
    slots = _shared_memory.Slots(2, 10_000)
    place = slots.take()
    message = _shared_memory.pack([np.arange(1000, dtype="d")], place)
    assert place is not None and len(message[0]) < 500 and message[1:] == ([8000], [])
    np.testing.assert_array_equal(_shared_memory.unpack(message, slots.view(place))[0], np.arange(1000))
    _shared_memory._attached.pop(place[0]).close()
    slots.release()


class Broken(Examples):
    def __getitem__(self, i: int) -> Any:
        if i == 4:
            raise KeyError("no such example")
        return super().__getitem__(i)


def test_an_error_of_an_example_is_raised_and_frees_its_slot() -> None:
    own = MultiprocessIterator(Broken(), 2, repeat=True, shuffle=False, n_processes=1, n_prefetch=1)
    try:
        for _ in range(4):
            for _ in range(2):
                own.next()
            with pytest.raises(KeyError, match="no such example"):
                own.next()
            for _ in range(2):
                own.next()
    finally:
        own.finalize()


def refuse() -> Any:
    raise ValueError("cannot be read")


class Refusing:
    def __reduce__(self) -> Any:
        return refuse, ()


class Unreadable(Examples):
    def __getitem__(self, i: int) -> Any:
        return np.zeros(3), Refusing()


def test_memory_is_given_back_after_an_error_of_unpacking() -> None:
    """Its traceback has the frames, and they what was read from."""
    own = MultiprocessIterator(Unreadable(), 2, n_processes=1, n_prefetch=1, shared_mem=1000)
    try:
        with pytest.raises(ValueError, match="cannot be read") as caught:
            own.next()
        assert own._slots is not None and own._slots._block is not None
        block = own._slots._block.name
    finally:
        own.finalize()
    assert caught.tb is not None
    with pytest.raises(FileNotFoundError):
        SharedMemory(name=block)


ENDLESS = """
import os, signal
import numpy as np
from kusari.iterators import MultiprocessIterator

class Data:
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return np.full(10000, os.getpid())

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored above, as under nohup
    own = MultiprocessIterator(Data(), 4, n_processes=2)
    own.next()
    own.next()
    pids = {int(x[0]) for x in own.next() + own.next()}
    print(own._slots._block.name, *pids, flush=True)
    while True:
        own.next()
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that is only waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_and_memory_end_with_the_one_above(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        assert process.stdout is not None and process.stderr is not None
        block, *pids = process.stdout.readline().split()
        if how is signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            os.kill(process.pid, how)
        process.wait(60)
        until = time.monotonic() + 60
        while (any(alive(int(p)) for p in pids) or Path("/dev/shm", block).exists()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(alive(int(p)) for p in pids) and not Path("/dev/shm", block).exists()
        # Of a process that is killed, workers that are just writing find no reader.
        assert how is signal.SIGKILL or process.stderr.read().count("Traceback") <= 1


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 5)
            self.l2 = L.Linear(None, 2)
            self.unused = L.Linear(2, 2)

    def forward(self, x: Any, t: Any) -> Any:
        if (x < 0).any():
            raise ValueError("a negative example")
        if (x > 1e6).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return F.mean_squared_error(self.l2(F.tanh(self.l1(x))), t)


def data(seed: int, last: float = 1.0) -> list[Any]:
    random = np.random.RandomState(seed)
    xs = random.rand(12, 3).astype("f")
    xs[-1] *= last
    return list(zip(xs, random.rand(12, 2).astype("f"), strict=True))


def updater(parts: list[Any], make: Any = lambda: kusari.optimizers.MomentumSGD(0.3)) -> Any:
    np.random.seed(0)
    optimizer = make().setup(Model())
    iterators = [SerialIterator(part, 4, shuffle=False) for part in parts]
    with pytest.warns(UserWarning, match="is changed to"):
        return kusari.training.updaters.MultiprocessParallelUpdater(
            iterators, optimizer, devices=["@numpy"] * len(parts))


@pytest.mark.parametrize("make", [lambda: kusari.optimizers.MomentumSGD(0.3), kusari.optimizers.Adam])
def test_processes_add_up_gradients(make: Any) -> None:
    parts = [data(k) for k in range(3)]
    own = updater(parts, make)
    try:
        for _ in range(5):
            own.update()
    finally:
        own.finalize()
    assert own.epoch == 1 and own._workers == []
    np.random.seed(0)
    optimizer = make().setup(Model())
    if isinstance(optimizer, kusari.optimizers.Adam):
        optimizer.eps *= 3
    else:
        optimizer.lr /= 3
    for k in range(5):
        optimizer.target.cleargrads()
        for part in parts:
            rows = [part[i % 12] for i in range(4 * k, 4 * k + 4)]
            optimizer.target(*kusari.dataset.concat_examples(rows)).backward()
        optimizer.update()
    for (_, p), (_, q) in zip(own.get_optimizer("main").target.namedparams(), optimizer.target.namedparams(),
                              strict=True):
        np.testing.assert_allclose(p.array, q.array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("last", "said"), [(-1.0, "(?s)process 1.*ValueError: a negative example"),
                                            (1e8, "process 1 .* has ended, with exit code -9")])
def test_a_process_that_fails_is_named(last: float, said: str) -> None:
    own = updater([data(0), data(1, last)])
    own.update()
    own.update()
    with pytest.raises(RuntimeError, match=said):
        own.update()
    own.finalize()


def test_arguments_of_the_multiprocess_updater() -> None:
    kind = kusari.training.updaters.MultiprocessParallelUpdater
    iterators = [SerialIterator(data(0), 4), SerialIterator(data(0)[1:], 4)]
    optimizer = kusari.optimizers.SGD().setup(Model())
    for given, devices, said in ((iterators, ["@numpy"], "for each device"), (iterators, None, "dict, list or tuple"),
                                 (iterators, ["@numpy"] * 2, "of one length"), (iterators, [None] * 2, "specified")):
        with pytest.raises(ValueError, match=said):
            kind(given, optimizer, devices=devices)
    assert kind.available()
