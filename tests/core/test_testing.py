"""What is for users' tests: cases for many parameters, repeated runs, a trainer that trains nothing."""

from __future__ import annotations

import importlib
import sys
import types
import unittest

import numpy as np
import pytest

import kusari.links as L
from kusari import testing
from kusari.testing import condition


def results(outcomes):
    """A test function that fails where ``outcomes`` says so, and the runs it has made."""
    runs = []

    def test():
        runs.append(outcomes[len(runs)])
        if not runs[-1]:
            raise ValueError("not this time")

    return test, runs


@pytest.mark.parametrize(
    ("decorator", "outcomes", "runs", "passes"),
    [
        (condition.retry(3), [0, 0, 1], 3, True),
        (condition.retry(2), [0, 0, 1], 2, False),
        (condition.retry(3), [1], 1, True),
        (condition.repeat(2), [1, 1], 2, True),
        (condition.repeat(3), [1, 0], 2, False),
        (condition.repeat_with_success_at_least(4, 2), [0, 1, 0, 1], 4, True),
        (condition.repeat_with_success_at_least(4, 3), [0, 1, 0], 3, False),
    ],
)
def test_runs(decorator, outcomes, runs, passes):
    test, made = results(outcomes)
    if passes:
        decorator(test)()
    else:
        with pytest.raises(AssertionError, match="first error message: ValueError: not this time"):
            decorator(test)()
    assert len(made) == runs


def test_runs_are_set_up_anew_and_may_be_skipped():
    log = []

    class Case(unittest.TestCase):
        def setUp(self):
            log.append("up")

        def tearDown(self):
            log.append("down")

        @condition.repeat(2)
        def test_it(self):
            log.append("run")

        @condition.retry(5)
        def test_skipped(self):
            raise unittest.SkipTest("not here")

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert log == ["up", "run", "down", "up", "run", "down", "up", "down"]
    assert (result.wasSuccessful(), len(result.skipped)) == (True, 1)
    with pytest.raises(AssertionError, match="between 0 and 2 of 2 runs"):
        condition.repeat_with_success_at_least(2, 3)


PARAMS = [
    (testing.product({"a": [1, 2], "b": ["x", "y"]}), [(1, "x"), (1, "y"), (2, "x"), (2, "y")]),
    (testing.product([[{"a": 1}, {"a": 2}], [{"b": 3}]]), [(1, 3), (2, 3)]),
    (testing.product({"a,b": [(1, "x"), (2, "y")], "c": [0]}), [(1, "x"), (2, "y")]),
    (testing.product_dict([{"a": 1, "b": 0}], [{"b": 2}, {}]), [(1, 2), (1, 0)]),
]


@pytest.mark.parametrize(("made", "expected"), PARAMS)
def test_parameterize(made, expected, monkeypatch):
    module = types.ModuleType("some_tests")
    monkeypatch.setitem(sys.modules, "some_tests", module)
    seen = []

    class Base(unittest.TestCase):
        def test_inherited(self):
            seen.append("inherited")

    class TestIt(Base):
        __module__ = "some_tests"
        a: int
        b: object

        def setUp(self):
            super().setUp()

        def test_own(self):
            super().test_inherited()
            seen.append((self.a, self.b))

    vars(module)["TestIt"] = testing.parameterize(*made)(TestIt)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    assert result.wasSuccessful() and result.testsRun == 2 * len(expected)
    assert sorted(x for x in seen if x != "inherited") == sorted(expected)
    assert any(name.startswith(f"TestIt_param_0_{{a={made[0]['a']!r}, b={made[0]['b']!r}") for name in vars(module))


@pytest.mark.parametrize(("names", "values", "expected"), [
    ("a,b", [(1, 2), (3, 4)], [(1, 2), (3, 4)]), ("a", [1, (2, 3)], [(1, None), ((2, 3), None)]),
])
def test_parameterize_as_pytest_does(names, values, expected, monkeypatch):
    module = types.ModuleType("some_tests")
    monkeypatch.setitem(sys.modules, "some_tests", module)

    class TestIt:
        __module__ = "some_tests"
        b = None

        def test(self):
            return (self.a, self.b)

    testing.parameterize_pytest(names, values)(TestIt)
    assert [case().test() for case in vars(module).values() if isinstance(case, type)] == expected


