"""Utilities that Chainer's users know by these names."""
from . import argument, type_check
from .arrays import force_array, force_type
from .conv import get_conv_outsize, get_deconv_outsize
from .experimental import experimental
from .sparse import CooMatrix, get_order, to_coo
from .walker_alias import WalkerAlias

__all__ = [
    "CooMatrix", "WalkerAlias", "argument", "experimental", "force_array", "force_type", "get_conv_outsize",
    "get_deconv_outsize", "get_order", "to_coo", "type_check",
]
