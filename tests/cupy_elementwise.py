"""``cupy.ElementwiseKernel`` of the stand-in: Kusari's texts, run as OpenCL on the CPU."""
from __future__ import annotations

from typing import Any

import cupy_kernels
import numpy as np
from card import the_card

from kusari.codegen.cuda.text.dialect import cuda_source
from kusari.codegen.cuda.text.types import loaded, storage_name, stored, type_name

THREADS, BLOCKS = 64, 4


class ElementwiseKernel:
    """Arguments are arrays, of exactly the dtypes that are stated, and numbers; they broadcast."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str = "kernel", preamble: str = "",
                 options: tuple[str, ...] = (), **kwargs: Any) -> None:
        head = cuda_source("")
        if not preamble.startswith(head):
            raise NotImplementedError("the stand-in for CuPy runs elementwise kernels of Kusari's only")
        self.name = name
        self._in = [np.dtype(p.split()[0]) for p in in_params.split(", ")]
        self._out = [np.dtype(p.split()[0]) for p in out_params.split(", ")]
        assert name.isidentifier() and options == ("--fmad=false",) and not kwargs
        lines = [f"const {type_name(d)} a{i} = {loaded(d, f'p{i}[i]')};" for i, d in enumerate(self._in)]
        lines += [f"{type_name(d)} y{i};" for i, d in enumerate(self._out)]
        lines += [operation, *(f"q{i}[i] = {stored(d, f'y{i}')};" for i, d in enumerate(self._out))]
        pointers = [f"GLOBAL const {storage_name(d)}* p{i}" for i, d in enumerate(self._in)]
        pointers += [f"GLOBAL {storage_name(d)}* q{i}" for i, d in enumerate(self._out)]
        loop = f"for (i64 i = BLOCK * {THREADS} + THREAD; i < n[0]; i += {THREADS} * BLOCKS)"
        self._text = (f"{preamble.removeprefix(head)}\nKERNEL({THREADS}, 1) {name}(GLOBAL const i64* n, "
                      f"{', '.join(pointers)}) {{\n{loop} {{\n" + "\n".join(lines) + "\n}\n}\n")

    def __call__(self, *args: Any, size: Any = None, stream: Any = None, block_size: int = 128) -> Any:
        from cupy_double import _check_devices, ndarray
        given, out = args[:len(self._in)], args[len(self._in):]
        _check_devices(self.name, args, {})
        for x, kind in zip(args, (*self._in, *self._out), strict=False):
            if isinstance(x, np.ndarray) or isinstance(x, ndarray) and x.dtype != kind:
                raise TypeError(f"Type is mismatched. {x.dtype} {kind} {self.name}")
        hosts = [x._host if isinstance(x, ndarray) else np.asarray(x, kind)
                 for x, kind in zip(given, self._in, strict=True)]
        shape = np.broadcast_shapes(*[x.shape for x in hosts], *[x.shape for x in out])
        assert all(x.shape == shape for x in out)
        flat = [np.array(np.broadcast_to(x, shape), order="C") for x in hosts]
        results = [np.empty(shape, d) for d in self._out]
        if results[0].size:
            self._run([np.array([results[0].size]), *flat, *results])
        cupy_kernels.launches["kernels"] += 1
        if not out:
            made = [ndarray.of(y) for y in results]
            return made[0] if len(made) == 1 else tuple(made)
        for x, y in zip(out, results, strict=True):
            x._host[...] = y
        return out[0] if len(out) == 1 else out

    def _run(self, arrays: list[np.ndarray]) -> None:
        card = the_card()
        function = card.built(self._text, self.name)
        for i, x in enumerate(arrays):
            function.set_arg(i, card.cl.SVM(x.reshape(-1)))
        card.launch(function, BLOCKS, THREADS)
