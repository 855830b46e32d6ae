"""Test cases of functions and links: values, gradients and second derivatives, and initial values."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy

from .. import gradient_check
from ..backends.cuda import array_to_cpu
from ..initializers import _get_initializer
from ..link import Link
from ..variable import Variable
from .array import _as_noncontiguous_array, assert_allclose
from .backend import BackendConfig

__all__ = ["FunctionTestCase", "FunctionTestError", "InitializerArgument", "LinkInitializersTestCase", "LinkTestCase",
           "LinkTestError"]

_TRIES = 20  # to find inputs where a function has a derivative


class _CaseError(AssertionError):
    """A test case has found something wrong."""

    @classmethod
    def check(cls, expr: Any, message: str) -> None:
        """Raise this error unless a condition holds."""
        if not expr:
            cls.fail(message)

    @classmethod
    def fail(cls, message: str, exc: BaseException | None = None) -> NoReturn:
        """Raise this error, perhaps because of another one."""
        raise cls(message if exc is None else f"{message}: {type(exc).__name__}: {exc}") from exc

    @classmethod
    @contextmanager
    def raise_if_fail(
        cls, message: str, error_types: type[Exception] | tuple[type[Exception], ...] = AssertionError
    ) -> Iterator[None]:
        """Raise this error where the block raises one of some kinds, by default an AssertionError."""
        try:
            yield
        except error_types as error:
            cls.fail(message, error)


class FunctionTestError(_CaseError):
    """A test case of a function has found something wrong."""


class LinkTestError(_CaseError):
    """A test case of a link has found something wrong."""


class _Case:
    """The base of all cases: their device, and the arguments of the function."""

    __test__ = False  # pytest: not a test where it is imported, but classes derived from it are

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__test__ = cls.__module__ != __name__

    backend_config: BackendConfig | None = None
    test_name: str
    contiguous: str | None = None
    error: type[_CaseError] = _CaseError

    def before_test(self, test_name: str) -> None:
        """Called before each test; may raise ``unittest.SkipTest``."""

    def _begin(self, name: str, config: BackendConfig | None, skip: bool = False) -> None:
        if skip:
            raise unittest.SkipTest(f"{name} is switched off")
        self.backend_config = self._config = BackendConfig({}) if config is None else config
        self.test_name = name
        self.before_test(name)

    def _arrays(self, arrays: Any, what: str, none: bool = False) -> tuple[Any, ...]:
        """Return the result of a method of the case, if it is a tuple of arrays."""
        if not isinstance(arrays, tuple) or not all(
                isinstance(a, (numpy.ndarray, numpy.generic)) or (none and a is None) for a in arrays):
            raise self.error(f"{what} should return a tuple of arrays, got {_kinds(arrays)}")
        return tuple([a if a is None else numpy.asarray(a) for a in arrays])

    def _sent(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of the arrays on the device, laid out as the case says."""
        return self._laid_out([self._config.get_array(None if a is None else a.copy()) for a in arrays])

    def _laid_out(self, arrays: Iterable[Any]) -> tuple[Any, ...]:
        """The arrays, but with elements that are not contiguous unless the case says so."""
        arrays = tuple(arrays)
        return arrays if self.contiguous == "C" else _as_noncontiguous_array(arrays)

    def _called(self, call: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Outputs of the function or link under test."""
        with self._config:
            outputs = call(*inputs)
        if not isinstance(outputs, tuple) or not all(isinstance(y, Variable) for y in outputs):
            raise self.error(f"forward should return a tuple of Variables, got {_kinds(outputs)}")
        return outputs

    def check_forward_outputs(self, outputs: tuple[Any, ...], expected_outputs: tuple[Any, ...]) -> None:
        """Compare outputs with those expected; an override may check more."""
        if len(outputs) != len(expected_outputs):
            raise self.error(f"forward gives {len(outputs)} outputs, {len(expected_outputs)} are expected")
        for i, (y, expected) in enumerate(zip(outputs, expected_outputs, strict=True)):
            found, wanted = (f"{a.dtype}{tuple(a.shape)}" for a in (y, expected))
            if found != wanted:
                raise self.error(f"output {i} is {found}, expected is {wanted}")
            try:
                assert_allclose(y, expected, **(self.check_forward_options or {}))
            except AssertionError as error:
                raise self.error(f"output {i} has other values than expected: {error}") from error

    check_forward_options: dict[str, Any] | None = None
    check_backward_options: dict[str, Any] | None = None
    check_double_backward_options: dict[str, Any] | None = None
    skip_forward_test = False
    skip_backward_test = False
    dodge_nondifferentiable = False
    numerical_grad_dtype: Any = numpy.float64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Each test has its own, as setUp may add to them.
        self.check_forward_options = dict(self.check_forward_options or {})
        self.check_backward_options = dict(self.check_backward_options or {})
        self.check_double_backward_options = dict(self.check_double_backward_options or {})
        super().__init__(*args, **kwargs)

    def generate_inputs(self) -> tuple[Any, ...]:
        """Return a tuple of arrays; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define generate_inputs")

    def generate_grad_outputs(self, outputs_template: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return gradients of the outputs, or None for one that has none; drawn from [-1, 1)."""
        return tuple([_drawn(a) for a in outputs_template])

    def _expected(self, outputs: Any, inputs: tuple[Any, ...], before: tuple[Any, ...]) -> tuple[Any, ...]:
        for i, (x, old) in enumerate(zip(inputs, before, strict=True)):
            if not numpy.array_equal(x, old, equal_nan=x.dtype.kind in "fc"):
                raise self.error(f"forward_expected should leave its inputs alone, but has changed input {i}")
        return self._arrays(outputs, "forward_expected")

    def _options(self, given: dict[str, Any] | None) -> dict[str, Any]:
        return {"dtype": self.numerical_grad_dtype, "detect_nondifferentiable": self.dodge_nondifferentiable,
                **(given or {})}  # fmt: skip

    def _differentiated(self, once: Callable[[], None]) -> None:
        """Check gradients, with other inputs where there is a kink."""
        for left in reversed(range(_TRIES if self.dodge_nondifferentiable else 1)):
            try:
                return once()
            except gradient_check.NondifferentiableError as error:
                if not left:
                    raise self.error(f"{_TRIES} times there was no derivative: {error}") from error
            except self.error:
                raise
            except AssertionError as error:
                raise self.error(f"{self.test_name} failed: {error}") from error
        return None


class FunctionTestBase(_Case):
    """The tests of `FunctionTestCase`, to be called by tests of another kind: ``run_test_forward(backend_config)``."""

    error = FunctionTestError
    skip_double_backward_test = False

    def forward(self, inputs: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """Apply the function to Variables and return a tuple of Variables; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define forward")

    def forward_expected(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a tuple of the arrays that are expected; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define forward_expected")

    def generate_grad_grad_inputs(self, inputs_template: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what the gradients of the inputs are multiplied by, or None; drawn from [-1, 1)."""
        return tuple([_drawn(a) for a in inputs_template])

    def _forward(self, *inputs: Any) -> Any:
        return self._called(lambda *xs: self.forward(xs, self._config.device), inputs)

    def _inputs(self) -> tuple[Any, ...]:
        return self._arrays(self.generate_inputs(), "generate_inputs")

    def _grad_outputs(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        outputs = self._forward(*[Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs])
        templates = tuple([_template(y) for y in outputs])
        return self._sent(self._arrays(self.generate_grad_outputs(templates), "generate_grad_outputs", True))

    def run_test_forward(self, backend_config: BackendConfig | None = None) -> None:
        """The values are those expected, and the inputs are left alone."""
        self._begin("test_forward", backend_config, self.skip_forward_test)
        given = self._inputs()
        inputs = self._sent(given)
        outputs = self._forward(*[Variable(x, requires_grad=x.dtype.kind == "f") for x in inputs])
        for i, (x, old) in enumerate(zip(inputs, given, strict=True)):
            if not numpy.array_equal(array_to_cpu(x), old, equal_nan=old.dtype.kind in "fc"):
                raise self.error(f"forward should leave its inputs alone, but has changed input {i}")
        before, given = given, self._laid_out([x.copy() for x in given])
        expected = self._expected(self.forward_expected(given), given, before)
        self.check_forward_outputs(tuple([y.array for y in outputs]), expected)

    def run_test_backward(self, backend_config: BackendConfig | None = None) -> None:
        """Gradients are what differences are."""
        self._begin("test_backward", backend_config, self.skip_backward_test)

        def once() -> None:
            inputs = self._sent(self._inputs())
            gradient_check.check_backward(
                self._forward, inputs, self._grad_outputs(inputs), **self._options(self.check_backward_options))

        self._differentiated(once)

    def run_test_double_backward(self, backend_config: BackendConfig | None = None) -> None:
        """Gradients of gradients are what differences are."""
        self._begin("test_double_backward", backend_config, self.skip_double_backward_test)

        def once() -> None:
            inputs = self._sent(self._inputs())
            gys = self._grad_outputs(inputs)
            ggs = self._sent(self._arrays(self.generate_grad_grad_inputs(tuple(map(array_to_cpu, inputs))),
                                          "generate_grad_grad_inputs", True))  # fmt: skip
            gradient_check.check_double_backward(
                self._forward, inputs, gys, ggs, **self._options(self.check_double_backward_options))

        self._differentiated(once)


class FunctionTestCase(FunctionTestBase, unittest.TestCase):
    """Tests of a function: values, gradients, second derivatives.

    A case defines `forward`, `forward_expected` and `generate_inputs`, and may override the other methods without an
    underscore. `inject_backend_tests` runs it on several devices; without it is run on the CPU.

    Attributes:
        skip_forward_test, skip_backward_test, skip_double_backward_test: Tests that are left out.
        dodge_nondifferentiable: Whether to draw other inputs where the function has a kink.
        numerical_grad_dtype: Floating point type in which gradients are compared with differences.
        contiguous: ``"C"`` for arrays that are contiguous; by default they are not.
        check_forward_options, check_backward_options, check_double_backward_options: Keyword arguments of
            `assert_allclose`, `check_backward` and `check_double_backward`.
        test_name, backend_config: Set before each test: its name, and where it runs.

    >>> import unittest
    >>> class TestSquare(kusari.testing.FunctionTestCase):
    ...     def generate_inputs(self):
    ...         return (np.random.uniform(-1, 1, (2, 3)).astype("float32"),)
    ...     def forward(self, inputs, device):
    ...         return (inputs[0] * inputs[0],)
    ...     def forward_expected(self, inputs):
    ...         return (np.square(inputs[0]),)
    >>> unittest.defaultTestLoader.loadTestsFromTestCase(TestSquare).run(unittest.TestResult())
    <unittest.result.TestResult run=3 errors=0 failures=0>
    """

    def test_forward(self, backend_config: BackendConfig | None = None) -> None:
        """The values are those expected, and the inputs are left alone."""
        self.run_test_forward(backend_config)

    def test_backward(self, backend_config: BackendConfig | None = None) -> None:
        """Gradients are what differences are."""
        self.run_test_backward(backend_config)

    def test_double_backward(self, backend_config: BackendConfig | None = None) -> None:
        """Gradients of gradients are what differences are."""
        self.run_test_double_backward(backend_config)


class _LinkCase(_Case):
    """The base of cases of links."""

    error = LinkTestError
    param_names: Any = ()

    def generate_params(self) -> tuple[Any, ...]:
        """Return initializers, one for each argument of the link that takes one; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define generate_params")

    def create_link(self, initializers: tuple[Any, ...]) -> Any:
        """Return a link with these initializers; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define create_link")

    def forward(self, link: Any, inputs: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """Call the link with Variables and return a tuple of Variables."""
        outputs = link(*inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _outputs(self, link: Any, *inputs: Any) -> tuple[Any, ...]:
        return self._called(lambda *xs: self.forward(link, xs, self._config.device), inputs)

    def _link(self, initializers: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """A link on the device whose parameters are there, as it has seen inputs; and these inputs."""
        link = self.create_link(initializers)
        if not isinstance(link, Link):
            raise TypeError(f"create_link should return a link, got {type(link).__name__}")
        for name in self.param_names:
            if not hasattr(link, name):
                raise self.error(f"{type(link).__name__} has no parameter {name!r}, which param_names lists")
        link.to_device(self._config.device)
        given = self._arrays(self.generate_inputs(), "generate_inputs")
        if any(p.array is None for p in link.params()):
            self._outputs(link, *[Variable(x) for x in self._sent(given)])
        return link, given

    def _generated(self) -> tuple[Any, ...]:
        params = self.generate_params()
        if not isinstance(params, (tuple, list)):
            raise self.error(f"generate_params should return a tuple, got {_kinds(params)}")
        for param in params:
            _check_initializer(param)
        return tuple(params)


class LinkTestCase(_LinkCase, unittest.TestCase):
    """Tests of a link: values, and gradients of inputs and parameters.

    A case defines `generate_params`, `create_link`, `generate_inputs`, `forward_expected`, and `forward` where the link
    takes or returns something else than Variables. The attributes are those of `FunctionTestCase`, and ``param_names``,
    the names of the parameters whose gradients are checked.

    >>> class TestScale(kusari.testing.LinkTestCase):
    ...     param_names = ("W",)
    ...     def generate_params(self):
    ...         return (np.random.uniform(-1, 1, 3).astype("float32"),)
    ...     def create_link(self, initializers):
    ...         link = L.Scale(1, (3,))
    ...         link.W.array[...] = initializers[0]
    ...         return link
    ...     def generate_inputs(self):
    ...         return (np.random.uniform(-1, 1, (2, 3)).astype("float32"),)
    ...     def forward_expected(self, link, inputs):
    ...         return (inputs[0] * link.W.array,)
    >>> TestScale("test_forward").debug(), TestScale("test_backward").debug()
    (None, None)
    """

    def forward_expected(self, link: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a tuple of the arrays that are expected of the link, which is on the CPU; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define forward_expected")

    def test_forward(self, backend_config: BackendConfig | None = None) -> None:
        """The values are those expected."""
        self._begin("test_forward", backend_config, self.skip_forward_test)
        link, given = self._link(self._generated())
        outputs = self._outputs(link, *[Variable(x) for x in self._sent(given)])
        link.to_device("@numpy")
        before = tuple([x.copy() for x in given])
        expected = self._expected(self.forward_expected(link, given), given, before)
        self.check_forward_outputs(tuple([y.array for y in outputs]), expected)

    def test_backward(self, backend_config: BackendConfig | None = None) -> None:
        """Gradients are what differences are."""
        self._begin("test_backward", backend_config, self.skip_backward_test)

        def once() -> None:
            link, given = self._link(self._generated())
            inputs = self._sent(given)
            outputs = self._outputs(link, *[Variable(x) for x in inputs])
            templates = tuple([_template(y) for y in outputs])
            gys = self._sent(self._arrays(self.generate_grad_outputs(templates), "generate_grad_outputs", True))
            gradient_check.check_backward(
                lambda *xs: self._outputs(link, *xs), inputs, gys, tuple([getattr(link, n) for n in self.param_names]),
                **self._options(self.check_backward_options))

        self._differentiated(once)


class InitializerArgument:
    """An argument of a link and the initializer that it stands for, such as None and zero."""

    def __init__(self, argument_value: Any, expected_initializer: Any) -> None:
        if expected_initializer is None:
            raise ValueError("the expected initializer cannot be None")
        _check_initializer(expected_initializer)
        self.argument_value = argument_value
        self.expected_initializer = expected_initializer


class LinkInitializersTestCase(_LinkCase, unittest.TestCase):
    """Tests of what initializers make of a link's parameters.

    A case defines `generate_params`, `create_link`, `generate_inputs` and `get_initializers`, and ``param_names``, one
    parameter for each initializer.
    """

    check_initializers_options: dict[str, Any] | None = None

    def get_initializers(self) -> Any:
        """Return for each argument a list of what to try, initializers or `InitializerArgument`; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_initializers")

    def test_initializers(self, backend_config: BackendConfig | None = None) -> None:
        """Parameters have the values that initializers say, one after the other."""
        self._begin("test_initializers", backend_config)
        for i, (name, tried) in enumerate(zip(self.param_names, self.get_initializers(), strict=True)):
            for one in tried:
                if not isinstance(one, InitializerArgument):
                    _check_initializer(one)
                argument = one if isinstance(one, InitializerArgument) else InitializerArgument(one, one)
                initializers = list(self._generated())
                initializers[i] = argument.argument_value
                link, _ = self._link(tuple(initializers))
                found = getattr(link, name).array
                expected = numpy.empty(found.shape, found.dtype)
                _get_initializer(argument.expected_initializer)(expected)
                try:
                    assert_allclose(found, expected, **(self.check_initializers_options or {}))
                except AssertionError as error:
                    raise self.error(f"{name} has other values than {one!r} gives: {error}") from error


def _check_initializer(x: Any) -> None:
    if x is not None and not (callable(x) or isinstance(x, (numpy.ndarray, int, float))):
        raise TypeError(f"an initializer should be a callable, an array or a number, got {x!r}")


def _template(y: Any) -> Any:
    return numpy.empty(y.shape, y.dtype)


def _drawn(template: Any) -> Any:
    """Numbers from [-1, 1) like a template; None where it has no gradients."""
    if template.dtype.kind != "f":
        return None
    return numpy.asarray(numpy.random.uniform(-1, 1, template.shape)).astype(template.dtype)


def _kinds(value: Any) -> str:
    inside = f" of {', '.join(type(v).__name__ for v in value)}" if isinstance(value, tuple) else ""
    return type(value).__name__ + inside
