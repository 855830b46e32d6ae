"""Kernel texts of all benchmark models and of a table of cases, written to a folder or compared.

    python tools/replay_texts.py write FOLDER [CASE ...]
    python tools/replay_texts.py diff BEFORE AFTER [CASE ...]

``BEFORE`` and ``AFTER`` are folders of texts, or checkouts with a folder ``typings`` (``tools/link_typings.py`` makes
it), whose texts a process of their own then writes. ``diff`` prints which texts differ and how, and exits with 1 if any
do: a refactoring of ``codegen`` should leave it silent.

Cases are the models of ``kusari.commands.models`` by name (inference, forward and backward, whole step), those of
``benchmarks/kernel_cases.py``, ``graphs`` (products and convolutions of many shapes), and ``tests``: every kernel that
``tests/codegen`` writes. Texts of all but the last are written for each of ``TARGET_NAMES``, and no kernel is compiled
or run: in the table of every frame stands a function that does nothing. So arrays hold anything, and only the texts
count. Tests do run, on the same examples every time.
"""
from __future__ import annotations

import argparse
import difflib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET_NAMES = ("avx512", "avx2", "sse", "neon")
PHASES = (("infer", False), ("train", False), ("train", True))
DIFF_LINES = 40  # printed of each text that differs


class Texts:
    """Texts by target and name of the kernel; different texts of one name are numbered in the order of writing."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], dict[str, None]] = {}

    def add(self, target: str, kernels: Iterable[Any]) -> None:
        """Add the texts of LLVM kernels with their facts in a first line; others are left out."""
        for kernel in kernels:
            if kernel.language == "llvm":
                text = f"; {kernel.facts}\n{kernel.text}"
                self.found.setdefault((target, kernel.symbol), {})[text] = None

    def files(self) -> Iterator[tuple[str, str]]:
        """Each text with its path in a folder."""
        for (target, symbol), texts in self.found.items():
            for number, text in enumerate(texts):
                yield f"{target}/{symbol}{f'.{number}' if number else ''}.ll", text

    def write(self, folder: Path) -> int:
        """Write all texts; return their number."""
        count = 0
        for name, text in self.files():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            count += 1
        return count


def record(texts: Texts) -> None:
    """Let everything that is compiled in this process add its texts, and run nothing."""
    from kusari.codegen import TARGETS
    from kusari.ir import Kernel
    from kusari.runtime import loader as loading
    from kusari.static.compile import compile as compiling
    generate = compiling.generate

    def generated(plan: Any, target: Any, *options: Any) -> Any:
        programs = {name: generate(plan, TARGETS[name], *options) for name in TARGET_NAMES}
        for name, program in programs.items():
            texts.add(name, program.kernels)
        return programs[TARGET_NAMES[0]]

    class Idle(loading.Loader):
        """A loader whose kernels, except those of the runtime itself, do nothing."""

        def lend(self, kernels: Any) -> Any:
            wanted = list(kernels)
            if sys._getframe(1).f_code is loading.Loader.load.__code__:
                return super().lend(wanted)
            return [nothing for _ in wanted], ()

    compiling.generate = generated
    loading._default = loader = Idle()
    nothing, = loader.load([Kernel("llvm", "nothing", "define void @nothing(ptr, i64, i64) {\n  ret void\n}\n")])


def run_model(name: str) -> None:
    """Compile inference, training and the whole step of a model."""
    import numpy as np

    from kusari.commands.models import MODELS, compiled
    from kusari.commands.worker import step_of
    model = MODELS[name]
    for phase, whole in PHASES:
        np.random.seed(0)
        step = step_of(model, model.build(compiled(model.chain)), phase, whole)
        for i in range(3):
            step(i)


def run_case(name: str) -> None:
    """Compile a case of ``benchmarks/kernel_cases.py``."""
    import numpy as np
    from kernel_cases import CASES
    CASES[name][0](np.random.RandomState(0))


# Sizes m, n, k and whether the factors are transposed; batch, dtype.
PRODUCTS = [
    *[(m, n, k, a, b, 1, "float32") for m, n, k in ((1, 1, 1), (13, 17, 19), (64, 100, 65), (100, 784, 300),
                                                    (13, 49, 200), (33, 33, 4100), (5, 1, 9), (1, 19, 4096))
      for a, b in itertools.product((False, True), repeat=2)],
    (20, 300, 400, False, True, 1, "float32"), (16, 1000, 512, False, True, 1, "float32"),
    (3, 1031, 600, False, False, 1, "float32"), (8, 4099, 300, False, False, 1, "float64"),
    (2000, 64, 300, False, False, 1, "float32"), (1100, 700, 600, True, False, 1, "float32"),
    (9, 12, 33, False, True, 4, "float32"), (17, 40, 8, False, False, 6, "float64"),
    (30, 8, 40, True, True, 1, "float64"),
]
# Samples, channels, output channels, sizes of images and windows; then keywords.
CONVOLUTIONS: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (2, 3, 5, (7, 9), (3, 3), {}), (1, 16, 24, (14, 14), (3, 3), {"pad": 1}), (1, 1, 1, (1, 1), (1, 1), {}),
    (3, 1, 20, (28, 28), (5, 5), {}), (3, 20, 50, (12, 12), (5, 5), {}),
    (1, 3, 16, (23, 23), (7, 7), {"stride": 2, "pad": 3}), (2, 6, 7, (13, 17), (3, 3), {"stride": 2, "pad": 1}),
    (2, 8, 12, (8, 8), (1, 1), {"stride": 2}), (2, 33, 20, (7, 11), (1, 1), {}),
    (9, 20, 18, (2, 2), (3, 3), {"pad": 1}),
    (2, 4, 4, (15, 15), (3, 3), {"dilate": 3, "pad": 2}), (2, 8, 12, (9, 9), (3, 3), {"groups": 4, "pad": 1}),
    (2, 9, 9, (10, 19), (3, 3), {"groups": 9, "pad": 1}), (1, 3, 6, (8, 8), (3, 3), {"groups": 3, "stride": 2}),
    (3, 5, 6, (40,), (9,), {"stride": 2, "pad": 4}), (2, 3, 4, (5, 6, 7), (2, 3, 3), {"pad": 1}),
    (1, 2, 3, (60,), (50,), {"pad": 3}), (1, 2, 40, (90,), (50,), {"stride": 2, "pad": 3}),
    (2, 3, 4, (11, 10), (2, 2), {"stride": 3}), (2, 6, 11, (9, 10), (3, 3), {"pad": 1, "dtype": "float64"}),
    (1, 1, 64, (17, 17), (7, 7), {"stride": 2, "pad": 3}), (1, 2, 3, (11, 12), (11, 11), {"pad": 5}),
    (8, 64, 64, (32, 32), (3, 3), {"pad": 1}), (8, 256, 256, (8, 8), (3, 3), {"pad": 1}),
    (2, 512, 512, (4, 4), (3, 3), {"pad": 1}), (8, 64, 128, (16, 16), (3, 3), {"stride": 2, "pad": 1}),
    (4, 256, 512, (14, 14), (3, 3), {"stride": 2, "pad": 1}), (4, 700, 16, (9, 9), (2, 2), {}),
    (4, 128, 128, (20, 20), (3, 3), {"groups": 32, "pad": 1}), (8, 32, 64, (14, 14), (1, 1), {"pad": 0}),
]


def run_graphs(texts: Texts) -> None:
    """Generate the products and convolutions of the tables, each alone and with an epilogue; Winograd's on and off."""
    from kusari.codegen import TARGETS
    nearer = [replace(TARGETS[name], l2_bytes=1 << 16) for name in TARGET_NAMES]
    for graph in graphs():
        for target in (*(TARGETS[name] for name in TARGET_NAMES), *nearer):
            for winograd in (4, 2, 0) if "conv" in graph.name and target.l2_bytes > 1 << 16 else (4,):
                texts.add(target.name, generated_kernels(graph, target, winograd))


