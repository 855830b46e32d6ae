"""Test cases for users' functions and links: what is right passes, what is wrong is found and named."""

from __future__ import annotations

import sys
import unittest

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import testing


def outcomes(case):
    """What each test of a case comes to: "", "skipped" or the error."""
    found = {}
    for name in unittest.defaultTestLoader.getTestCaseNames(case):
        result = unittest.TestResult()
        case(name).run(result)
        wrong = [text for _, text in result.errors + result.failures]
        found[name] = wrong[0] if wrong else "skipped" if result.skipped else ""
    return found


class Twice(kusari.FunctionNode):
    """``2 x``, with whatever gradient a test wants."""

    slope = 2

    def forward(self, inputs):
        return (np.asarray(inputs[0] * 2),)

    def backward(self, indexes, grad_outputs):
        return (grad_outputs[0] * self.slope,)


def twice(x):
    return Twice().apply((x,))[0]


class FunctionCase(testing.FunctionTestCase):
    contiguous_inputs: list[bool]

    def generate_inputs(self):
        return (np.random.uniform(-1, 1, (2, 3)).astype("f"), np.arange(3))

    def forward(self, inputs, device):
        type(self).contiguous_inputs = [bool(x.array.flags.c_contiguous) for x in inputs]
        assert device.xp is np and not inputs[1].requires_grad
        return F.tanh(inputs[0]), Twice().apply((inputs[0],))[0]

    def forward_expected(self, inputs):
        type(self).contiguous_inputs += [bool(x.flags.c_contiguous) for x in inputs]
        return np.tanh(inputs[0]), inputs[0] * 2


def test_a_right_function_passes():
    assert set(outcomes(FunctionCase).items()) == {
        ("test_forward", ""), ("test_backward", ""), ("test_double_backward", "")}  # fmt: skip
    assert FunctionCase.contiguous_inputs == [False] * 4  # and what they are compared with

    class Contiguous(FunctionCase):
        contiguous = "C"
        skip_double_backward_test = True

    assert outcomes(Contiguous)["test_double_backward"] == "skipped"
    assert Contiguous.contiguous_inputs == [True] * 4


@pytest.mark.parametrize(("name", "change", "test", "text"), [
    ("forward_expected", lambda s, xs: (np.tanh(xs[0]), xs[0]), "test_forward", "output 1 has other values"),
    ("forward_expected", lambda s, xs: (np.tanh(xs[0]),), "test_forward", "gives 2 outputs, 1 are expected"),
    ("forward_expected", lambda s, xs: (np.tanh(xs[0]), xs[1]), "test_forward", "expected is int64(3,)"),
    ("forward_expected", lambda s, xs: np.tanh(xs[0]), "test_forward", "a tuple of arrays, got ndarray"),
    ("forward_expected", lambda s, xs: (np.tanh(xs[0], out=xs[0]), xs[0] * 2), "test_forward", "has changed input 0"),
    ("generate_inputs", lambda s: [np.ones(2)], "test_forward", "a tuple of arrays, got list"),
    ("forward", lambda s, xs, d: (xs[0].array,), "test_forward", "a tuple of Variables, got tuple of ndarray"),
])  # fmt: skip
def test_wrong_functions_are_found(name, change, test, text):
    class Wrong(FunctionCase):
        pass

    setattr(Wrong, name, change)
    found = outcomes(Wrong)[test]
    assert "FunctionTestError" in found and text in found


@pytest.mark.parametrize("kinks", [5, 100])
def test_kinks_are_dodged(kinks):
    class Case(testing.FunctionTestCase):
        dodge_nondifferentiable = True
        made = 0

        def generate_inputs(self):
            self.made += 1
            return (np.full((2, 3), self.made > kinks, "f"),)

        def forward(self, inputs, device):
            return (F.relu(inputs[0]),)

        def forward_expected(self, inputs):
            return (np.maximum(inputs[0], 0),)

    found = outcomes(Case)["test_backward"]
    assert "20 times there was no derivative" in found if kinks == 100 else not found


def test_wrong_gradients_are_found(monkeypatch):
    monkeypatch.setattr(Twice, "slope", 3)
    found = outcomes(FunctionCase)
    assert found["test_forward"] == "" and "test_backward failed: check_backward failed" in found["test_backward"]


