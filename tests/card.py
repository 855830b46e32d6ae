"""A stand-in for a graphics card: kernels run as OpenCL on the CPU, with blocks, barriers and shared memory.

Needs pyopencl and an implementation for the CPU: ``pip install pyopencl pocl-binary-distribution``, or Debian's package
pocl-opencl-icd. Tests are skipped where these are missing.
"""
from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from kept_texts import kept

from kusari.codegen.cuda.text.dialect import OPENCL_OPTIONS, opencl_source
from kusari.codegen.cuda.text.library import FUNCTIONS
from kusari.ir import DRAWS, GATHERS_AND_SCATTERS, Arena, Instruction, Kernel, Plan, Program, Value


def examples() -> int:
    """How many examples of a property test are looked at: each compiles its kernels."""
    from hypothesis import settings  # not where there is a card, and no more than CuPy and pytest
    assert settings.default is not None
    return max(3, settings.default.max_examples // 4)


_OPERANDS = {"atan2": 2, "pow": 2, "fmod": 2, "copysign": 2, "fma": 3}  # of functions with more than one
_CALLS = "".join([f"{kind} BUILTIN {name}({', '.join([kind] * _OPERANDS.get(name, 1))});\n"
                  for name in FUNCTIONS for kind in ("float", "double")]
                 + [f"int BUILTIN {name}({kind});\n" for name in ("isinf", "isfinite") for kind in ("float", "double")])
#: All of OpenCL that texts use. Clang's header declares all there is, which pocl reads anew for each kernel: 18,000
#: lines, in several times the time that most kernels take.
DECLARATIONS = f"""\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
#define as_float(x) __builtin_astype((x), float)
#define as_double(x) __builtin_astype((x), double)
#define as_uint(x) __builtin_astype((x), uint)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define BUILTIN __attribute__((overloadable, const))
size_t BUILTIN get_local_id(uint);
size_t BUILTIN get_group_id(uint);
size_t BUILTIN get_num_groups(uint);
void __attribute__((overloadable, convergent)) barrier(uint);
float __attribute__((overloadable, pure)) vload_half(size_t, const half *);
void __attribute__((overloadable)) vstore_half_rte(float, size_t, half *);
void __attribute__((overloadable)) vstore_half_rte(double, size_t, half *);
{_CALLS}"""


class Card:
    """An OpenCL device that shares the memory of this process."""

    def __init__(self, cl: Any, device: Any) -> None:
        self.cl = cl
        self._head, self._options = "", list(OPENCL_OPTIONS)
        if "pocl" in device.platform.version.lower():
            self._head = DECLARATIONS
            self._options.append("-D_OPENCL_H_")  # clang's header has been read
        self._context = cl.Context([device])
        self._device = device
        self._queue = cl.CommandQueue(self._context)
        self._kernels: dict[tuple[str, str], Any] = {}
        self.optimizes = False  # where kernels run for longer than it takes

    def built(self, text: str, symbol: str) -> Any:
        """The OpenCL kernel of a text; what its compiler says is part of the error."""
        if (text, symbol) not in self._kernels:
            source, options = self._head + opencl_source(text), [*self._options]
            if not self.optimizes:
                options.append("-cl-opt-disable")

            def built(*program: Any) -> Any:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that the compiler has said something at all
                    try:
                        return self.cl.Program(self._context, *program).build(options)
                    except self.cl.RuntimeError as error:
                        raise AssertionError(f"{error}\n{text}") from error

            by = [(d.name, d.version, d.driver_version) for d in [self._device]]
            binary = kept("opencl", (by, source, options),
                          lambda: built(source).get_info(self.cl.program_info.BINARIES)[0])
            self._kernels[text, symbol] = self.cl.Kernel(built([self._device], [binary]), symbol)
        return self._kernels[text, symbol]

    def launch(self, function: Any, blocks: int, threads: int) -> None:
        """Run a kernel whose arguments are set, and wait for it."""
        self.cl.enqueue_nd_range_kernel(self._queue, function, (blocks * threads,), (threads,))
        self._queue.finish()

    def run(self, kernel: Kernel, arrays: Sequence[np.ndarray]) -> None:
        """Run a kernel on arrays, its slots in order."""
        function = self.built(kernel.text, kernel.symbol)
        empty = np.full(64, 170, np.uint8)  # stands for empty arrays, which have no address
        if kernel.facts.by_table:
            table = np.array([a.ctypes.data for a in arrays], np.uint64)
            function.set_arg(0, self.cl.SVM(table))
        else:
            for i, array in enumerate(arrays):
                function.set_arg(i, self.cl.SVM(array if array.nbytes else empty))
        self.launch(function, kernel.facts.blocks, kernel.facts.threads)
        assert (empty == 170).all(), "wrote to an empty array"


@lru_cache(maxsize=1)
def the_card() -> Card:
    """The device of this process; skips the test where there is none."""
    try:
        import pyopencl as cl
        platforms = cl.get_platforms()
    except ImportError:
        pytest.skip("pyopencl is not installed")
    except cl.LogicError:
        pytest.skip("there is no implementation of OpenCL, such as the package pocl-binary-distribution")
    finally:
        os.environ.pop("PYOPENCL_HOME", None)  # set where it is imported, read once
    devices = [d for p in platforms for d in p.get_devices() if d.type & cl.device_type.CPU]
    if not devices:
        pytest.skip("OpenCL has no device for the CPU")
    _name_processor(devices[0])
    return Card(cl, devices[0])


_NAME_BYTES = 8
_DEVICE_BYTES = 4096  # in which pocl's record of a device names the processor
_NAMES: dict[bytes, Any] = {}


def _name_processor(device: Any) -> None:
    """Make an old pocl compile for a processor that is newer than its LLVM.

    LLVM calls such a processor ``generic``, and then refuses that name. pocl has no setting for it, so the pointer in
    its record of the device is made to point to the name of an older processor that has the same instructions.
    """
    if not sys.platform.startswith("linux"):
        return
    import llvmlite.binding  # not where there is a card, and no stand-in
    features = llvmlite.binding.get_host_cpu_features()
    name = b"skylake-avx512" if features.get("avx512vl") else b"haswell" if features.get("avx2") else b"x86-64"
    memory = os.open("/proc/self/mem", os.O_RDWR)  # reading through it fails where a pointer would crash
    try:
        record = np.frombuffer(os.pread(memory, _DEVICE_BYTES, device.int_ptr), np.uintp)
        for i in np.flatnonzero((record > _DEVICE_BYTES) & (record < 1 << 47)):
            try:
                found = os.pread(memory, _NAME_BYTES, int(record[i]))
            except OSError:
                continue
            if found == b"generic\0":
                text = _NAMES.setdefault(name, ctypes.create_string_buffer(name))
                place = device.int_ptr + int(i) * record.itemsize
                os.pwrite(memory, ctypes.addressof(text).to_bytes(record.itemsize, sys.byteorder), place)
    finally:
        os.close(memory)


def run_program(plan: Plan, program: Program, inputs: Sequence[Any], params: Sequence[Any]) -> list[Any]:
    """Run all rows in order in one arena, by the planner's offsets; ``params`` change in place."""
    card, graph = the_card(), plan.graph
    arena = np.full(plan.arena_size + 64, 255, np.uint8)
    arena = arena[-arena.ctypes.data % 64:]
    buffers = [np.array(x) for x in inputs] + list(params) + [np.array(a) for _, a in graph.consts]
    buffers += [np.empty(v.shape, v.tensor.dtype) for v in plan.externals[len(buffers):]]
    memory: dict[Any, np.ndarray] = {}

    def view(v: Value) -> np.ndarray:
        slot = plan.slots[v]
        whole = arena if isinstance(slot, Arena) else buffers[slot.index].reshape(-1).view(np.uint8)
        return whole[slot.offset:slot.offset + v.tensor.nbytes].view(v.tensor.dtype).reshape(v.shape)

    for v, x in zip(plan.externals, buffers, strict=False):
        if isinstance(plan.slots.get(v), Arena):  # small inputs are copied
            view(v)[...] = x
    for row in program.instructions:
        run_row(card, row, [view(v) for v in row.operands], memory)
    return [np.array(view(v)) for v in graph.outputs]


def run_row(card: Card, row: Instruction, arrays: list[np.ndarray], memory: dict[Any, np.ndarray]) -> None:
    """Run one row; ``memory`` is what kernels of one node leave to each other."""
    if row.kernel is None:
        results = row.node.op.call(row.node.attrs, *arrays[:len(row.node.inputs)])
        for x, y in zip(arrays[len(row.node.inputs):], results, strict=True):
            x[...] = y
        return
    assert row.node.op.name not in DRAWS
    if row.node.op.name in GATHERS_AND_SCATTERS:
        arrays = [*arrays, np.zeros(2, np.int64)]
    if row.kernel.shared:
        if row.node not in memory or memory[row.node].size < row.kernel.shared:
            memory.clear()
            memory[row.node] = np.full(row.kernel.shared, 255, np.uint8)
        arrays = [*arrays, memory[row.node]]
    card.run(row.kernel, arrays)