def generated_kernels(graph: Any, target: Any, winograd: int = 4) -> Iterable[Any]:
    """The kernels of a graph after the passes."""
    from kusari.codegen import generate
    from kusari.passes import PIPELINE, plan, run_pipeline
    return generate(plan(run_pipeline(graph, PIPELINE)), target, winograd=winograd).kernels


def graphs() -> Iterator[Any]:
    """A graph for each row of the tables."""
    from kusari.ir import Builder, Graph, Value, tensor_type
    for m, n, k, transa, transb, batch, dtype in PRODUCTS:
        b, stack = Builder(), (batch,) * (batch > 1)
        x = Value(tensor_type(dtype, (*stack, *((k, m) if transa else (m, k)))))
        w = Value(tensor_type(dtype, (*stack, *((n, k) if transb else (k, n)))))
        bias = Value(tensor_type(dtype, (n,)))
        y = b.matmul(x, w, transa=transa, transb=transb)
        z = b.call("maximum", b.call("add", y, b.broadcast_to(bias, y.shape)), 0.0)
        yield Graph("product", (x, w), (), (), tuple(b.nodes[:1]), (y,))
        yield Graph("product", (x, w, bias), (), (), tuple(b.nodes), (z,))
    for n, c, k, size, kernel, more in CONVOLUTIONS:
        b, rank, options = Builder(), len(size), dict(more)
        groups, dtype = options.pop("groups", 1), options.pop("dtype", "float32")
        stride, pad, dilate = (options.get(key, v) for key, v in (("stride", 1), ("pad", 0), ("dilate", 1)))
        out = tuple((m + 2 * pad - (w - 1) * dilate - 1) // stride + 1 for m, w in zip(size, kernel, strict=True))
        window = {"stride": (stride,) * rank, "pad": (pad,) * rank, "dilate": (dilate,) * rank, "groups": groups}
        x, gy = Value(tensor_type(dtype, (n, c, *size))), Value(tensor_type(dtype, (n, k, *out)))
        w, bias = Value(tensor_type(dtype, (k, c // groups, *kernel))), Value(tensor_type(dtype, (k, *[1] * rank)))
        y = b.one("conv", x, w, **window, size=out)
        gw = b.one("conv_weight", x, gy, **window, size=kernel)
        gx = b.one("conv_input", gy, w, **window, size=size)
        yield Graph("conv", (x, w, gy), (), (), tuple(b.nodes), (y, gw, gx))
        z = b.call("tanh", b.call("add", y, b.broadcast_to(bias, y.shape)))
        yield Graph("conv", (x, w, bias), (), (), tuple(v for v in b.nodes if v.op.name not in (
            "conv_weight", "conv_input")), (z, y))


def run_tests(texts: Texts) -> None:
    """Run ``tests/codegen`` of the checkout that is imported, and add every kernel made meanwhile."""
    import pytest

    import kusari.codegen
    from kusari.ir import Kernel
    init = Kernel.__init__

    def made(self: Any, language: str, symbol: str, *arguments: Any, **more: Any) -> None:
        init(self, language, symbol, *arguments, **more)
        texts.add("tests", [self])
    tests = Path(kusari.codegen.__file__).resolve().parent.parent / "tests"
    Kernel.__init__ = made
    try:
        if pytest.main(["-q", "--disable-plugin-autoload", "-p", "no:cacheprovider", str(tests / "codegen")]):
            raise SystemExit("tests failed: their texts are not complete")
    finally:
        Kernel.__init__ = init


def names() -> list[str]:
    """All cases."""
    from kernel_cases import CASES

    from kusari.commands.models import MODELS
    return ["graphs", *CASES, *MODELS, "tests"]


def write(folder: Path, cases: list[str]) -> None:
    """Write the texts of ``cases``, or of all."""
    os.environ.setdefault("KUSARI_NUM_THREADS", "2")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["KUSARI_CACHE_DIR"] = empty
        sys.path.insert(0, str(ROOT / "benchmarks"))
        if unknown := set(cases).difference(names()):
            raise SystemExit(f"expected cases of {', '.join(names())}, got {', '.join(sorted(unknown))}")
        texts = Texts()
        if "tests" in (cases or names()):  # these do run, before the loader is replaced
            run_tests(texts)
        record(texts)
        from kernel_cases import CASES
        for name in cases or names():
            if name == "graphs":
                run_graphs(texts)
            elif name != "tests":
                run_case(name) if name in CASES else run_model(name)
        print(f"{texts.write(folder)} texts in {folder}")


def written(place: Path, scratch: Path, cases: list[str]) -> dict[str, str]:
    """The texts of a folder or of a checkout, by path."""
    if (place / "typings" / "kusari").exists():
        environ = {**os.environ, "PYTHONPATH": str(place.resolve() / "typings")}
        subprocess.run([sys.executable, __file__, "write", str(scratch), *cases], env=environ, check=True)
        place = scratch
    return {str(file.relative_to(place)): file.read_text(encoding="utf-8") for file in sorted(place.rglob("*.ll"))}


def diff(before: Path, after: Path, cases: list[str]) -> int:
    """Print how the texts of two places differ; return 1 if they do."""
    with tempfile.TemporaryDirectory() as scratch:
        old, new = (written(p, Path(scratch) / str(i), cases) for i, p in enumerate((before, after)))
    gone, made = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    changed = [name for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    for name in changed:
        lines = difflib.unified_diff(old[name].splitlines(), new[name].splitlines(), f"before/{name}", f"after/{name}",
                                     lineterm="", n=1)
        print("\n".join(itertools.islice(lines, DIFF_LINES)))
    for name in (*gone, *made):
        print(f"{'gone' if name in gone else 'new'}: {name}")
    print(f"{len(old)} texts before, {len(new)} after: {len(changed)} changed, {len(gone)} gone, {len(made)} new")
    return 1 if changed or gone or made else 0


def main(arguments: list[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, comparing = commands.add_parser("write"), commands.add_parser("diff")
    writing.add_argument("folder", type=Path)
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    for each in (writing, comparing):
        each.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args(arguments)
    if options.command == "diff":
        return diff(options.before, options.after, options.cases)
    write(options.folder, options.cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
