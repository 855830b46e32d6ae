"""Tests of distributions against those of SciPy."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import numpy

from ..backends import cuda
from ..variable import Variable
from .array import assert_allclose

__all__ = ["distribution_unittest"]

# What SciPy calls a member, of distributions that have a density and of discrete ones.
_OF_POINTS = {"cdf": ("cdf", "cdf"), "icdf": ("ppf", "ppf"), "log_cdf": ("logcdf", "logcdf"),
              "log_prob": ("logpdf", "logpmf"), "log_survival": ("logsf", "logsf"), "prob": ("pdf", "pmf"),
              "survival": ("sf", "sf")}
_OF_NOTHING = {"entropy": "entropy", "mean": "mean", "stddev": "std", "variance": "var"}
_OURS = {"log_survival": "log_survival_function", "survival": "survival_function"}
_GIVEN = ("batch_shape", "event_shape", "support")
_SAMPLES = 100000


class distribution_unittest(unittest.TestCase):
    """The base of a test case for a distribution, whose members are compared with those of one of SciPy's.

    ``setUp_configure`` sets ``dist``, the class; ``params``, a dictionary of arrays; ``scipy_dist`` and
    ``scipy_params``; ``test_targets``, a set of names of members: batch_shape, cdf, entropy, event_shape, icdf,
    log_cdf, log_prob, log_survival, mean, prob, sample, stddev, support, survival, variance; and where they are not
    the ones that follow, ``event_shape`` = ``()``, ``support`` = ``"real"``, ``continuous`` = True and ``options`` =
    ``{}``, more arguments of the class. ``shape`` is that of a batch, ``sample_shape`` that of samples,
    ``is_variable`` whether parameters are Variables; often they are parameters of the test. ``sample_for_test()``
    gives the array of points at which members are compared. ``scipy_onebyone`` is True if SciPy's distribution takes
    no arrays of parameters. A test case may override ``check_log_prob(is_gpu)`` and the like.

    Raises:
        ValueError: in ``setUp``: there is no such target.
    """

    scipy_onebyone = False
    event_shape: tuple[int, ...] = ()
    dist: Any
    params: dict[str, Any]
    scipy_dist: Any
    scipy_params: dict[str, Any]
    shape: tuple[int, ...]
    sample_shape: tuple[int, ...]
    is_variable: bool
    setUp_configure: Callable[[], None]
    sample_for_test: Callable[[], Any]

    def setUp(self) -> None:
        self.support = "real"
        self.continuous = True
        self.test_targets: set[str] = set()
        self.options: dict[str, Any] = {}
        self.setUp_configure()
        unknown = self.test_targets - {*_OF_POINTS, *_OF_NOTHING, *_GIVEN, "sample"}
        if unknown:
            raise ValueError(f"no target(s) of a test of distributions: {', '.join(sorted(unknown))}")
        if self.is_variable:
            self.params = {name: Variable(value) for name, value in self.params.items()}

    @property
    def cpu_dist(self) -> Any:
        """The distribution on NumPy's arrays."""
        return self.dist(**self.params, **self.options)

    @property
    def gpu_dist(self) -> Any:
        """The distribution on arrays of the GPU."""
        return self.dist(**{name: Variable(cuda.to_gpu(value.array)) if self.is_variable else cuda.to_gpu(value)
                            for name, value in self.params.items()}, **self.options)

    def scipy_onebyone_params_iter(self) -> Any:
        """Yield SciPy's parameters for each distribution of the batch."""
        for index in numpy.ndindex(self.shape):
            yield {name: value[index] for name, value in self.scipy_params.items()}

    def _distribution(self, is_gpu: bool) -> Any:
        return self.gpu_dist if is_gpu else self.cpu_dist

    def _expected(self, member: str, points: Any = None) -> Any:
        """SciPy's values of a member, of the shape of the batch, or of that of the points."""
        function = getattr(self.scipy_dist, member)
        if not self.scipy_onebyone:
            return function(**self.scipy_params) if points is None else function(points, **self.scipy_params)
        each = list(self.scipy_onebyone_params_iter())
        if points is None:
            values = [numpy.asarray(function(**params)) for params in each]
            return numpy.stack(values).reshape(self.shape + values[0].shape) if values else numpy.zeros(self.shape)
        lead = points.ndim - len(self.shape) - len(self.event_shape)
        flat = points.reshape((*points.shape[:lead], len(each), *self.event_shape))
        values = [function(numpy.take(flat, k, lead), **params) for k, params in enumerate(each)]
        return numpy.stack(values, -1).reshape(points.shape[:lead] + self.shape)

    def _check_points(self, name: str, is_gpu: bool) -> None:
        at = (numpy.random.uniform(1e-5, 1 - 1e-5, self.sample_shape + self.shape).astype(numpy.float32)
              if name == "icdf" else self.sample_for_test())
        found = getattr(self._distribution(is_gpu), _OURS.get(name, name))(cuda.to_gpu(at) if is_gpu else at)
        assert_allclose(found, self._expected(_OF_POINTS[name][not self.continuous], at))

    def _check_value(self, name: str, is_gpu: bool) -> None:
        assert_allclose(getattr(self._distribution(is_gpu), name), self._expected(_OF_NOTHING[name]))

    def _check_given(self, name: str, is_gpu: bool) -> None:
        expected = self.shape if name == "batch_shape" else getattr(self, name)
        self.assertEqual(getattr(self._distribution(is_gpu), name), expected)

    def check_sample(self, is_gpu: bool) -> None:
        """Compare shape, means and variances of samples."""
        found = self._distribution(is_gpu).sample(sample_shape=(_SAMPLES, *self.sample_shape))
        lead = (_SAMPLES, *self.sample_shape)
        self.assertEqual(found.shape, lead + self.shape + self.event_shape)
        array = cuda.to_cpu(found.array).astype(float)
        if self.scipy_onebyone:
            each = [self.scipy_dist.rvs(size=lead, **params).reshape(lead + self.event_shape)
                    for params in self.scipy_onebyone_params_iter()]
            theirs = numpy.stack(each, len(lead)).reshape(found.shape)
        else:
            theirs = self.scipy_dist.rvs(size=found.shape, **self.scipy_params)
        for moment in (numpy.mean, numpy.var):
            assert_allclose(moment(array, axis=0), moment(theirs, axis=0), atol=3e-2, rtol=3e-2)


def _add_tests(name: str, check: Callable[..., None] | None) -> None:
    """Add ``check_name``, if ``check`` is one for several names, and the tests that call it."""
    def checked(self: Any, is_gpu: bool) -> None:
        assert check is not None
        check(self, name, is_gpu)

    def run(self: Any, is_gpu: bool) -> None:
        if name not in self.test_targets:
            self.skipTest(f"{name!r} is not among test_targets")
        if is_gpu and not cuda.available:
            self.skipTest("there is no GPU")
        getattr(self, f"check_{name}")(is_gpu)
    if check is not None:
        setattr(distribution_unittest, f"check_{name}", checked)
    setattr(distribution_unittest, f"test_{name}_cpu", lambda self: run(self, False))
    setattr(distribution_unittest, f"test_{name}_gpu", lambda self: run(self, True))


for _names, _check in ((_OF_POINTS, distribution_unittest._check_points),
                       (_OF_NOTHING, distribution_unittest._check_value),
                       (_GIVEN, distribution_unittest._check_given), (("sample",), None)):
    for _name in _names:
        _add_tests(_name, _check)
