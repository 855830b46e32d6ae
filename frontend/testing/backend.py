"""Tests that are run on several devices."""

from __future__ import annotations

import inspect
import string
import unittest
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from .. import backend
from ..backends import cuda
from ..configuration import using_config
from . import attr
from .parameterized import CASES

__all__ = ["BackendConfig", "inject_backend_tests"]

_CONFIGURED = {"use_cudnn": "never", "use_cudnn_tensor_core": "auto", "cudnn_deterministic": False,
               "cudnn_fast_batch_normalization": False, "autotune": False, "use_ideep": "never"}  # fmt: skip
_OTHERS = {"use_cuda": False, "cuda_device": None, "use_chainerx": False, "chainerx_device": None}


class BackendConfig:
    """Where a test is run: a device and the configuration that goes with it; a context that sets both.

    Args:
        params: ``use_cuda``, ``cuda_device``, ``use_chainerx``, ``chainerx_device``, and the entries of
            ``kusari.config`` that are about cuDNN and iDeep.

    Attributes:
        device: The device.
        xp: Its array module.

    Raises:
        ValueError: There is no such parameter.

    >>> with kusari.testing.BackendConfig({"use_cudnn": "never"}) as config:
    ...     config.device, kusari.config.use_cudnn
    (<CpuDevice (numpy)>, 'never')
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        known = {**_CONFIGURED, **_OTHERS}
        for name in params:
            if name not in known:
                raise ValueError(f"{name!r} is no parameter of a backend; there are {', '.join(sorted(known))}")
        self.params = dict(params)
        vars(self).update({**known, **params})
        self._entered: list[ExitStack] = []

    def __repr__(self) -> str:
        return f"<BackendConfig {', '.join(f'{k}={v!r}' for k, v in self.params.items())}>".replace(" >", ">")

    @property
    def missing(self) -> str | None:
        """Return the missing requirement of this configuration, or None."""
        wanted = self._get("use_cuda") or (self._get("chainerx_device") or "").startswith("cuda")
        if wanted and not cuda.available:
            return "CUDA"
        return None

    def _get(self, name: str) -> Any:
        return vars(self)[name]

    @property
    def device(self) -> Any:
        if self.missing:
            raise RuntimeError(f"{self.missing} is not available for {self!r}")
        if self._get("use_chainerx"):
            return backend.get_device(self._get("chainerx_device") or "native:0")
        return cuda.GpuDevice.from_device_id(self._get("cuda_device") or 0) if self._get("use_cuda") else (
            backend.CpuDevice())  # fmt: skip

    @property
    def xp(self) -> Any:
        return self.device.xp

    def get_array(self, np_array: Any) -> Any:
        """An array on the device; None stays None."""
        return None if np_array is None else self.device.send(np_array)

    def get_func_str(self) -> str:
        """The configuration as a part of a name: ``use_cuda_true__cuda_device_0`` and so on."""
        return "__".join(f"{name}_{str(value).lower() if isinstance(value, bool) else value}"
                         for name, value in vars(self).items() if name in _OTHERS or name in _CONFIGURED)

    def get_pytest_marks(self) -> list[Any]:
        """The marks of `testing.attr` for tests that are run here."""
        kind, _, number = (self._get("chainerx_device") or "native:0").partition(":")
        wanted = [attr.chainerx] if self._get("use_chainerx") else []
        if self._get("use_cuda") or self._get("use_chainerx") and kind == "cuda":
            card = int((number if self._get("use_chainerx") else self._get("cuda_device")) or 0)
            wanted += [attr.gpu, *([attr.cudnn] if self._get("use_cudnn") != "never" else []),
                       *([attr.multi_gpu(card + 1)] if card else [])]
        elif self._get("use_ideep") != "never":
            wanted.append(attr.ideep)
        return wanted

    def __enter__(self) -> BackendConfig:
        stack = ExitStack()
        stack.enter_context(backend.using_device(self.device))
        for name in _CONFIGURED:
            stack.enter_context(using_config(name, self._get(name)))
        self._entered.append(stack)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().close()


def inject_backend_tests(method_names: Sequence[str] | None, params: Sequence[Mapping[str, Any]]
                         ) -> Callable[[type], type]:  # fmt: skip
    """Run tests of a class, which take a ``backend_config``, once for each of several backends.

    Where a backend is not available, its tests are skipped. Applied twice, it gives tests that take a
    ``first_backend_config`` and a ``second_backend_config`` (or ``backend_config0`` and ``backend_config1``), all
    pairs.

    Args:
        method_names: The tests; None for all that take a ``backend_config``.
        params: What `BackendConfig` is made of, for each.

    Raises:
        ValueError: A test does not take a ``backend_config``.
    """
    configs = [BackendConfig(p) for p in params]

    def decorate(cls: type) -> type:
        for case in CASES.get(cls, [cls]):
            tests = [name for name in dir(case) if name.startswith("test") and getattr(case, name) is not None]
            takes = {name: wanted[-1] for name in tests if (wanted := _configs(case, name))}
            for name in takes if method_names is None else _named(method_names, tests):
                if name not in takes:
                    raise ValueError(f"{cls.__name__}.{name} should be a test that takes a backend_config")
                test = getattr(case, name)
                setattr(case, name, None)
                for i, config in enumerate(configs):
                    shown = ", ".join(f"{k}={v!r}" for k, v in config.params.items())
                    setattr(case, f"{name}_backend_{i}_{{{shown}}}", _test(test, config, takes[name]))
        return cls

    return decorate


def _named(methods: Sequence[str], tests: Sequence[str]) -> list[str]:
    """Return the tests of these names, or what such a decorator has made of them."""
    return [name for method in methods
            for name in [test for test in tests if test == method or test.startswith(f"{method}_backend_")] or [method]]


def _configs(case: type, name: str) -> list[str]:
    """Return the names of the configurations that a test still takes."""
    test = inspect.getattr_static(case, name)
    if not inspect.isfunction(test):
        return []
    return [one for one in inspect.signature(test).parameters if one == "_" or
            one.rstrip(string.digits).endswith("backend_config")]


def _test(test: Callable[..., Any], config: BackendConfig, argument: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if config.missing:
            raise unittest.SkipTest(f"{config.missing} is not available")
        return test(self, *args, **{**kwargs, argument: config})

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    vars(run).update(vars(test))  # marks of pytest
    shown = inspect.signature(test)
    given: Any = shown.replace(parameters=[p for p in shown.parameters.values() if p.name != argument])
    run.__signature__ = given  # type: ignore[attr-defined]
    return run
