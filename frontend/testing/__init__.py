"""Help for tests of functions, links, extensions and what can be saved."""
from . import attr, condition
from .array import assert_allclose
from .backend import BackendConfig, inject_backend_tests
from .distribution_test import distribution_unittest
from .function_link import (
    FunctionTestCase,
    FunctionTestError,
    InitializerArgument,
    LinkInitializersTestCase,
    LinkTestCase,
    LinkTestError,
)
from .helper import assert_warns, generate_matrix, patch, run_module, with_requires, without_requires
from .parameterized import from_pytest_parameterize, parameterize, parameterize_pytest, product, product_dict
from .random import fix_random, generate_seed
from .serializer import save_and_load, save_and_load_hdf5, save_and_load_npz
from .training import get_trainer_with_mock_updater
from .unary_math_function_test import unary_math_function_unittest

__all__ = [
    "BackendConfig",
    "FunctionTestCase",
    "FunctionTestError",
    "InitializerArgument",
    "LinkInitializersTestCase",
    "LinkTestCase",
    "LinkTestError",
    "assert_allclose",
    "assert_warns",
    "attr",
    "condition",
    "distribution_unittest",
    "fix_random",
    "from_pytest_parameterize",
    "generate_matrix",
    "generate_seed",
    "get_trainer_with_mock_updater",
    "inject_backend_tests",
    "parameterize",
    "parameterize_pytest",
    "patch",
    "product",
    "product_dict",
    "run_module",
    "save_and_load",
    "save_and_load_hdf5",
    "save_and_load_npz",
    "unary_math_function_unittest",
    "with_requires",
    "without_requires",
]