@pytest.mark.parametrize("names", ["first_backend_config, second_backend_config", "backend_config0, backend_config1",
                                   "backend_config, _"])
def test_two_backends(names):
    seen = []
    members: dict[str, object] = {"seen": seen}
    exec(f"def test(self, {names}): self.seen.append(tuple(c.autotune for c in ({names})))", members)
    Case = type("Case", (unittest.TestCase,), members)
    configs = [{}, {"autotune": True}]
    testing.inject_backend_tests(["test"], configs)(testing.inject_backend_tests(None, configs)(Case))
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.wasSuccessful()
    assert sorted(seen) == [(a, b) for a in (False, True) for b in (False, True)]


def test_marks_stay_on_tests_of_backends():
    class Case:
        @testing.attr.slow
        def test(self, backend_config):
            pass

    testing.inject_backend_tests(None, [{}])(Case)
    assert [mark.name for mark in vars(Case)["test_backend_0_{}"].pytestmark] == ["slow"]


def test_trainer_that_trains_nothing():
    log = []
    trainer = testing.get_trainer_with_mock_updater(
        (2, "epoch"), iter_per_epoch=3, extensions=[lambda t: log.append((t.updater.epoch, t.updater.is_new_epoch))])
    trainer.run()
    assert log == [(0, False), (0, False), (1, True), (1, False), (1, False), (2, True)]
    assert trainer.updater.previous_epoch_detail == 5 / 3


def test_save_and_load():
    made, other = L.BatchNormalization(2), L.BatchNormalization(2)
    made.avg_mean[:] = 3
    testing.save_and_load_npz(made, other)
    np.testing.assert_array_equal(other.avg_mean, [3, 3])


def test_marks():
    assert testing.attr.slow.name == "slow" and testing.attr.is_available() and testing.attr.get_error() is None
    with pytest.raises(AttributeError, match="it has check_available, chainerx"):
        importlib.import_module("kusari.testing.attr").__getattr__("tpu")


@pytest.mark.parametrize(("params", "marks"), [
    ({}, []), ({"use_ideep": "always"}, ["ideep"]), ({"use_cuda": True}, ["gpu"]),
    ({"use_cuda": True, "use_cudnn": "always", "cuda_device": 1}, ["gpu", "cudnn", 2]),
    ({"use_chainerx": True, "chainerx_device": "native:0"}, ["chainerx"]),
    ({"use_chainerx": True, "chainerx_device": "cuda:0"}, ["chainerx", "gpu"]),
])
def test_backends_say_their_marks(monkeypatch, params, marks):
    names = {name: name for name in ("chainerx", "cudnn", "gpu", "ideep")}
    monkeypatch.setattr("kusari.testing.backend.attr", types.SimpleNamespace(multi_gpu=int, **names))
    config = testing.BackendConfig(params)
    assert config.get_pytest_marks() == marks
    assert f"use_cuda_{str(params.get('use_cuda', False)).lower()}" in config.get_func_str().split("__")


@pytest.mark.parametrize(("limit", "skipped"), [(None, False), ("1", True), ("2", False)])
def test_limit_of_gpus(monkeypatch, limit, skipped):
    if limit is not None:
        monkeypatch.setenv("CHAINER_TEST_GPU_LIMIT", limit)
    test = testing.attr.multi_gpu(2)(lambda: None)
    assert getattr(test, "__unittest_skip__", False) is skipped


def test_quiet_runner():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(unittest.TestCase)
    assert condition.QuietTestRunner().run(suite).wasSuccessful()


def test_parameterize_twice(monkeypatch):
    module = types.ModuleType("some_tests")
    monkeypatch.setitem(sys.modules, "some_tests", module)
    seen = []

    class TestIt(unittest.TestCase):
        __module__ = "some_tests"

        def test(self):
            seen.append((self.a, self.b))

    testing.parameterize({"a": 1}, {"a": 2})(testing.parameterize({"b": 3}, {"b": 4})(TestIt))
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    assert result.wasSuccessful()
    assert sorted(seen) == [(1, 3), (1, 4), (2, 3), (2, 4)]
