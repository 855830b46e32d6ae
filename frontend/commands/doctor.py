"""``python -m kusari doctor``: packages, processor, cards and libraries here, and how to get what is missing."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__, environment, using_config
from ..backends import cuda
from ..runtime_info import API_VERSION
from .common import Formatter

DESCRIPTION = """\
Say what was found: packages with versions, the processor and the cache of kernels, graphics cards with driver and
libraries, MPI and ONNX; and for what is missing, which package brings it. A function is compiled and run to see that
the core works, and a kernel where there is a card.

  python -m kusari doctor

Exit code 0: the core works (a card, MPI and ONNX are optional). 1: it does not.
"""

WIDTH = 100


@dataclass(frozen=True)
class Finding:
    """A line: something by its name, what was found, and how to get it where it is missing."""

    name: str
    found: str
    remedy: str = ""
    broken: bool = False  # and the core does not work so


def add(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser("doctor", help="what was found on this machine, and what is missing",
                                   description=DESCRIPTION, formatter_class=Formatter)
    parser.set_defaults(main=main)


def main(options: argparse.Namespace) -> int:
    """Print all findings."""
    findings = [*core(), *card(), *extras()]
    print("\n".join(shown(findings)))
    return int(any(f.broken for f in findings))


def shown(findings: list[Finding]) -> Iterator[str]:
    """The lines of the report."""
    width = max(len(f.name) for f in findings)
    for f in findings:
        mark = "!" if f.broken else "-" if f.remedy else " "
        text = f"{f.found} ({f.remedy})" if f.remedy else f.found
        yield textwrap.fill(text, WIDTH, initial_indent=f"{mark} {f.name:<{width}}  ",
                            subsequent_indent=" " * (width + 4), break_long_words=False, break_on_hyphens=False)
    broken = [f.name for f in findings if f.broken]
    yield f"The core does not work: see {', '.join(broken)}." if broken else "The core works."


def version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def core() -> Iterator[Finding]:
    """The parts that Kusari cannot be without, and a function that is compiled."""
    yield Finding("kusari", f"{__version__}, API of Chainer {API_VERSION}")
    yield Finding("Python", f"{platform.python_version()} on {platform.platform(terse=True)} ({platform.machine()})")
    for package in ("numpy", "numba", "llvmlite"):
        found = version(package)
        yield Finding(package, found or "not installed", "" if found else f"pip install {package}", not found)
    try:
        from kusari.ir.threads import available_cores, thread_limit
        from kusari.runtime.target import host
        environment.check()
        facts = host()
        vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("neon", "NEON"))
                        if facts.has(flag)), "no vectors that are used")
        yield Finding("processor", f"{facts.cpu}: {vectors}; {thread_limit()} of {available_cores()} cores are used")
    except Exception as error:
        yield Finding("processor", f"{type(error).__name__}: {error}", broken=True)
    yield cache()
    yield trial()


def cache() -> Finding:
    """The folder of compiled kernels."""
    from kusari.runtime.cache import default_directory
    folder = default_directory()
    if folder is None:
        return Finding("cache", "turned off: each process compiles all it needs",
                       "unset KUSARI_CACHE, or name a folder in KUSARI_CACHE_DIR")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        count = sum(1 for _ in folder.iterdir())
    except OSError as error:
        return Finding("cache", f"{folder} cannot be written: {error.strerror}; each process compiles all it needs",
                       "name a folder in KUSARI_CACHE_DIR")
    return Finding("cache", f"{folder}, can be written, {count} files")


def trial() -> Finding:
    """A function that is traced, compiled and compared."""
    start = time.perf_counter()
    try:
        import numpy as np

        from .. import functions as F
        from ..static import static_graph
        x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)

        def call(x: Any) -> Any:
            return F.sum(F.relu(x) * F.exp(x), axis=1)
        compiled = static_graph(call)
        with using_config("keep_define_by_run", False):
            found = [compiled(x).array for _ in range(3)][-1]
        np.testing.assert_allclose(found, call(x).array, rtol=1e-5)
    except Exception as error:
        return Finding("compiler", f"a small function failed: {type(error).__name__}: {error}", broken=True)
    return Finding("compiler", f"compiled and ran a small function in {time.perf_counter() - start:.1f} s")


def card() -> Iterator[Finding]:
    """CuPy, the driver, cards and libraries."""
    driver = Path("/proc/driver/nvidia/version")
    if driver.exists():
        yield Finding("driver", driver.read_text(encoding="utf-8").splitlines()[0].removeprefix("NVRM version: "))
    if importlib.util.find_spec("cupy") is None:
        yield Finding("CuPy", "not installed: no graphics cards",
                      "pip install 'kusari[gpu]'; for CUDA 13 'kusari[gpu13]'")
        return
    cupy: Any = importlib.import_module("cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        yield Finding("CuPy", f"{cupy.__version__}, but there is no card: {error}",
                      "install NVIDIA's driver, and see that nvidia-smi lists a card")
        return
    runtime, supported = (cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.runtime.driverGetVersion())
    yield Finding("CuPy", f"{cupy.__version__}, CUDA {_dotted(runtime)}, driver for CUDA up to {_dotted(supported)}")
    for number in range(count):
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        with (device := cupy.cuda.Device(number)):
            free, total = device.mem_info
        yield Finding(f"card {number}", f"{properties['name'].decode()}, sm_{device.compute_capability}, "
                                        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free{_kernel(device)}")
    yield from libraries(runtime // 1000)
    for number in range(count):
        with cupy.cuda.Device(number) as device:
            yield from epilogues(runtime // 1000, number, int(device.compute_capability))


def epilogues(major: int, number: int, capability: int) -> Iterator[Finding]:
    """The epilogues of cuBLASLt that are not documented, tried on the current card."""
    from kusari.runtime.card import cublaslt, probes
    found = cublaslt.library(major)
    if isinstance(found, str):
        return
    for what in probes.PROBES:
        try:
            probes.require(found, number, what, "", cublaslt.most_workspace(capability))
            text = f"{what}: cuBLASLt's is used"
        except probes.Refused as error:
            text = f"{what}: by kernels of Kusari's own: {error}"
        yield Finding(f"card {number}", text)


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _kernel(device: Any) -> str:
    """Whether a kernel runs on a card."""
    try:
        with device:
            fine = int((cuda.cupy.arange(5) * 2).sum()) == 20
        return ", runs kernels" if fine else ", but computes 2 * (0 + 1 + 2 + 3 + 4) wrongly"
    except Exception as error:
        return f", but a kernel failed: {type(error).__name__}: {error}"


# What is used where it is there: the name, that of the library, that of the package without its cu12 or cu13.
LIBRARIES = (("NVRTC", "nvrtc", "nvidia-cuda-nvrtc"), ("cuBLASLt", "cublasLt", "nvidia-cublas"),
             ("cuDNN", "cudnn", "nvidia-cudnn"), ("NCCL", "nccl", "nvidia-nccl"))


def libraries(major: int) -> Iterator[Finding]:
    """NVIDIA's libraries, for a version of CUDA."""
    from kusari.runtime.card.libraries import package
    for name, stem, short in LIBRARIES:
        found = library(stem, major)
        whole = package(short, major)
        text = f"{version(whole) or ''} {found}".strip() if found else "not found"
        if stem == "cudnn":  # is called through its frontend
            frontend = version("nvidia-cudnn-frontend")
            text += f", frontend {frontend}" if frontend else ", without its frontend"
            extra = "cudnn" if major < 13 else "cudnn13"
            yield Finding(name, text, "" if found and frontend else f"pip install 'kusari[{extra}]'")
            continue
        yield Finding(name, text, "" if found else f"pip install {whole}")


def library(stem: str, major: int) -> str | None:
    """The path or name of a shared library."""
    from kusari.runtime.card.libraries import find
    return find(stem, major)


def extras() -> Iterator[Finding]:
    """Packages of other extras."""
    mpi = version("mpi4py")
    beside = str(Path(sys.executable).parent)  # where pip puts programs
    launcher = shutil.which("mpiexec", path=os.pathsep.join((beside, os.environ.get("PATH", ""))))
    yield Finding("MPI", f"mpi4py {mpi}, {launcher or 'no mpiexec'}" if mpi else "not installed: one process only",
                  "" if mpi and launcher else "pip install 'kusari[mpi]'")
    for name, package, extra in (("ONNX", "onnx", "onnx"), ("ONNX Runtime", "onnxruntime", "onnx"),
                                 ("Caffe", "protobuf", "caffe"), ("HDF5", "h5py", "hdf5")):
        found = version(package) or (version("onnxruntime-gpu") if package == "onnxruntime" else None)
        yield Finding(name, f"{package} {found}" if found else "not installed",
                      "" if found else f"pip install 'kusari[{extra}]'")
