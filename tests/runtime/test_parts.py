"""Functions that texts share: compiled once, linked to each kernel that calls them, kept with it on disk."""
from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import SIGNATURE
from runtime_texts import changed, elementwise

from kusari.ir import Kernel, parts_of, with_parts
from kusari.runtime import Loader, LoadError, ObjectCache, compiler

HALF = """
define void @{name}(ptr %x, i64 %n) {{
  %v = load float, ptr %x
  %h = fmul float %v, 0.5
  store float %h, ptr %x
  ret void
}}
"""


def halving(name: str, n: int, body: str = HALF) -> Kernel:
    """A kernel that also halves the first result, by a part of that name."""
    kernel = elementwise("fadd", n)
    text = kernel.text.replace("out:\n", f"out:\n  call void @{name}(ptr %c, i64 1)\n")
    text = text.replace("define void @kernel", f"declare void @{name}(ptr, i64)\ndefine void @kernel")
    return changed(kernel, text=with_parts(text, {name: body.format(name=name)}))


def run(address: int) -> list[float]:
    x, y, z = np.full(4, 5, "f"), np.full(4, 3, "f"), np.zeros(4, "f")
    SIGNATURE(address)((ctypes.c_void_p * 3)(*[a.ctypes.data for a in (x, y, z)]), 0, 1)
    return z.tolist()


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all functions that are compiled."""
    names: list[str] = []
    emit = compiler._emit

    def counted(module: Any, symbol: str, *args: Any) -> Any:
        names.append(symbol)
        return emit(module, symbol, *args)
    monkeypatch.setattr(compiler, "_emit", counted)
    return names


def test_texts_keep_their_parts() -> None:
    parts = {"a": "define void @a() {\n}\n", "b": "define void @b() {\n}\n"}
    assert parts_of(with_parts("main\n", parts)) == ("main\n", parts)
    assert parts_of("main\n") == ("main\n", {})


@pytest.mark.parametrize("by_llvm", [False, True])
def test_kernels_share_a_part(loader: Loader, emitted: list[str], monkeypatch: pytest.MonkeyPatch, by_llvm: bool,
                              ) -> None:
    if by_llvm:
        monkeypatch.setattr("kusari.runtime.linker.SUPPORTED", False)
    name = f"half_by_llvm_{by_llvm}"
    addresses = loader.load([halving(name, 4), halving(name, 3), elementwise("fsub", 4)])
    assert [run(a) for a in addresses] == [[4, 8, 8, 8], [4, 8, 8, 0], [2, 2, 2, 2]]
    assert run(loader.load_one(halving(name, 2))) == [4, 8, 0, 0]  # in another library
    assert emitted.count(name) == 1


def test_what_is_on_disk_has_its_parts(tmp_path: Path, emitted: list[str]) -> None:
    kernel = halving("half_on_disk", 4)
    Loader(cache=ObjectCache(tmp_path)).load_one(kernel)
    again = Loader(cache=ObjectCache(tmp_path))
    del compiler._parts["half_on_disk", 0, False]
    assert run(again.load_one(kernel)) == [4, 8, 8, 8]
    assert again.report.compiled == 0 and emitted.count("half_on_disk") == 1


def test_threads_wait_for_a_part_that_one_of_them_compiles(loader: Loader, emitted: list[str]) -> None:
    kernels = [halving("half_in_threads", n) for n in (1, 2, 3, 4)]
    threads = [threading.Thread(target=loader.load_one, args=(k,)) for k in kernels]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [run(loader.load_one(k))[0] for k in kernels] == [4] * 4
    assert emitted.count("half_in_threads") == 1


def test_a_thread_that_waits_tries_itself_where_another_was_interrupted(
        loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    emit, began, proceed = compiler._emit, threading.Event(), threading.Event()
    name, faults = "half_interrupted", list[BaseException]()

    def interrupted(module: Any, symbol: str, *args: Any) -> Any:
        if symbol == name and not began.is_set():
            began.set()
            proceed.wait()
            raise KeyboardInterrupt
        return emit(module, symbol, *args)
    monkeypatch.setattr(compiler, "_emit", interrupted)

    def first() -> None:
        try:
            loader.load_one(halving(name, 4))
        except BaseException as fault:
            faults.append(fault)
    thread = threading.Thread(target=first)
    thread.start()
    began.wait()
    threading.Timer(0.1, proceed.set).start()
    assert run(loader.load_one(halving(name, 3))) == [4, 8, 8, 0]
    thread.join()
    assert [type(f) for f in faults] == [KeyboardInterrupt] and not compiler._pending


def test_faults_of_parts_name_them_and_are_not_kept(loader: Loader) -> None:
    for _ in range(2):
        with pytest.raises(LoadError, match=r"the text of half_wrong is not valid(.|\n)*--> .*fmul float %w"):
            loader.load_one(halving("half_wrong", 4, HALF.replace("fmul float %v", "fmul float %w")))
    assert not compiler._pending


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_compiles_the_part_that_its_parent_was_at(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compiler._pending, ("half_in_a_child", 0, False), threading.Event())
    loader.after_fork()
    assert run(loader.load_one(halving("half_in_a_child", 4))) == [4, 8, 8, 8]
