"""Texts become functions, once; faults become messages."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_texts import NUMBA, changed, elementwise

from kusari.ir import Kernel
from kusari.runtime import Loader, LoadError, ObjectCache

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def call(address: int, *arrays: np.ndarray) -> None:
    CALL(address)((ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)), 0, 1)


def test_llvm_and_numba_texts_run(loader: Loader) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    y = np.zeros_like(x)
    add, scale = loader.load([elementwise("fadd", 64), NUMBA])
    call(scale, x, y)
    np.testing.assert_allclose(y, 2 * np.exp(x), rtol=1e-6)
    call(add, x, y, y)
    np.testing.assert_allclose(y, x + 2 * np.exp(x), rtol=1e-5)


def test_names_do_not_clash(loader: Loader) -> None:
    """Kernels of the same name, with helpers and tables of the same name, in one load."""
    ops = ("fadd", "fsub", "fmul")
    kernels = [elementwise("call", 8, helper=f"""
@table = global [1 x float] [float {i}.0]
define float @helper(float %x, float %y) {{
  %t = load float, ptr @table
  %s = fadd float %x, %t
  %z = {op} float %s, %y
  ret float %z
}}""") for i, op in enumerate(ops)]
    kernels = [changed(k, text=k.text.replace("call float %x, %y", "call float @helper(float %x, float %y)"))
               for k in kernels]
    x, y = np.full(8, 5, np.float32), np.full(8, 3, np.float32)
    for address, want in zip(loader.load(kernels), (8.0, 3.0, 21.0), strict=True):
        z = np.zeros(8, np.float32)
        call(address, x, y, z)
        np.testing.assert_array_equal(z, want)


def test_the_same_text_is_compiled_once(loader: Loader) -> None:
    kernel = elementwise("fadd", 16)
    first = loader.load([kernel, kernel, changed(kernel, flops=99)])
    assert len(set(first)) == 1
    assert loader.load_one(kernel) == first[0]
    assert loader.report.compiled == 1


def test_threads_that_ask_for_the_same_text(loader: Loader) -> None:
    kernels = [elementwise("fadd", n) for n in (8, 16, 24, 32)]
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(loader.load(kernels))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4 and all(f == found[0] for f in found)
    assert loader.report.compiled == 4


def test_many_texts_are_compiled_side_by_side(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_NUM_THREADS", "4")
    kernels = [elementwise("fadd", 8 * n) for n in range(1, 9)]
    bad = Kernel("llvm", "bad", "define void @bad() {\n  oops\n}")
    for _ in range(3):
        with pytest.raises(LoadError, match="oops"):
            loader.load([*kernels, bad])
        gc.collect()  # what the fault held is freed in any order
    for kernel, address in zip(kernels, loader.load(kernels), strict=True):
        x = np.ones(64, np.float32)
        y = np.zeros(64, np.float32)
        call(address, x, x, y)
        assert y.sum() == 2 * kernel.flops


def test_a_second_process_reads_the_disk_and_needs_no_numba(cache: ObjectCache, tmp_path: Path) -> None:
    Loader(cache).load([elementwise("fmul", 64), NUMBA])
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from runtime_texts import NUMBA, elementwise
from kusari.runtime import Loader, ObjectCache
from pathlib import Path
import ctypes, numpy as np
loader = Loader(ObjectCache(Path({str(cache.directory)!r})))
mul, scale = loader.load([elementwise("fmul", 64), NUMBA])
assert (loader.report.compiled, loader.report.cached) == (0, 2), loader.report
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(scale)(
    (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data), 0, 1)
np.testing.assert_allclose(y, 2 * np.e, rtol=1e-6)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=600)


def test_object_code_that_does_not_link_is_made_anew(cache: ObjectCache) -> None:
    kernel = elementwise("fadd", 8)
    first = Loader(cache)
    first.load_one(kernel)
    entry = cache.get(first.key(kernel))
    assert entry is not None
    cache.put(first.key(kernel), replace(entry, code=b"not an object file"))
    second = Loader(cache)
    x = np.ones(8, np.float32)
    call(second.load_one(kernel), x, x, x)
    assert second.report.compiled == 1 and x[0] == 2
    assert cache.get(first.key(kernel)) == entry


def test_keys_depend_on_everything(loader: Loader) -> None:
    kernel = elementwise("fadd", 8)
    keys = [loader.key(kernel), loader.key(elementwise("fsub", 8)), loader.key(changed(kernel, symbol="other")),
            Loader(ObjectCache(None), opt=2).key(kernel), Loader(ObjectCache(None), vectorize=True).key(kernel),
            loader.key(changed(kernel, language="numba"))]
    assert len(set(keys)) == len(keys)
    assert loader.key(changed(kernel, flops=7)) == keys[0]


@pytest.mark.parametrize(("kernel", "message"), [
    (Kernel("llvm", "k", "define void @k(ptr %s, i64 %t, i64 %n) {\n  %x = fadd float 1, 2\n  ret void\n}"),
     r"%x = fadd float 1, 2"),
    (Kernel("llvm", "k", "define void @other() {\n  ret void\n}"), "does not define @k"),
    (Kernel("llvm", "k", "declare void @no_such_function()\ndefine void @k(ptr %s, i64 %t, i64 %n) {\n"
            "  call void @no_such_function()\n  ret void\n}"), "no_such_function"),
    (Kernel("numba", "k", "def k(slots, tid, nth:\n    pass"), "not valid Python"),
    (Kernel("numba", "k", "def other(slots, tid, nth):\n    pass"), "does not define k"),
    (Kernel("numba", "k", "def k(slots, tid, nth):\n    slots.no_such_attribute"), "Numba cannot compile k"),
])
def test_faults(loader: Loader, kernel: Kernel, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        loader.load_one(kernel)
    loader.load_one(elementwise("fadd", 8))  # the loader is as good as new


def test_code_without_owners_is_released(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the last that were asked for fit; a library that is lent, or loaded for good, stays all the same."""
    loader = Loader(cache)
    kernels = [elementwise("fadd", 16 + 4 * i) for i in range(6)]
    x = np.arange(16, dtype=np.float32)
    good = loader.load_one(kernels[0])
    (lent,), held = loader.lend(kernels[1:2])
    monkeypatch.setattr("kusari.runtime.loader.IDLE_BYTES", 2 * held[0].nbytes)
    for kernel in kernels[2:]:
        loader.lend([kernel])
    gc.collect()
    assert [loader._linked_kernel(k.key) is not None for k in kernels] == [True, True, False, False, True, True]
    assert len(loader._libraries) == 4 and len(loader._loaded) == 4
    assert loader.load_one(kernels[0]) == good and loader.lend(kernels[1:2])[0] == [lent]
    compiled = loader.report.compiled
    addresses, libraries = loader.lend(kernels)  # what is gone comes from the disk
    assert loader.report.compiled == compiled and len(libraries) == 3
    for address in addresses:
        z = np.zeros(64, np.float32)
        y = np.ones(64, np.float32)
        call(address, np.resize(x, 64), y, z)
        np.testing.assert_array_equal(z[:16], x + 1)
