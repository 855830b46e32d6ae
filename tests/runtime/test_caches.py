"""Sizes of caches, as systems tell them, and what they change."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kusari.codegen.contractions import ConvSpec
from kusari.codegen.llvm.contraction.conv.kernel import conv_kernel
from kusari.runtime import caches, host
from kusari.runtime.caches import ASSUMED_BYTES, cache_bytes
from kusari.static.compile.target import host_target, target_of

KB, MB = 1 << 10, 1 << 20
LINUX = [
    # level, type, size, processors that share it
    ([("1", "Data", "48K", "0"), ("1", "Instruction", "64K", "0"), ("2", "Unified", "2048K", "0"),
      ("3", "Unified", "32768K", "0-15")], (48 * KB, 2 * MB)),
    ([("1", "Data", "64K", "0"), ("2", "Unified", "1M", "0-1,8-9")], (64 * KB, 256 * KB)),
    ([("1", "Data", "32K", "0,4"), ("2", "Unified", "262144", "0,4")], (16 * KB, 128 * KB)),
    ([("1", "Data", "2K", "0"), ("2", "Unified", "64M", "0")], (ASSUMED_BYTES[0], 4 * MB)),
    ([("1", "Data", "48K", "0"), ("2", "Unified", "", "0")], ASSUMED_BYTES),
    ([("1", "Data", "48K", "")], ASSUMED_BYTES),
    ([("1", "Data", "48K", "0")], (48 * KB, ASSUMED_BYTES[1])),
    ([], ASSUMED_BYTES),
]


@pytest.mark.parametrize(("given", "expected"), LINUX)
def test_linux_tells_them_in_files(tmp_path: Path, given: list[tuple[str, ...]], expected: tuple[int, int]) -> None:
    for i, values in enumerate(given):
        (tmp_path / f"index{i}").mkdir()
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (tmp_path / f"index{i}" / name).write_text(value + "\n")
    assert cache_bytes("linux", tmp_path) == expected
    assert cache_bytes("linux", tmp_path / "nothing") == cache_bytes("win32", tmp_path) == ASSUMED_BYTES


@pytest.mark.parametrize(("given", "expected"), [
    ({"hw.perflevel0.l1dcachesize": 128 * KB, "hw.perflevel0.l2cachesize": 12 * MB, "hw.perflevel0.cpusperl2": 4,
      "hw.l1dcachesize": 64 * KB, "hw.l2cachesize": 4 * MB}, (128 * KB, 3 * MB)),
    ({"hw.l1dcachesize": 32 * KB, "hw.l2cachesize": 256 * KB}, (32 * KB, 256 * KB)),
    ({}, ASSUMED_BYTES),
])
def test_macos_tells_them_by_name(monkeypatch: pytest.MonkeyPatch, given: dict[str, int],
                                  expected: tuple[int, int]) -> None:
    monkeypatch.setattr(caches, "_sysctl", lambda name: given.get(name, 0))
    assert cache_bytes("darwin") == expected


def test_a_system_that_knows_no_such_name_tells_nothing() -> None:
    assert caches._sysctl("hw.no such cache") == 0


def test_kernels_are_cut_for_the_caches_of_their_target() -> None:
    facts = host()
    assert (host_target().l1_bytes, host_target().l2_bytes) == (facts.l1_bytes, facts.l2_bytes)
    large = ConvSpec("forward", 1, 256, 512, (14, 14), (7, 7), (3, 3), (2, 2), (1, 1), (1, 1))
    few, many = (conv_kernel(large, target_of(replace(facts, l2_bytes=size))) for size in (256 * KB, 4 * MB))
    assert few.symbol != many.symbol
    assert few.text.replace(few.symbol, "") != many.text.replace(many.symbol, "")
