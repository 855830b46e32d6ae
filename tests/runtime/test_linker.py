"""Object code linked without LLVM: the same as LLVM's linker makes of it, and nothing else than that."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runtime_texts import NUMBA, elementwise

from kusari.ir import Facts, Kernel
from kusari.runtime import HostInfo, Loader, LoadError, ObjectCache, compiler, host, linker, target
from kusari.runtime.cache import Entry
from kusari.runtime.compiler import compile_llvm
from kusari.runtime.linker import Image, Unlinkable, define_symbol, symbol_address

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
here = pytest.mark.skipif(not linker.SUPPORTED, reason="x86-64 Linux only")

# Constants, a table of addresses, data and zeros that are written, functions of the process called directly and
# implied by an instruction, an object of the process.
KINDS = Kernel("llvm", "kinds", """
declare i64 @strlen(ptr)
declare i64 @kusari_test_given(i64)
@environ = external global ptr
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@word = private constant [6 x i8] c"seven\\00"
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
@count = internal global i64 40
@zeros = internal global [64 x i64] zeroinitializer, align 64
define internal i64 @one(i64 %x) noinline {
  %y = add i64 %x, 1
  ret i64 %y
}
define internal i64 @two(i64 %x) noinline {
  %y = add i64 %x, 2
  ret i64 %y
}
define void @kinds(ptr %slots, i64 %tid, i64 %nth) {
  %out = load ptr, ptr %slots
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 %nth, i1 false)
  %n = call i64 @strlen(ptr @word)
  store i64 %n, ptr %out
  %f.p = getelementptr ptr, ptr @table, i64 %tid
  %f = load ptr, ptr %f.p
  %two = call i64 %f(i64 5)
  %out.1 = getelementptr i64, ptr %out, i64 1
  store i64 %two, ptr %out.1
  %c = load i64, ptr @count
  %c.1 = add i64 %c, 1
  store i64 %c.1, ptr @count
  %z.p = getelementptr i64, ptr @zeros, i64 %tid
  %z = load i64, ptr %z.p
  %sum = add i64 %z, %c.1
  %out.2 = getelementptr i64, ptr %out, i64 2
  store i64 %sum, ptr %out.2
  %out.3 = getelementptr i64, ptr %out, i64 3
  store i64 ptrtoint (ptr @environ to i64), ptr %out.3
  %g = call i64 @kusari_test_given(i64 20)
  %out.4 = getelementptr i64, ptr %out, i64 4
  store i64 %g, ptr %out.4
  %a = ptrtoint ptr @zeros to i64
  %out.5 = getelementptr i64, ptr %out, i64 5
  store i64 %a, ptr %out.5
  ret void
}
""")
GIVEN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 2 * x)
define_symbol("kusari_test_given", ctypes.cast(GIVEN, ctypes.c_void_p).value)


def test_only_texts_that_are_not_optimised_at_all_are_emitted_so(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []
    own = compiler._own_machine
    monkeypatch.setattr(compiler, "_own_machine", lambda level: levels.append(level) or own(level))
    plain, rare = "define void @f() {\n  ret void\n}\n", "define void @g() noinline optnone {\n  ret void\n}\n"
    compile_llvm(Kernel("llvm", "g", rare), "f0")
    compile_llvm(Kernel("llvm", "g", rare + plain), "f1")
    compile_llvm(Kernel("llvm", "f", plain), "f2")
    assert levels == [0, 2, 2]


def entry_of(kernel: Kernel) -> Entry:
    return compile_llvm(kernel, "unique_name")


@pytest.mark.parametrize("ours", [pytest.param(True, marks=here), False])
def test_what_an_object_may_need(ours: bool, monkeypatch: pytest.MonkeyPatch, loader: Loader) -> None:
    monkeypatch.setattr(linker, "SUPPORTED", ours)
    address = loader.load_one(KINDS)
    [library] = loader._libraries
    assert isinstance(library.code, Image) is ours
    out = np.full(72, 255, np.int64)
    for count in (41, 42):
        CALL(address)((ctypes.c_void_p * 1)(out.ctypes.data), 1, 72 * 8)
        assert out[:5].tolist() == [5, 7, count, symbol_address("environ"), 40]
        assert not out[5] % 64 and not out[6:].any()


@pytest.mark.parametrize("ours", [pytest.param(True, marks=here), False])
def test_both_linkers_make_the_same(ours: bool, monkeypatch: pytest.MonkeyPatch, cache: ObjectCache) -> None:
    kernels = [elementwise("fadd", 64), elementwise("fmul", 64), NUMBA]
    monkeypatch.setattr(linker, "SUPPORTED", ours)
    loader = Loader(cache)  # the code lives as long as it does
    add, mul, scale = loader.load(kernels)
    x, y = np.linspace(-1, 1, 64, dtype=np.float32), np.zeros(64, np.float32)
    CALL(scale)((ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data), 0, 1)
    np.testing.assert_allclose(y, 2 * np.exp(x), rtol=1e-6)
    CALL(add)((ctypes.c_void_p * 3)(*[x.ctypes.data] * 3), 0, 1)
    CALL(mul)((ctypes.c_void_p * 3)(*[x.ctypes.data] * 3), 0, 1)
    np.testing.assert_array_equal(x, (2 * np.linspace(-1, 1, 64, dtype=np.float32)) ** 2)


@here
def test_code_cannot_be_written_and_data_cannot_be_run() -> None:
    image = Image([entry_of(KINDS).code], symbol_address)
    maps = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    spans = [(*(int(x, 16) for x in line.split()[0].split("-")), line.split()[1]) for line in maps]
    end = image.base + image.nbytes
    found = "".join(kind for first, last, kind in spans if first < end and last > image.base)
    assert found == "r-xprw-p"


@here
def test_whatever_cannot_be_linked_is_refused() -> None:
    code = entry_of(KINDS).code
    with pytest.raises(Unlinkable, match="no function (strlen|memset)"):
        Image([code], lambda name: None)
    with pytest.raises(Unlinkable, match="not an ELF object"):
        Image([code[:18] + b"\xb7" + code[19:]], symbol_address)  # for another machine
    for n in (*range(0, len(code), 97), len(code) - 1):
        with pytest.raises(Unlinkable):
            Image([code[:n]], symbol_address)


@here
def test_functions_that_are_far_away_and_many() -> None:
    """Every object is linked with its own names and with one entry for each function of the process."""
    texts = [f"""
