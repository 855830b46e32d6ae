"""Chainer's own tests as the judge: run them under Chainer or Kusari, and compare what passes.

    cd CHECKOUT_OF_CHAINER
    PYTHON_WITH_CHAINER .../chainer_suite.py run chainer theirs.txt tests/chainer_tests tests/onnx_chainer_tests
    PYTHON_WITH_KUSARI .../chainer_suite.py run kusari ours.txt tests/chainer_tests tests/onnx_chainer_tests
    python .../chainer_suite.py compare theirs.txt ours.txt

``run`` writes a line for each test: its outcome and its name. What pytest prints comes on standard output. Tests that
need a GPU, iDeep, Theano or ChainerX are left out. ``compare`` prints the share of each folder, of the tests that pass
in the first file, and with ``--missing`` the tests that do not pass in the others.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import os
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MARKS = "gpu cudnn slow ideep chainerx multi_gpu theano parametrize_device parametrize_device_name".split()
# Backends that Chainer's processes did not have.
BACKENDS = re.compile(r"use_ideep='(always|auto)'|use_chainerx=True|use_cuda=True")


class Recorder:
    """A plugin of pytest that writes outcomes to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w")

    def pytest_configure(self, config: Any) -> None:
        """Declare the marks."""
        for mark in MARKS:
            config.addinivalue_line("markers", mark)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            self._write(report.outcome, report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Write the name of a file that could not be collected."""
        if report.failed:
            self._write("uncollected", report.nodeid)

    def _write(self, outcome: str, name: str) -> None:
        self._file.write(f"{outcome} {' '.join(name.split())}\n")
        self._file.flush()


def run(library: str, file: Path, paths: list[str]) -> int:
    """Run tests, and return pytest's status."""
    if library == "kusari":
        importlib.import_module("kusari.compat").install()
        _put_back()
        _stand_in()
    chosen = "not " + " and not ".join(MARKS[:7])
    # Chainer's own settings turn warnings into errors, those of NumPy 2 too, and run its docstrings.
    options = ["-c", os.devnull, "-q", "--tb=line", "-p", "no:cacheprovider", "-o", "python_classes=Test", "-W",
               "ignore", "--continue-on-collection-errors", "--rootdir=.", "-m", chosen]
    return importlib.import_module("pytest").main([*options, *paths], plugins=[Recorder(file)])


def _put_back() -> None:
    """Put back what `install` does not, as the tests and not the library use it."""
    numpy = importlib.import_module("numpy")
    vars(numpy).setdefault("VisibleDeprecationWarning", UserWarning)


class _Cases(type):
    """The kind of the class that ChainerX's tests know parameterized classes by, and read the cases of."""

    def __instancecheck__(cls, tested: Any) -> bool:
        cases = importlib.import_module("kusari.testing.parameterized").CASES.get(tested)
        if cases is not None:
            tested.cases = [(case, case.__module__, case.__name__) for case in cases]
        return cases is not None


def _stand_in() -> None:
    """Supply a class and a function that only ChainerX's tests use, and two modules that only ONNX-Chainer's use."""
    utils: Any = importlib.import_module("chainer.utils")
    testing: Any = importlib.import_module("chainer.testing")
    utils._format_array_props = lambda arrays: ", ".join(f"{a.shape} {a.dtype}" for a in arrays)
    testing._bundle = types.SimpleNamespace(
        _ParameterizedTestCaseBundle=_Cases("_ParameterizedTestCaseBundle", (), {}))

    def gen_test_data_set(model: Any, args: Any, name: str, opset_version: int, **kwargs: Any) -> str:
        model.xp.random.seed(42)
        path = f"out/opset{opset_version}/{name}"
        write = importlib.import_module("onnx_chainer").export_testcase
        write(model, args, path, opset_version=opset_version, **kwargs)
        return path

    def check_model_expect(path: str, input_names: Iterable[str] | None = None, rtol: float = 1e-5,
                           atol: float = 1e-5) -> None:  # fmt: skip
        onnx, numpy = importlib.import_module("onnx"), importlib.import_module("numpy")
        session = importlib.import_module("onnxruntime").InferenceSession(f"{path}/model.onnx")
        given = [v.name for v in session.get_inputs()]
        assert input_names is None or sorted(input_names) == sorted(given)
        for folder in sorted(Path(path).glob("test_data_set_*")):
            data = {name: [onnx.load_tensor(file) for file in sorted(folder.glob(f"{name}_*.pb"))]
                    for name in ("input", "output")}
            arrays = {t.name: onnx.numpy_helper.to_array(t) for t in data["input"]}
            results = [v.name for v in session.get_outputs()]  # a tensor without a name is the one at its place
            got = session.run([t.name or results[i] for i, t in enumerate(data["output"])], arrays)
            for tensor, found in zip(data["output"], got, strict=True):
                numpy.testing.assert_allclose(onnx.numpy_helper.to_array(tensor), found, rtol=rtol, atol=atol)

    for name, function in (("get_test_data_set", gen_test_data_set), ("test_onnxruntime", check_model_expect)):
        module = types.ModuleType(f"onnx_chainer.testing.{name}")
        setattr(module, function.__name__, function)
        sys.modules[module.__name__] = module


def key(name: str) -> str:
    """The file, class and function of a test; parameters and backends are spelt by each library in its own way."""
    file, _, names = name.partition("::")
    owner = re.split(r"_param_|_use_chainerx|_backend_|\{", names)[0].partition("::")[0] if "::" in names else ""
    test = re.split(r"_backend_|_param_|[\[{]", names.rpartition("::")[2])[0]
    return f"{file}::{owner}::{test}"


def area(name: str) -> str:
    """The folder that a test is counted with."""
    parts = name.partition("::")[0].split("/")[1:-1]
    return "/".join(parts[:3 if parts[1:2] in (["functions_tests"], ["links_tests"]) else 2])


def passed(files: Iterable[Path]) -> collections.Counter[str]:
    """How many tests of each key pass on a backend that Chainer had, too."""
    lines = [line.partition(" ") for file in files for line in file.read_text().splitlines()]
    return collections.Counter([key(name) for outcome, _, name in lines
                                if outcome == "passed" and not BACKENDS.search(name)])


def compare(theirs: Path, ours: list[Path], missing: bool) -> None:
    """Print the shares, and what is missing."""
    wanted, found = passed([theirs]), passed(ours)
    there: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    for name, count in wanted.items():
        for place in (area(name), "in all"):
            total[place] += count
            there[place] += min(count, found[name])
    for place in [*sorted(total.keys() - {"in all"}), "in all"]:
        print(f"{there[place]:6} of {total[place]:6}  {100 * there[place] / total[place]:5.1f} %  {place}")
    for name, count in sorted(wanted.items() if missing else ()):
        if found[name] < count:
            print(f"{count - found[name]:6} of {count:6}  {name}")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run tests")
    runs.add_argument("library", choices=("chainer", "kusari"))
    runs.add_argument("file", type=Path, help="for the outcomes")
    runs.add_argument("paths", nargs=argparse.REMAINDER, help="files or folders of tests, and options of pytest")
    compares = commands.add_parser("compare", help="compare outcomes")
    compares.add_argument("theirs", type=Path)
    compares.add_argument("ours", type=Path, nargs="+")
    compares.add_argument("--missing", action="store_true", help="name the tests that do not pass")
    given = parser.parse_args()
    if given.command == "run":
        return run(given.library, given.file, given.paths)
    compare(given.theirs, given.ours, given.missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