def test_backends_and_parameters_multiply(monkeypatch):
    monkeypatch.setattr(kusari.backends.cuda, "available", False)
    for order in 0, 1:
        def made(case, order=order):
            backends = testing.inject_backend_tests(None, [{}, {"use_cudnn": "never"}, {"use_cuda": True}])
            shapes = testing.parameterize({"shape": ()}, {"shape": (2,)})
            return shapes(backends(case)) if order else backends(shapes(case))

        @made
        class Many(testing.FunctionTestCase):
            skip_double_backward_test = True

            def generate_inputs(self):
                return (np.random.uniform(0.5, 1, self.shape).astype("f"),)

            def forward(self, inputs, device):
                assert kusari.config.use_cudnn == self.backend_config._get("use_cudnn")
                return (F.log(inputs[0]),)

            def forward_expected(self, inputs):
                return (np.log(inputs[0]),)

        cases = [c for n, c in vars(sys.modules[__name__]).items() if n.startswith("Many_param")]
        found = [outcomes(case) for case in cases]
        assert [len(f) for f in found] == [9, 9] and not outcomes(Many)
        assert sorted({*found[0].values(), *found[1].values()}) == ["", "skipped"]
        assert [sum(v == "skipped" for v in f.values()) for f in found] == [5, 5]


class LinearCase(testing.LinkTestCase):
    param_names = ("W", "b")
    bias = True

    def generate_params(self):
        return np.random.uniform(-1, 1, (3, 2)).astype("f"), np.random.uniform(-1, 1, 3).astype("f")

    def create_link(self, initializers):
        return L.Linear(None, 3, initialW=initializers[0], initial_bias=initializers[1])

    def generate_inputs(self):
        return (np.random.uniform(-1, 1, (4, 2)).astype("f"),)

    def forward_expected(self, link, inputs):
        return (inputs[0] @ link.W.array.T + link.b.array * self.bias,)


def test_links():
    assert outcomes(LinearCase) == {"test_forward": "", "test_backward": ""}

    class Wrong(LinearCase):
        bias = False
        param_names = ("W", "c")

    assert "Linear has no parameter 'c'" in outcomes(Wrong)["test_backward"]
    Wrong.param_names = ()
    assert "output 0 has other values" in outcomes(Wrong)["test_forward"]


@pytest.mark.parametrize(("initializers", "text"), [
    (([1, kusari.initializers.Constant(2)], [testing.InitializerArgument(None, 0), 3]), ""),
    (([testing.InitializerArgument(1, 2)], [0]), "W has other values")])  # fmt: skip
def test_initializers(initializers, text):
    class Case(testing.LinkInitializersTestCase):
        param_names = ("W", "b")
        generate_params, create_link = LinearCase.generate_params, LinearCase.create_link
        generate_inputs = LinearCase.generate_inputs

        def get_initializers(self):
            return initializers

    found = outcomes(Case)["test_initializers"]
    assert text in found if text else not found


@pytest.mark.parametrize(("function", "options", "failing"), [
    (F.sin, {}, set()), (F.square, {"func_expected": lambda x, dtype: x * x}, set()),
    (F.sqrt, {"make_data": lambda s, d: [np.asarray(np.random.uniform(0.5, 1, s)).astype(d) for _ in range(3)]}, set()),
    (twice, {"func_expected": lambda x, dtype: x * 2}, set()),
    (F.sin, {"backward_options": {"dtype": "d", "eps": 1e-4}, "double_backward_options": {"dtype": "d"}}, set()),
    (F.cos, {"func_expected": lambda x, dtype: np.sin(x), "label_expected": "Sin"}, {"test_forward_cpu", "test_label"}),
])  # fmt: skip
def test_unary_functions(monkeypatch, function, options, failing):
    monkeypatch.setattr(kusari.backends.cuda, "available", False)
    case = testing.unary_math_function_unittest(function, **options)(type("Unary", (unittest.TestCase,), {
        "__module__": __name__}))  # fmt: skip
    found = [outcomes(c) for n, c in vars(sys.modules[__name__]).items() if n.startswith("Unary_param")]
    assert len(found) == 6 and not outcomes(case)
    for f in found:
        assert {n for n, v in f.items() if v not in ("", "skipped")} == failing
        assert sum(v == "skipped" for v in f.values()) == 3


def test_random_numbers_are_fixed():
    before = np.random.get_state()[1].copy()

    @testing.fix_random()
    def draw():
        return np.random.rand(), testing.generate_seed()

    assert draw() == draw()

    @testing.fix_random()
    class Case(unittest.TestCase):
        drawn: list[float] = []

        def setUp(self):
            self.drawn.append(np.random.rand())

        def test_one(self):
            pass

        test_two = test_one

    assert outcomes(Case) == {"test_one": "", "test_two": ""}
    assert Case.drawn[0] == Case.drawn[1]
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_requirements():
    @testing.with_requires("numpy>=2", "chainer>=7")
    def runs():
        return 1

    @testing.with_requires("numpy<2", "nowhere")
    def skipped():
        return 1

    @testing.without_requires("numpy")
    def not_beside():
        return 1

    assert runs() == 1
    for test, text in (skipped, "requires: numpy<2, nowhere"), (not_beside, "requires not to have installed: numpy"):
        with pytest.raises(unittest.SkipTest, match=text):
            test()


