"""Products by NumPy's own BLAS, against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from kusari.ir import Builder, Graph, Instruction, Program, Value, interpret, tensor_type
from kusari.ir.threads import openblas
from kusari.passes import plan
from kusari.runtime import Executable, Loader
from kusari.runtime import blas as module
from kusari.runtime.blas import blas_kernel, find_blas, limited, with_blas

needs_blas = pytest.mark.skipif(find_blas() is None, reason="NumPy has another BLAS")

SHAPES = [
    ((7, 5), (5, 3), False, False), ((5, 7), (5, 3), True, False), ((7, 5), (3, 5), False, True),
    ((5, 7), (3, 5), True, True), ((1, 1), (1, 1), False, False), ((2, 7, 5), (2, 5, 3), False, False),
    ((2, 5, 7), (2, 3, 5), True, True), ((2, 3, 4, 5), (2, 3, 5, 6), False, False), ((4, 7, 5), (5, 3), False, False),
    ((7, 5), (4, 5, 3), False, False), ((4, 7, 5), (1, 5, 3), False, False),
]


def product(a: tuple[int, ...], b: tuple[int, ...], transa: bool, transb: bool, dtype: str) -> Graph:
    x, y = Value(tensor_type(dtype, a)), Value(tensor_type(dtype, b))
    build = Builder("m.py:2")
    z = build.matmul(x, y, transa, transb)
    return Graph("g", (x, y), (), (), tuple(build.nodes), (z,))


def compute(graph: Graph, program: Program, loader: Loader, threads: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    arrays = [rng.randn(*v.shape).astype(v.tensor.dtype) for v in graph.inputs]
    exe = Executable(plan(graph), program, threads, loader)
    frame = exe.acquire()
    frame.bind_all(arrays)
    frame.fresh_outputs()
    frame.run()
    return frame.outputs()[0], np.array(interpret(graph, arrays)[0])


def program_of(graph: Graph) -> Program:
    return Program("g", tuple(Instruction(None, (*n.inputs, *n.outputs), n) for n in graph.nodes))


@needs_blas
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(loader: Loader, shape: tuple[tuple[int, ...], tuple[int, ...], bool, bool], dtype: str) -> None:
    graph = product(*shape, dtype)
    program = with_blas(program_of(graph))
    assert program.instructions[0].kernel is not None
    for threads in (1, 3):
        got, want = compute(graph, program, loader, threads)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "dtype"), [
    (((7, 5), (5, 3), False, False), "int32"), (((7, 5), (5, 3), False, False), "float16"),
    (((0, 5), (5, 3), False, False), "float32"), (((7, 0), (0, 3), False, False), "float32"),
    (((2, 1, 7, 5), (1, 3, 5, 4), False, False), "float32"),
])
def test_what_blas_cannot_do_is_left_to_numpy(loader: Loader, shape, dtype: str) -> None:
    graph = product(*shape, dtype)
    assert blas_kernel(graph.nodes[0]) is None
    got, want = compute(graph, program_of(graph), loader, 1)
    np.testing.assert_allclose(got, want, rtol=1e-2)


def test_without_blas_numpy_does_it(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_blas", lambda: None)
    graph = product(*SHAPES[0], "float32")
    got, want = compute(graph, program_of(graph), loader, 1)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@needs_blas
def test_the_number_of_threads_is_put_back(loader: Loader) -> None:
    """The users' own NumPy is as quick afterwards, also when several runs overlap."""
    blas = find_blas()
    assert blas is not None
    graph = product((64, 64), (64, 64), False, False, "float32")
    program = with_blas(program_of(graph))
    before = blas.get_threads()
    blas.set_threads(2)
    try:
        threads = [threading.Thread(target=lambda: [compute(graph, program, loader, 2) for _ in range(20)])
                   for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert blas.get_threads() == 2
        inside: list[int] = []
        limited(lambda: inside.append(blas.get_threads()))()
        assert inside == [1] and blas.get_threads() == 2
    finally:
        blas.set_threads(before)


@needs_blas
def test_everywhere_replaces_kernels_of_ours(loader: Loader) -> None:
    from runtime_texts import elementwise
    graph = product(*SHAPES[0], "float32")
    (node,) = graph.nodes
    program = Program("g", (Instruction(elementwise("fadd", 8), (*node.inputs, *node.outputs), node),))
    assert with_blas(program).instructions[0].kernel is program.instructions[0].kernel
    got, want = compute(graph, with_blas(program, everywhere=True), loader, 2)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


BUFFERS_OF_DEFINE_BY_RUN = """
import os, threading
import numpy as np
from pathlib import Path
from kusari.runtime.blas import BUFFERS, _SINGLE_THREADED, _mapped
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
a = np.ones((768, 768), np.float32)
c = np.empty_like(a)
np.matmul(a, a, out=c)
before = resident()
end = threading.Event()
other = threading.Thread(target=end.wait)
other.start()
BUFFERS.release()  # somebody else may be multiplying
kept = resident()
end.set(), other.join()
with _SINGLE_THREADED:
    BUFFERS.release()  # or a run of ours
kept = min(kept, resident())
BUFFERS.release()
after = resident()
mapped = _mapped()
for _ in range(3):  # takes the blocks it has taken before, not ever more
    BUFFERS.release()
    c[...] = 0
    np.matmul(a, a, out=c)
    assert (c == 768).all()
print(before - kept, before - after, _mapped() - mapped)
"""


@needs_blas
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")
@pytest.mark.skipif(openblas("blas_memory_alloc") is None, reason="this OpenBLAS hides its allocator")
def test_what_openblas_keeps_is_given_back() -> None:
    """Not while others may be using it; products afterwards are right, however often that is done."""
    done = subprocess.run([sys.executable, "-c", BUFFERS_OF_DEFINE_BY_RUN], capture_output=True, text=True, check=True)
    kept, freed, more = map(int, done.stdout.split())
    assert kept < 1 << 19 and freed > 1 << 20 and more < 24 << 20


PROBE = """
import kusari
from kusari.commands.bench import machine
from kusari.ir.threads import openblas
print(machine(None).split(", ")[-3], openblas("openblas_get_num_threads")[1][0]())
"""


@needs_blas
@pytest.mark.parametrize(("own", "of_blas", "expected"), [
    ("3", "", "3 threads 3"), ("1", "2", "1 threads 1"), ("", "1", "1")])
def test_one_number_of_threads_for_all(own: str, of_blas: str, expected: str) -> None:
    """Where ours is not set, the variable of OpenBLAS counts."""
    variables = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    given = {"KUSARI_NUM_THREADS": own, "OPENBLAS_NUM_THREADS": of_blas}
    done = subprocess.run([sys.executable, "-c", PROBE], env={**variables, **{k: v for k, v in given.items() if v}},
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(expected), done.stdout
