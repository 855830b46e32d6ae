"""Pages of LLVM's library that are only read are released, and come back when needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kusari.runtime import memory
from kusari.runtime.target import code_of_llvm, llvm

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")


def mapped(address: int) -> tuple[str, str]:
    """The permissions and the file of what lies at an address."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        first, last = (int(x, 16) for x in fields[0].split("-"))
        if first <= address < last:
            return fields[1], fields[-1]
    raise AssertionError(f"nothing is mapped at {address:x}")


@linux
def test_pages_that_are_discarded_are_never_written_to() -> None:
    stretches = code_of_llvm()
    assert sum(size for _, size in stretches) > 10 << 20
    for address, size in stretches:
        for at in (address, address + size - 1):
            permissions, file = mapped(at)
            assert "w" not in permissions and "llvmlite" in file


@linux
def test_code_comes_back_when_it_is_called() -> None:
    before = llvm.get_host_cpu_features()
    memory.discard_pages(code_of_llvm())
    assert llvm.get_host_cpu_features() == before
    text = "define i32 @f() {\n ret i32 1\n}"
    with pytest.raises(RuntimeError, match="expected"):
        llvm.parse_assembly(text.replace("ret", "rot"))  # exceptions are caught in it
    llvm.parse_assembly(text).verify()


def test_a_library_that_is_not_there() -> None:
    assert memory.read_only_pages("no such library") == []
    memory.discard_pages([])
