"""What every test gets: fixed seeds, a kernel cache of its own, kusari's settings as they are by default."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

# Before kusari is imported, so that no test reads or fills the user's cache. The workers of pytest-xdist share that of
# the process that started them, as processes do in use: none compiles what another has compiled.
WORKER = "PYTEST_XDIST_WORKER" in os.environ
if WORKER:  # they share the cores: threads of NumPy's that wait for each other would take the time of the other tests
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
KEPT = {"KUSARI_EXAMPLES", "KUSARI_ORACLE", "KUSARI_NUM_THREADS"} | ({"KUSARI_CACHE_DIR"} if WORKER else set())
for _name in [name for name in os.environ if name.startswith(("CHAINER_", "KUSARI_")) and name not in KEPT]:
    del os.environ[_name]
_KERNELS = os.environ.pop("TEST_KERNELS", None)  # a folder for those of several runs: other code has other names
if _KERNELS:
    os.environ["KUSARI_CACHE_DIR"] = _KERNELS
elif "KUSARI_CACHE_DIR" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="kusari-test-cache-")
    os.environ["KUSARI_CACHE_DIR"] = _CACHE.name
os.environ["POCL_CACHE_DIR"] = os.path.join(os.environ["KUSARI_CACHE_DIR"], "pocl")
os.environ["POCL_WORK_GROUP_METHOD"] = "loops"  # its vectorised ones are wrong on processors newer than its LLVM
os.environ["PYOPENCL_NO_CACHE"] = "1"
os.environ.setdefault("MPLBACKEND", "agg")
os.environ["KUSARI_PROGRESS"] = "0"
_SEEDED = np.random.RandomState(0).get_state()


def pytest_configure(config: pytest.Config) -> None:
    """Property tests look at fewer examples where slow tests are left out; the same ones in every run."""
    few = "not slow" in config.option.markexpr
    if importlib.util.find_spec("hypothesis") is None:  # as on a machine with a card, where nothing is installed
        return
    import hypothesis
    hypothesis.settings.register_profile("kusari", max_examples=6 if few else 80, deadline=None, database=None,
                                         derandomize=True)
    hypothesis.settings.load_profile("kusari")


MOST_CASES = 2  # of one test, where its further cases are left out


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the ``further`` cases: of a test that has many, all but a sample, the same in every run."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, several in cases.items():
        if len(several) > MOST_CASES:
            for item in random.Random(name).sample(several, len(several) - MOST_CASES):
                item.add_marker("further")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What thousands of tests consist of is never garbage: each collection would look at all of it again.

    The collector runs less often than it does by default, as traces and graphs are many objects that soon go.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(autouse=True, scope="session")
def _bytecode() -> None:
    """Where none is to be written beside the sources, each process that a test starts would compile all of kusari."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", os.path.join(os.environ["KUSARI_CACHE_DIR"], "pyc"))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """The same random numbers in every run and in every order of the tests."""
    random.seed(0)
    np.random.set_state(_SEEDED)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Put back what a test changes in ``kusari.config`` and ``kusari.global_config``."""
    from kusari.configuration import config, global_config

    before, local = dict(vars(global_config)), dict(vars(config))
    yield
    vars(config).clear()
    vars(config).update(local)
    for name in vars(global_config).keys() - before.keys():
        delattr(global_config, name)
    for name, value in before.items():
        if vars(global_config)[name] is not value:
            setattr(global_config, name, value)


# Of pytest itself, and set by scikit-learn where it is first imported.
_NOT_OURS = tuple([os.environ.encodekey(name) for name in ("PYTEST_CURRENT_TEST", "KMP_")])
_LOGGERS = [logging.getLogger(name) for name in ("kusari", "numba")]


def _world() -> dict[str, Any]:
    """What a test may not leave changed: of the process, of Python, of NumPy and of kusari."""
    from kusari import function_hook, link_hook, reporter, tape

    return {
        "the working directory": os.getcwd(),
        # As the system has it: to decode all of it takes longer than many a test.
        **{k: v for k, v in os.environ._data.items() if not k.startswith(_NOT_OURS)},
        "sys.argv": sys.argv.copy(),
        "sys.path": sys.path.copy(),
        "sys.meta_path": [f for f in sys.meta_path if type(f).__module__ != "six"  # it adds one where it is imported
                          and getattr(f, "__module__", "").partition(".")[0] != "mpi4py"],  # and so does that
        "sys.modules['__main__']": sys.modules["__main__"],
        "sys.modules['chainer']": sys.modules.get("chainer"),
        "the hooks of sys": (sys.excepthook, sys.displayhook, sys.breakpointhook, sys.gettrace(), sys.getprofile()),
        "signal handlers": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)],
        "gc.isenabled()": gc.isenabled(),
        "NumPy's error state": np.geterr(),
        "NumPy's print options": {k: v for k, v in np.get_printoptions().items() if k != "override_repr"},
        "logging": [(log.level, log.handlers.copy()) for log in _LOGGERS],
        "threads": {t.name for t in threading.enumerate() if not t.daemon},
        "function hooks": dict(function_hook.get_function_hooks()),
        "link hooks": dict(link_hook.get_link_hooks()),
        "the tape": tape.active(),
        "the reporters": list(reporter._stack()),
    }


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """Fail the test that changes the world, not the one that runs after it."""
    before = _world()
    yield
    after = _world()
    changed = [f"{name}: {before.get(name)!r} became {after.get(name)!r}" for name in {**before, **after}
               if before.get(name) != after.get(name)]
    assert not changed, "the test leaves behind:\n" + "\n".join(changed)
