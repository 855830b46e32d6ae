"""Help for tests of functions and links."""
from . import attr
from .array import assert_allclose

__all__ = ["assert_allclose", "attr"]
