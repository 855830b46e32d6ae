"""Executables and frames: rows in order, memory as planned, arrays bound by pointer, nothing kept alive."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, graphs
from hypothesis import given
from hypothesis import strategies as st
from runtime_texts import changed, elementwise

from kusari.ir import Builder, Graph, Instruction, Kernel, Op, Program, TokenType, Trait, Value, interpret, tensor_type
from kusari.passes import plan
from kusari.runtime import Executable, Frame, Loader, Pool, RunError

N = 1000
F32 = tensor_type("float32", (N,))


def native(graph: Graph, loader: Loader, threads: int | None = 1, python: tuple[str, ...] = (),
           **how: Any) -> Executable:
    """``graph`` of adds and multiplies with kernels; ops named in ``python`` are left to Python."""
    ops = {"add": "fadd", "multiply": "fmul", "subtract": "fsub"}
    instructions: list[Instruction] = []
    for node in graph.nodes:
        kernel = None
        if node.op.name == "map" and node.op.name not in python:
            kernel = elementwise(ops[node.attrs["expr"].fn], N, arity=len(node.inputs))
        instructions.append(Instruction(kernel, (*node.inputs, *node.outputs), node))
    return Executable(plan(graph, **how), Program(graph.name, tuple(instructions)), threads, loader)


def chain() -> Graph:
    """``(x + w) * (x + w) + x`` and an assignment of it to ``w``."""
    b = Builder("model.py:3")
    x, w = Value(F32, "x"), Value(F32, "w")
    y = b.call("add", x, w)
    z = b.call("multiply", y, y)
    out = b.call("add", z, x)
    b.assign(w, z)
    return Graph("chain", (x,), (w,), (), tuple(b.nodes), (out,))


def floats(seed: int) -> np.ndarray:
    return np.random.RandomState(seed).rand(N).astype(np.float32)


def once(frame: Frame, *arrays: np.ndarray) -> list[Any]:
    frame.bind_all(list(arrays))
    frame.fresh_outputs()
    frame.run()
    return frame.outputs()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("python", [(), ("map",)])
def test_a_schedule_computes_what_the_graph_means(loader: Loader, threads: int, limit: int, python: Any) -> None:
    exe = native(chain(), loader, threads, python, copy_in_below=limit, copy_out_below=limit)
    frame = exe.acquire()
    for i in range(3):
        x, w = floats(i), floats(i + 10)
        w0 = w.copy()
        (out,) = once(frame, x, w)
        np.testing.assert_allclose(w, (x + w0) ** 2, rtol=1e-6)
        np.testing.assert_allclose(out, (x + w0) ** 2 + x, rtol=1e-6)


@given(graph=graphs(max_nodes=15), limit=st.sampled_from((0, 64, 10**6)))
def test_random_graphs_in_planned_memory(graph: Graph, limit: int) -> None:
    """Every row runs in Python, in the planned slots: what overlaps too early gives wrong numbers."""
    instructions = tuple(Instruction(None, (*n.inputs, *n.outputs), n) for n in graph.nodes)
    exe = Executable(plan(graph, copy_in_below=limit, copy_out_below=limit), Program("g", instructions))
    frame = exe.acquire()
    for seed in (0, 5):
        xs, ps, ps2 = arrays_for(graph.inputs, seed), arrays_for(graph.params, seed), arrays_for(graph.params, seed)
        want = [np.array(y) for y in interpret(graph, xs, ps)]
        got = once(frame, *xs, *ps2)
        for a, b in zip((*want, *ps), (*got, *ps2), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12)


def test_frames_in_flight_do_not_share(loader: Loader) -> None:
    exe = native(chain(), loader, copy_out_below=1 << 20)
    frames = [exe.acquire() for _ in range(3)]
    data = [(floats(i), floats(i + 5)) for i in range(3)]
    for frame, (x, w) in zip(frames, data, strict=True):
        frame.bind_all([x, w.copy()])
    for frame in frames:
        frame.run()
    for frame, (x, w) in zip(frames, data, strict=True):
        np.testing.assert_allclose(frame.outputs()[0], (x + w) ** 2 + x, rtol=1e-6)
    assert exe.report.frames == 3
    for frame in frames:
        exe.release(frame)
    assert exe.acquire() in frames


def test_threads_with_a_frame_each(loader: Loader) -> None:
    exe = native(chain(), loader, threads=2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        frame = exe.acquire()
        for i in range(100):
            x, w = floats(seed + i), floats(seed + i + 1)
            want = (x + w) ** 2 + x
            if not np.allclose(once(frame, x, w)[0], want, rtol=1e-5):
                wrong.append(i)
        exe.release(frame)

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def _strided(a: np.ndarray) -> np.ndarray:
    wide = np.zeros((N, 2), np.float32)
    wide[:, 0] = a
    return wide[:, 0]


def _misaligned(a: np.ndarray) -> np.ndarray:
    raw = np.zeros(4 * N + 1, np.uint8)
    view = raw[1:].view(np.float32)
    view[...] = a
    return view


def _readonly(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def _broadcast(a: np.ndarray) -> np.ndarray:
    return np.broadcast_to(a[:1], (N,))


@pytest.mark.parametrize("layout", [_strided, _misaligned, _readonly, _broadcast])
def test_inputs_of_any_layout(loader: Loader, layout: Callable[[np.ndarray], np.ndarray]) -> None:
    frame = native(chain(), loader).acquire()
    for i in range(2):
        x, w = layout(floats(i)), floats(i + 3)
        want = (x + w) ** 2 + x
        np.testing.assert_allclose(once(frame, x, w)[0], want, rtol=1e-6)


@pytest.mark.parametrize("layout", [_strided, _misaligned])
def test_state_of_any_layout_is_written(loader: Loader, layout: Callable[[np.ndarray], np.ndarray]) -> None:
    frame = native(chain(), loader).acquire()
    x, w = floats(0), layout(floats(1))
    for _ in range(2):
        want = (x + w) ** 2
        once(frame, x, w)
        np.testing.assert_allclose(w, want, rtol=1e-6)
    plain = floats(2)
    once(frame, x, plain)
    after = w.copy()
    once(frame, x, plain)
    np.testing.assert_array_equal(w, after)


def test_state_that_is_readonly_is_refused(loader: Loader) -> None:
    frame = native(chain(), loader).acquire()
    with pytest.raises(ValueError, match="written to by the schedule, but the array is read-only"):
        frame.bind(1, _readonly(floats(0)))


@pytest.mark.parametrize("array", [np.zeros(N), np.zeros((N, 1), np.float32), np.zeros(N + 1, np.float32),
                                   np.zeros(N, ">f4")])
def test_arrays_of_another_type_are_refused(loader: Loader, array: np.ndarray) -> None:
    frame = native(chain(), loader).acquire()
    with pytest.raises(ValueError, match=r"external 0 is f32\[1000\], got an array of"):
        frame.bind(0, array)


def test_an_unbound_external_is_named(loader: Loader) -> None:
    frame = native(chain(), loader).acquire()
    with pytest.raises(ValueError, match="external 0, .* is not bound"):
        frame.array(frame.layout.plan.graph.inputs[0])


def test_nothing_is_kept_alive(loader: Loader) -> None:
    exe = native(chain(), loader)
    frame = exe.acquire()
    x, w = floats(0), floats(1)
    (out,) = once(frame, x, w)
    arrays = [weakref.ref(a) for a in (x, w, out)]
    gc.disable()  # everything goes by reference counts
    try:
        exe.release(frame)
        del x, w, out
        assert [r() for r in arrays] == [None] * 3
        arena, frame_ref, exe_ref = weakref.ref(frame.arena), weakref.ref(frame), weakref.ref(exe)
        del frame, exe
        assert (arena(), frame_ref(), exe_ref()) == (None, None, None)
    finally:
        gc.enable()


def opaque(call: Callable[..., tuple[Any, ...]], name: str = "opaque") -> Op:
    return Op(name, call, Trait.OPAQUE)


def with_opaque(call: Callable[..., tuple[Any, ...]], loader: Loader) -> Executable:
    """``y = x + x; z = opaque(y); out = z * z``"""
    b = Builder("model.py:7")
    x = Value(F32, "x")
    (z,) = b.fresh(opaque(call), [b.call("add", x, x)], [F32])
    out = b.call("multiply", z, z)
    return native(Graph("g", (x,), (), (), tuple(b.nodes), (out,)), loader)


def test_python_rows_stand_between_native_ones(loader: Loader) -> None:
    seen: list[np.ndarray] = []

    def call(attrs: Any, y: np.ndarray) -> tuple[Any, ...]:
        seen.append(y)
        return (y + 1,)

    exe = with_opaque(call, loader)
    assert exe.report.python_instructions == 1 and len(exe.report.segments) == 2
    frame = exe.acquire()
    for i in range(3):
        x = floats(i)
        np.testing.assert_allclose(once(frame, x)[0], (2 * x + 1) ** 2, rtol=1e-6)
    for i, y in enumerate(seen):  # what a user's function keeps stays as it was
        np.testing.assert_array_equal(y, 2 * floats(i))


@pytest.mark.parametrize(("result", "message"), [
    (lambda y: (y[:3],), r"expected f32\[1000\], as when it was traced, got an array of float32\[3\]"),
    (lambda y: (y.astype("f8"),), r"got an array of float64\[1000\]"),
    (lambda y: (y, y), "shorter|longer"),
])
def test_faults_in_python_rows_name_the_line(loader: Loader, result: Any, message: str) -> None:
    frame = with_opaque(lambda attrs, y: result(y), loader).acquire()
    with pytest.raises(RunError, match=rf"(?s)opaque at model.py:7 failed: .*({message})") as info:
        once(frame, floats(0))
    assert info.value.__cause__ is not None


def test_what_opaque_code_raises_is_raised(loader: Loader) -> None:
    frame = with_opaque(lambda attrs, y: (1 / 0,), loader).acquire()
    with pytest.raises(ZeroDivisionError) as info:
        once(frame, floats(0))
    notes = getattr(info.value, "__notes__", None) or [str(info.value.__cause__)]
    assert notes == ["in compiled code: opaque(f32[1000]) of model.py:7"]
    assert frame.failed is not None and frame.failed.op.name == "opaque"


def test_tokens_go_from_node_to_node(loader: Loader) -> None:
    b = Builder("m.py:1")
    x = Value(F32, "x")
    token, y = b.fresh(opaque(lambda attrs, a: ({"kept": a.sum()}, a), "make"), [x], [TokenType(), F32])
    (z,) = b.fresh(opaque(lambda attrs, t, a: (a * 0 + t["kept"],), "use"), [token, y], [F32])
    frame = native(Graph("g", (x,), (), (), tuple(b.nodes), (z, token)), loader).acquire()
    z_, token_ = once(frame, floats(0))
    np.testing.assert_allclose(z_, floats(0).sum(), rtol=1e-6)
    assert set(token_) == {"kept"}


def test_constants_are_bound_once(loader: Loader) -> None:
    b = Builder()
    x, c = Value(F32, "x"), Value(F32, "c")
    out = b.call("add", x, c)
    array = np.full(N, 3, np.float32)
    exe = native(Graph("g", (x,), (), ((c, array),), tuple(b.nodes), (out,)), loader)
    array[...] = 4  # constants belong to the executable
    frame = exe.acquire()
    for i in range(2):
        np.testing.assert_array_equal(once(frame, floats(i))[0], floats(i) + 3)
        exe.release(frame)
        assert exe.acquire() is frame


def test_scratch_is_there_for_every_thread(loader: Loader) -> None:
    """A kernel with scratch gets one more slot: here it only copies its pointer's alignment out."""
    b = Builder()
    x = Value(tensor_type("float32", (8 * N,)), "x")  # more than one thread does alone
    out = b.call("add", x, x)
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (out,))
    text = """
define void @k(ptr %slots, i64 %tid, i64 %nth) {
  %out.p = getelementptr ptr, ptr %slots, i64 1
  %out = load ptr, ptr %out.p
  %scratch.p = getelementptr ptr, ptr %slots, i64 2
  %scratch = load ptr, ptr %scratch.p
  %own.at = mul i64 %tid, 256
  %own = getelementptr i8, ptr %scratch, i64 %own.at
  %last = getelementptr float, ptr %own, i64 63
  %t = uitofp i64 %tid to float
  %v = fadd float %t, 1.0
  store float %v, ptr %last
  %again = load float, ptr %last
  %o = getelementptr float, ptr %out, i64 %tid
  store float %again, ptr %o
  ret void
}
"""
    instruction = Instruction(Kernel("llvm", "k", text, scratch=256), (x, out), graph.nodes[0])
    exe = Executable(plan(graph), Program("g", (instruction,)), threads=3, loader=loader)
    frame = exe.acquire()
    assert once(frame, np.zeros(8 * N, np.float32))[0][:3].tolist() == [1, 2, 3]
    assert exe.report.scratch_bytes == 3 * 256

    class Small(Pool):
        """Threads that can only be started later."""
        few = 1

        def ensure(self, threads: int) -> int:
            return super().ensure(threads if self.few == 0 else self.few)

    pool = Small(loader)
    frame = Executable(plan(graph), Program("g", (instruction,)), threads=3, loader=loader, pool=pool).acquire()
    pool.few = 0
    assert pool.ensure(3) == 3
    assert once(frame, np.zeros(8 * N, np.float32))[0][:3].tolist() == [1, 2, 3]
    assert frame.arena.nbytes == 3 * 256
    pool.stop()


