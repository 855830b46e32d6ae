"""Compiles kernel texts with llvmlite and calls them on arrays."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from kept_texts import kept
from kernels import module_of, needs

Run = Callable[..., None]

FEATURES = {"avx512": None, "avx2": "-avx512f,+avx2,+fma,+f16c", "sse": "-avx,-avx2,-avx512f,-fma,-f16c", "neon": None,
            "generic": None}


class Jit:
    """Compiles as the loader does, for any target; a kernel lives as long as what runs it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._target = llvm.Target.from_default_triple()
        self._cpu, self._features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()

    def compile(self, text: str, symbol: str, target: str = "avx512") -> Run:
        """``run(*arrays, nth=1)``: all threads one after the other, last thread first."""
        needs(text)
        features = ",".join(filter(None, [self._features, FEATURES[target]]))
        made = kept("objects", (llvm.llvm_version_info, self._cpu, features, text),
                    lambda: self._object(text, features))
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine(features))
        engine.add_object_file(llvm.ObjectFileRef.from_data(made))
        engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        function = signature(engine.get_function_address(symbol))

        def run(*arrays: np.ndarray, nth: int = 1) -> None:
            slots = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
            for tid in reversed(range(nth)):
                function(ctypes.addressof(slots), tid, nth)
        run.__dict__["engine"] = engine  # thousands of them took more than a gigabyte
        return run

    def _machine(self, features: str) -> Any:
        return self._target.create_target_machine(cpu=self._cpu, features=features, opt=2, jit=True)

    def _object(self, text: str, features: str) -> bytes:
        machine, module = self._machine(features), module_of(text)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return machine.emit_object(module)


@pytest.fixture(scope="session")
def jit() -> Iterator[Jit]:
    yield Jit()
