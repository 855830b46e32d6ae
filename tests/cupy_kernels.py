"""Kernels and graphs of the stand-in for CuPy: texts in CUDA C that Kusari writes run as OpenCL on the CPU.

``launches`` counts what the host has begun: a kernel, or a whole graph. Refused is what a card refuses: kernels on
memory of another device than the current one, grids that are empty, graphs that are launched into a capture.
"""
from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

import cupy_memory
import cupy_streams
import numpy as np
from card import the_card
from cupy_memory import CUDARuntimeError, enqueue
from cupy_streams import get_current_stream, state

from kusari.codegen.cuda.text.dialect import OPTIONS, cuda_source

launches: Counter[str] = Counter()
_EMPTY = np.full(64, 170, np.uint8)  # stands for arrays without elements


class RawKernel:
    """``cupy.RawKernel``: its arguments are addresses."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc",
                 translate_cucomplex: bool = False, *, enable_cooperative_groups: bool = False, jitify: Any = None,
                 ) -> None:
        head = cuda_source("")
        assert code.startswith(head) and tuple(options) == OPTIONS
        self._text, self.name = code.removeprefix(head), name

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0,
                 ) -> None:
        assert len(grid) == len(block) == 1 and grid[0] >= 1 and all(type(a) is int for a in args)
        if get_current_stream().captured is None:
            launches["kernels"] += 1
        device = state.device
        enqueue(None, lambda: self._run(grid[0], block[0], args, device))

    def _run(self, blocks: int, threads: int, args: tuple[int, ...], device: int) -> None:
        card = the_card()
        function, cl = card.built(self._text, self.name), card.cl
        for i, address in enumerate(args):
            cupy_memory.pool.expect_on(address, device)
            memory = (ctypes.c_ubyte * 1).from_address(address) if address else _EMPTY
            function.set_arg(i, cl.SVM(np.frombuffer(memory, np.uint8)))
        card.launch(function, blocks, threads)
        launches["run"] += 1
        assert (_EMPTY == 170).all(), "wrote to an empty array"


class Graph:
    """``cupy.cuda.Graph``."""

    def __init__(self, nodes: list[Callable[[], None]], device: int) -> None:
        self.nodes, self._device = nodes, device

    def launch(self, stream: Any = None) -> None:
        """Run it in the order of a stream."""
        if state.device != self._device:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: the graph is of another device")
        launches["graphs"] += 1
        for node in self.nodes:
            enqueue(stream, node)

    def upload(self, stream: Any = None) -> None:
        """Get ready to run it."""


def begin_capture(stream: Any, mode: Any = None) -> None:
    """``Stream.begin_capture``."""
    if stream.ptr == 0:
        raise RuntimeError("cannot capture on the default (legacy) stream")
    stream.synchronize()
    stream.captured = []


def end_capture(stream: Any) -> Graph:
    """``Stream.end_capture``."""
    nodes, stream.captured = stream.captured, None
    if not nodes:
        raise CUDARuntimeError("an empty graph was captured")
    return Graph(nodes, state.device)


cupy_streams.Stream.begin_capture = begin_capture  # type: ignore[attr-defined]
cupy_streams.Stream.end_capture = end_capture  # type: ignore[attr-defined]
cupy_streams.Stream.is_capturing = lambda self: self.captured is not None  # type: ignore[attr-defined]