def test_schedules_of_one_thread_need_nothing_of_the_pool(loader: Loader) -> None:
    pool, made = Pool(loader), native(chain(), loader)
    x, w = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    frame = Executable(made.plan, made.program, 1, loader, pool).acquire()
    np.testing.assert_array_equal(once(frame, x, w)[0], (x + 1) ** 2 + x)
    assert not pool.is_loaded
    Executable(made.plan, made.program, 2, loader, pool)
    assert pool.is_loaded
    pool.stop()


def test_small_schedules_use_one_thread(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_NUM_THREADS", "2")
    assert native(chain(), loader, threads=None).threads == 1
    graph = chain()
    instructions = tuple(
        Instruction(changed(elementwise("fadd", N, arity=len(n.inputs)), flops=10**9), (*n.inputs, *n.outputs), n)
        for n in graph.nodes if n.op.name == "map")
    assert Executable(plan(graph), Program("g", instructions), loader=loader).threads == 2
    for flops, threads in ((1_100_000, 2), (900_000, 1)):  # few rows, each longer than 10 microseconds, and shorter
        few = tuple(replace(r, kernel=changed(r.kernel, flops=flops)) for r in instructions[:2])
        assert Executable(plan(graph), Program("g", few), loader=loader).threads == threads
    serial = tuple(replace(r, kernel=changed(r.kernel, flops=10**9, serial=True)) for r in instructions)
    (step,) = Executable(plan(graph), Program("g", serial), loader=loader).acquire().layout.steps
    assert step.threads == 1 and not step.short  # a millisecond of one thread, in which others may run Python
    monkeypatch.setenv("KUSARI_NUM_THREADS", "1")
    assert Executable(plan(graph), Program("g", instructions), loader=loader).threads == 1


def test_report_and_profile(loader: Loader) -> None:
    exe = native(chain(), loader)
    assert exe.report.instructions == 3  # the assignment happens in place
    assert exe.report.kernels == 2 and exe.report.compiled == 2 and exe.report.python_instructions == 0
    frame = exe.acquire()
    once(frame, floats(0), floats(1))
    assert exe.report.bytes == exe.plan.arena_size > 0
    instructions = exe.profile(frame, repeat=2)
    assert [name for name, _ in instructions] == ["kernel"] * 3 and all(s > 0 for _, s in instructions)
    before = frame.bound[0].copy()
    rows = exe.measure(repeat=2)  # in a frame that is gone afterwards
    assert [row.footprint for row in rows] == [12000, 8000, 12000] and all(row.seconds > 0 for row in rows)
    np.testing.assert_array_equal(frame.bound[0], before)
    assert exe.report.frames == 1


def test_views_cost_nothing(loader: Loader) -> None:
    b = Builder()
    x = Value(F32, "x")
    y = b.call("add", x, x)
    v = b.reshape(y, (10, 100))
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (v,))
    exe = native(graph, loader)
    assert exe.report.python_instructions == 0
    (out,) = once(exe.acquire(), floats(0))
    assert out.shape == (10, 100)
    np.testing.assert_array_equal(out.ravel(), 2 * floats(0))