declare i64 @strlen(ptr)
declare i64 @labs(i64)
define i64 @f(ptr %s) {{
  %n = call i64 @strlen(ptr %s)
  %m = sub i64 %n, {i}
  %k = call i64 @labs(i64 %m)
  ret i64 %k
}}""" for i in range(0, 40, 8)]
    entries = [compile_llvm(Kernel("llvm", "f", text), f"f{i}") for i, text in enumerate(texts)]
    image = Image([entry.code for entry in entries], symbol_address)
    values = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(image[f"f{i}"])(b"twelve chars") for i in range(5)]
    assert values == [12, 4, 4, 12, 20]
    with pytest.raises(KeyError):
        image["f5"]


@here
def test_a_name_that_nobody_has(loader: Loader) -> None:
    text = """
declare void @nobody_has_this()
define void @k(ptr %slots, i64 %tid, i64 %nth) {
  call void @nobody_has_this()
  ret void
}"""
    with pytest.raises(LoadError, match="no function nobody_has_this in this process"):
        loader.load_one(Kernel("llvm", "k", text))


TRAINING = """
import sys
import numpy as np
import kusari
import kusari.functions as F
import kusari.links as L

class Net(kusari.Chain):
    def __init__(self):
        super().__init__(c=L.Convolution2D(1, 4, 3), l=L.Linear(None, 3))

    @kusari.static_graph
    def loss(self, x, t):
        return F.softmax_cross_entropy(self.l(F.max_pooling_2d(F.relu(self.c(x)), 2)), t)

np.random.seed(0)
net = Net()
optimizer = kusari.optimizers.Adam().setup(net)
x, t = np.random.rand(4, 1, 9, 9).astype("f"), np.array([0, 1, 2, 0])
for _ in range(4):
    optimizer.update(net.loss, x, t)
    net.cleargrads()
    net.loss(x, t).backward()
    optimizer.update()
from kusari.runtime import default_loader
print(default_loader().report.compiled, "llvmlite" in sys.modules, float(net.l.W.array.sum()))
"""


@pytest.mark.slow
@here
def test_a_process_whose_kernels_are_on_the_disk_does_not_load_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                    ) -> None:
    monkeypatch.setenv("KUSARI_CACHE_DIR", str(tmp_path))

    def trained() -> list[str]:
        return subprocess.run([sys.executable, "-W", "error", "-c", TRAINING], check=True, timeout=600,
                              capture_output=True, text=True).stdout.split()

    compiled, llvm, first = trained()
    assert int(compiled) > 5 and llvm == "True"
    assert trained() == ["0", "False", first]


@here
def test_what_is_kept_about_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    known = host()

    def ask() -> HostInfo:
        asked.append(1)
        return known

    monkeypatch.setenv("KUSARI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(target, "_ask_llvm", ask)
    find = host.__wrapped__
    assert find() == find() == known and len(asked) == 1
    file, = tmp_path.rglob("*.o")
    file.write_bytes(file.read_bytes()[:-1] + b"x")  # made anew, whatever happened to it
    assert find() == find() == known and len(asked) == 2
    ObjectCache.from_environment().put(file.stem, Entry("host 1", b'{"triple": "another form"}', Facts("host 1")))
    assert find() == find() == known and len(asked) == 3
    monkeypatch.setenv("KUSARI_CACHE", "0")
    assert find() == find() == known and len(asked) == 5
