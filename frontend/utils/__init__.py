"""Utilities that Chainer's users know by these names."""
from . import type_check
from .arrays import force_array, force_type

__all__ = ["force_array", "force_type", "type_check"]
