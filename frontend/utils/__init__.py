"""Utilities that Chainer's users know by these names."""
import contextlib
from collections import abc as collections_abc
from collections.abc import Iterator
from typing import Any

from . import argument, type_check
from .arrays import force_array, force_type, size_of_shape, sum_to
from .conv import get_conv_outsize, get_deconv_outsize
from .experimental import experimental
from .final import enable_final, final
from .nondeterministic import nondeterministic
from .sparse import CooMatrix, get_order, to_coo
from .walker_alias import WalkerAlias


@contextlib.contextmanager
def tempdir(**kwargs: Any) -> Iterator[str]:
    """Context with a folder that is removed in the end; for the arguments see ``tempfile.mkdtemp``."""
    import shutil  # these two bring compressors along, which nothing else here needs
    import tempfile

    folder = tempfile.mkdtemp(**kwargs)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = [
    "CooMatrix", "WalkerAlias", "argument", "collections_abc", "enable_final", "experimental", "final", "force_array",
    "force_type", "get_conv_outsize", "get_deconv_outsize", "get_order", "nondeterministic", "size_of_shape", "sum_to",
    "tempdir", "to_coo", "type_check",
]
