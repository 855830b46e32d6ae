"""Kernels of Winograd's algorithm as LLVM IR for constant shapes: two of each convolution."""
from __future__ import annotations

from kusari.ir import Kernel

from ....target import Target
from .gradient import Gradient
from .images import Images
from .launches import launches
from .maps import Maps
from .spec import WinogradSpec

_WRITERS: dict[str, type[Images] | type[Maps] | type[Gradient]] = {"tiles": Images, "maps": Maps, "gradient": Gradient}


def winograd_kernel(spec: WinogradSpec, target: Target, number: int) -> Kernel:
    """The kernel of launch ``number``, 0 or 1."""
    writer = _WRITERS[spec.way](launches(spec)[number].spec, target, number)
    return writer.second() if number else writer.first()
