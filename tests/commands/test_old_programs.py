"""What old programs find under the alias: removed names of NumPy, six, and lines about NumPy's changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari.compat
from kusari import compat_numpy

SCRIPT = """
import multiprocessing
import numpy as np

def work(i):
    return hasattr(np, "float"), hasattr(np, "Inf")

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [0]), work(0))
"""


@pytest.fixture
def _installed() -> Iterator[None]:
    kusari.compat.install()
    yield
    kusari.compat.uninstall()


def run(tmp_path: Path, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, "-m", "kusari", "run", *options, str(script)], capture_output=True,
                          text=True, env={**os.environ, **environment}, check=False)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("name", "value"), [
    ("float", float), ("int", int), ("object", object), ("float_", np.float64), ("bool", np.bool_), ("Inf", np.inf),
    ("product", np.prod), ("VisibleDeprecationWarning", np.exceptions.VisibleDeprecationWarning)])
def test_removed_names_are_back(name: str, value: Any) -> None:
    assert getattr(np, name) is value


@pytest.mark.usefixtures("_installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # NumPy 2.0 to 2.3 still have some of them
def test_removed_functions_compute_what_they_did() -> None:
    numpy: Any = np
    assert numpy.asfarray([1, 2]).dtype == np.float64 and numpy.asfarray([1], "f").dtype == np.float32
    assert numpy.asscalar(np.array([3])) == 3 and numpy.in1d([[1, 2]], [2]).tolist() == [False, True]
    assert numpy.trapz([0, 2], dx=0.5) == 0.5 and numpy.msort(np.array([[2], [1]])).tolist() == [[1], [2]]


def test_names_go_with_the_alias() -> None:
    before = set(vars(np))
    kusari.compat.install(numpy_aliases=False)
    assert set(vars(np)) == before
    kusari.compat.uninstall()
    kusari.compat.install()
    assert {"float", "Inf"} <= set(vars(np)) - before
    kusari.compat.uninstall()
    assert set(vars(np)) == before


@pytest.mark.parametrize(("options", "environment", "there"), [
    pytest.param((), {}, True, marks=pytest.mark.slow), (("--no-numpy-aliases",), {}, False),
    pytest.param((), {"KUSARI_NUMPY_ALIASES": "0"}, False, marks=pytest.mark.slow)])
def test_the_option_reaches_other_processes(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str], there: bool,
) -> None:
    done = run(tmp_path, SCRIPT, *options, **environment)
    assert done.stdout == f"[({there}, {there})] ({there}, {there})\n", done.stderr


CHANGES = [
    ("int(np.ones((1, 1)))", "write x.item()", (2, 4)),
    ("np.array([1], 'u1') + 300", "does not change the type", (2, 0)),
    ("np.find_common_type", "not among those that are put back", (2, 0)),
    ("x = np.ones((2, 2), 'f'); F.concat((np.float64(2) * x, x))", "make it a Python number", (2, 0)),
    ("1 / 0", "", (2, 0)),
]


@pytest.mark.parametrize(("line", "message", "since"), CHANGES)
def test_changes_of_numpys_are_explained(tmp_path: Path, line: str, message: str, since: tuple[int, int]) -> None:
    if tuple(map(int, np.__version__.split(".")[:2])) < since:
        pytest.skip(f"NumPy {np.__version__} takes it")
    done = run(tmp_path, f"import numpy as np\nimport chainer.functions as F\n{line}\n")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and (message in last if message else last.startswith("ZeroDivisionError")), done.stderr
    assert last.endswith(f"({compat_numpy.PAGE}).") == bool(message)


SIX = """
import sys
sys.modules.pop("six", None)
sys.path_importer_cache.clear()
import kusari.compat
{hide}
kusari.compat.install()
import six, six.moves.cPickle as pickle
from six.moves import range, zip, urllib
from six.moves.urllib import request
from six.moves.urllib.parse import quote

@six.add_metaclass(type("Meta", (type,), {{"made": 1}}))
class A(object):
    x = 2

class B(six.with_metaclass(type(A), A)):
    pass

try:
    six.raise_from(KeyError("k"), ValueError("v"))
except KeyError as error:
    cause = repr(error.__cause__)
print(A.made, B.x, B.made, list(six.iteritems({{1: 2}})), pickle.loads(pickle.dumps(3)), quote("a b"), cause,
      isinstance("", six.string_types), request is six.moves.urllib.request, six.moves.urllib.parse.quote is quote,
      six.ensure_text(b"t"), six.int2byte(65), hasattr(six, "nothing"))
kusari.compat.uninstall()
print("six" in sys.modules)
"""
HIDE = """
path_finder = next(f for f in sys.meta_path if getattr(f, "__name__", "") == "PathFinder")
class Others:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] == "six" else path_finder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(path_finder)] = Others
"""


def test_six_is_there_where_it_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", SIX.format(hide=HIDE)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "1 2 1 [(1, 2)] 3 a%20b ValueError('v') True True True t b'A' False", "False"], done.stderr
