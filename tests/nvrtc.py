"""NVIDIA's run-time compiler, which needs no graphics card."""
from __future__ import annotations

import ctypes
import importlib.util
import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
from kept_texts import kept

from kusari.codegen.cuda.text.dialect import OPTIONS, cuda_source

ARCHITECTURES = ("compute_70", "compute_80", "compute_90")


class Nvrtc:
    """The library of a wheel."""

    def __init__(self, path: Path) -> None:
        builtins = next(p for p in path.parent.glob("libnvrtc-builtins.so*"))
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))
        self._made_by = f"{path} {path.stat().st_mtime_ns}"

    def compile(self, text: str, architecture: str = "compute_70") -> str:
        """The PTX of a kernel's text; an assertion shows the compiler's messages."""
        return self._kept(text, f"--gpu-architecture={architecture}")[0]

    def stack_bytes(self, text: str, architecture: str = "sm_90") -> int:
        """Bytes of memory that a thread needs because its registers do not do, or cannot be numbered."""
        log = self._kept(text, f"--gpu-architecture={architecture}", "--ptxas-options=-v")[1]
        return sum(map(int, re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log)))

    def _kept(self, text: str, *options: str) -> tuple[str, str]:
        ptx, log = json.loads(kept("nvrtc", (self._made_by, cuda_source(text), OPTIONS, options),
                                   lambda: json.dumps(self._compiled(text, *options)).encode()))
        return ptx, log

    def _compiled(self, text: str, *options: str) -> tuple[str, str]:
        lib, program = self.library, ctypes.c_void_p()
        source = cuda_source(text).encode()
        assert lib.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None) == 0
        given = [o.encode() for o in (*OPTIONS, *options)]
        status = lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        assert status == 0, f"{log.value.decode()}\n{text}"
        lib.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetPTX(program, ptx)
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return ptx.value.decode(), log.value.decode()


@lru_cache(maxsize=1)
def nvrtc() -> Nvrtc:
    """The compiler; skips the test where its wheel is not installed."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for place in places for p in sorted(Path(place).glob("cuda_nvrtc/lib/libnvrtc.so*"))]
    if not found:
        pytest.skip("the wheel nvidia-cuda-nvrtc-cu12 is not installed")
    return Nvrtc(found[0])