def test_helpers():
    with testing.patch("math.sqrt") as patched:
        import math
        assert math.sqrt(4) == 2 and patched.call_count == 1
    with pytest.raises(ValueError, match="nothing called"):
        testing.patch("math.nothing")
    with testing.assert_warns(DeprecationWarning):
        import warnings
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    with pytest.raises(AssertionError, match="UserWarning was expected"), testing.assert_warns(UserWarning):
        pass
    x = testing.generate_matrix((2, 3, 2), np.complex64, singular_values=[[3, 1], [2, 0.5]])
    assert x.dtype == np.complex64
    np.testing.assert_allclose(np.linalg.svd(x)[1], [[3, 1], [2, 0.5]], rtol=1e-5)
    with pytest.raises(ValueError, match="no negative values"):
        testing.generate_matrix((2, 2), singular_values=-1)
    with pytest.raises(ValueError, match="'use_tpu' is no parameter"):
        testing.BackendConfig({"use_tpu": True})
    assert testing.BackendConfig({"use_chainerx": True}).get_array(np.ones(1)).device.name == "native:0"
    with pytest.raises(ValueError, match="should be a test that takes"):
        testing.inject_backend_tests(["test_runs"], [{}])(LinearCase)
    testing.run_module("imported", __file__)


class Decay:
    """An exponential distribution with SciPy's methods, for one parameter or, where that is enough, for many."""

    def pdf(self, x, rate):
        return rate * np.exp(-rate * x)

    def logpdf(self, x, rate):
        return np.log(rate) - rate * x

    def cdf(self, x, rate):
        return 1 - np.exp(-rate * x)

    def ppf(self, q, rate):
        return -np.log1p(-q) / rate

    def mean(self, rate):
        return 1 / rate

    def rvs(self, size, rate):
        return np.random.exponential(1 / rate, size)


class DistributionCase(testing.distribution_unittest):
    shape, sample_shape, is_variable = (2, 1), (3,), True
    targets = ("batch_shape event_shape support cdf icdf mean prob log_prob sample").split()
    factor = 1.0

    def setUp_configure(self):
        rate = np.array([[2.0], [3.0]], "f")
        self.dist, self.scipy_dist = kusari.distributions.Exponential, Decay()
        self.params, self.scipy_params = {"lam": rate}, {"rate": rate * self.factor}
        self.test_targets, self.support = set(self.targets), "positive"

    def sample_for_test(self):
        return np.random.uniform(0.1, 2, (3, 2, 1)).astype("f")


@pytest.mark.parametrize("onebyone", [False, True])
def test_a_right_distribution_passes(onebyone):
    found = outcomes(type("Case", (DistributionCase,), {"scipy_onebyone": onebyone}))
    assert {name for name, outcome in found.items() if not outcome} == {
        f"test_{name}_cpu" for name in DistributionCase.targets}
    assert len(found) == 30


def test_a_wrong_distribution_is_found():
    found = outcomes(type("Case", (DistributionCase,), {"factor": 1.1}))
    assert {name for name, outcome in found.items() if "Not equal" in outcome} == {
        f"test_{name}_cpu" for name in ("cdf", "icdf", "mean", "prob", "log_prob", "sample")}
    unknown = outcomes(type("Case", (DistributionCase,), {"targets": ["median"]}))
    assert all("no target(s) of a test of distributions: median" in outcome for outcome in unknown.values()
               if outcome != "skipped")


def test_cases_of_another_kind_run_the_same_tests() -> None:
    class Case(testing.function_link.FunctionTestBase):
        generate_inputs, forward, forward_expected = (
            FunctionCase.generate_inputs, FunctionCase.forward, FunctionCase.forward_expected)
        contiguous_inputs: list[bool]

    case, config = Case(), testing.BackendConfig({"autotune": True})
    for run in case.run_test_forward, case.run_test_backward, case.run_test_double_backward:
        run(config)
        assert case.backend_config is config and case.test_name == run.__name__.removeprefix("run_")
    case.forward_expected = lambda inputs: (inputs[0], inputs[0])
    with pytest.raises(testing.FunctionTestError, match="output 0 has other values"):
        case.run_test_forward(config)


def test_errors_of_cases() -> None:
    testing.LinkTestError.check(True, "never")
    with pytest.raises(testing.LinkTestError, match="wrong"):
        testing.LinkTestError.check(0, "wrong")
    for kinds, error in ((AssertionError, testing.FunctionTestError), (KeyError, AssertionError)):
        with pytest.raises(error, match="3 is not 4") as caught:
            with testing.FunctionTestError.raise_if_fail("no backward", kinds):
                raise AssertionError("3 is not 4")
        assert type(caught.value) is error
    with pytest.raises(ValueError, match="expected initializer"):
        testing.InitializerArgument(0, None)
