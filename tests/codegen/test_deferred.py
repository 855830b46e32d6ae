"""Kernels that are written when somebody needs their text: what they are known by."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bodies import body, softmax

from kusari.codegen import generate as generate_program
from kusari.codegen import native
from kusari.codegen.target import AVX2, AVX512
from kusari.ir import Builder, Facts, Graph, Kernel, Value, sources, tensor_type
from kusari.passes import plan
from kusari.passes.foreach import foreach
from kusari.passes.fuse import fuse


def no_text() -> Kernel:
    raise AssertionError("nobody asked for the text")


def test_a_kernel_is_written_once_and_only_when_needed() -> None:
    written: list[int] = []

    def write() -> Kernel:
        written.append(1)
        return Kernel("llvm", "f", "text", 64, 1, 2, True)
    kernel = Kernel.deferred("llvm", "what", write)
    assert kernel == Kernel.deferred("llvm", "what", no_text) and not written
    assert (kernel.text, kernel.symbol, kernel.scratch, kernel.flops, kernel.bytes, kernel.serial) == (
        "text", "f", 64, 1, 2, True)
    assert written == [1]


def test_keys() -> None:
    kernels = [*(Kernel.deferred(language, what, no_text) for language in ("llvm", "numba") for what in "ab"),
               Kernel("llvm", "a", ""), Kernel("llvm", "", "a"), Kernel("numba", "a", "")]
    assert len(set(kernels)) == len({k.key for k in kernels}) == len(kernels)
    assert Kernel("llvm", "a", "", flops=1) == Kernel("llvm", "a", "", flops=2)


def test_facts_may_come_from_elsewhere() -> None:
    kernel = Kernel.deferred("llvm", "what", no_text)
    kernel.adopt_facts(Facts("f", 8))
    kernel.adopt_facts(Facts("g", 9))
    assert (kernel.symbol, kernel.scratch) == ("f", 8)


def test_the_language_is_checked() -> None:
    with pytest.raises(ValueError, match="in numba"):
        _ = Kernel.deferred("numba", "what", lambda: Kernel("llvm", "f", "")).text


def graph_of_everything(rows: int = 6, scale: float = 0.5) -> Graph:
    """A nest, a product with an epilogue, a move, rows of a table, an update."""
    b = Builder()
    x, w, table = (Value(tensor_type("f4", s)) for s in ((rows, 8), (8, 8), (20, 4)))
    i, p, q = Value(tensor_type("i4", (rows,))), Value(tensor_type("f4", (9,))), Value(tensor_type("f4", (9,)))
    y = softmax(b, b.call("multiply", b.matmul(x, w), scale), 1)
    b.assign(p, b.call("subtract", p, b.call("multiply", q, scale)))
    outputs = (b.transpose(y, (1, 0)), b.take(table, i))
    return Graph("g", (x, w, table, i, q), (p,), (), tuple(b.nodes), outputs)


def keys(graph: Graph, target: Any = AVX512, language: Any = "llvm") -> list[str]:
    return [k.key for k in generate_program(plan(foreach(fuse(graph))), target, language).kernels]


def test_what_a_kernel_is_known_by_does_not_depend_on_the_run() -> None:
    assert keys(graph_of_everything()) == keys(graph_of_everything())


@pytest.mark.parametrize("change", [
    lambda: keys(graph_of_everything(rows=7)),
    lambda: keys(graph_of_everything(), AVX2),
], ids=["shape", "target"])
def test_what_a_kernel_is_known_by_says_everything(change: Callable[[], list[str]]) -> None:
    before, after = keys(graph_of_everything()), change()
    assert len(before) == len(after) and sum(a == b for a, b in zip(before, after, strict=True)) <= 1


def test_a_literal_changes_the_kernels_that_contain_it() -> None:
    one, other, same = (keys(graph_of_everything(scale=s)) for s in (0.5, 0.25, 0.5))
    assert one == same and 0 < sum(a != b for a, b in zip(one, other, strict=True)) < len(one)
    assert keys(graph_of_everything(scale=1)) != keys(graph_of_everything(scale=1.0))


def test_equal_keys_are_equal_texts() -> None:
    texts: dict[str, str] = {}
    graphs = [graph_of_everything(), graph_of_everything(rows=7), graph_of_everything(scale=2.0),
              fuse(body(softmax, ("f4", (6, 8))))]
    for graph in graphs:
        for kernel in generate_program(plan(foreach(fuse(graph))), AVX512).kernels:
            assert texts.setdefault(kernel.key, kernel.text) == kernel.text


def test_another_generator_means_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(graph_of_everything())
    monkeypatch.setattr(np, "__version__", "0")
    native.generator_version.cache_clear()
    try:
        assert not set(before) & set(keys(graph_of_everything()))
    finally:
        native.generator_version.cache_clear()


def version() -> str:
    """The generator's version in a new process."""
    sources._of_folder.cache_clear()
    return native.generator_version.__wrapped__()


def test_the_generators_version_is_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("native.py", "a"), ("llvm/gemm.py", "b")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    first = version()
    assert version() == first
    (tmp_path / "llvm/gemm.py").write_text("c")
    second = version()
    (tmp_path / "llvm/gemm.py").rename(tmp_path / "llvm/other.py")
    assert len({first, second, version()}) == 3


def test_without_sources_no_two_processes_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    assert version() != version()
