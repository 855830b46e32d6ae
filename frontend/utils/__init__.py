"""Utilities that Chainer's users know by these names."""
from . import type_check
from .arrays import force_array, force_type
from .experimental import experimental

__all__ = ["experimental", "force_array", "force_type", "type_check"]
