"""Utilities that Chainer's users know by these names."""
from . import type_check
from .arrays import force_array, force_type
from .conv import get_conv_outsize, get_deconv_outsize
from .experimental import experimental
from .walker_alias import WalkerAlias

__all__ = [
    "WalkerAlias", "experimental", "force_array", "force_type", "get_conv_outsize", "get_deconv_outsize", "type_check",
]
