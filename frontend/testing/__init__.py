"""Help for tests of functions, links, extensions and what can be saved."""
from . import attr, condition
from .array import assert_allclose
from .parameterized import parameterize, product, product_dict
from .serializer import save_and_load, save_and_load_hdf5, save_and_load_npz
from .training import get_trainer_with_mock_updater

__all__ = [
    "assert_allclose",
    "attr",
    "condition",
    "get_trainer_with_mock_updater",
    "parameterize",
    "product",
    "product_dict",
    "save_and_load",
    "save_and_load_hdf5",
    "save_and_load_npz",
]
