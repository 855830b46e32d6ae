"""The two launches of a convolution by Winograd's algorithm; before the second one all threads have done the first."""
from __future__ import annotations

from dataclasses import dataclass, replace

from kusari.ir import Arg

from .spec import WinogradSpec


@dataclass(frozen=True)
class Launch:
    """A kernel: its specification as far as its text depends on it, and the positions of the factors that it reads.

    Its slots are those factors, those of the second kernel also the epilogue's operands and the outputs, and then
    scratch, which the second one finds as the first left it.
    """

    spec: WinogradSpec
    factors: tuple[int, ...]


def launches(spec: WinogradSpec) -> tuple[Launch, Launch]:
    """Return both launches. Convolutions that the first kernel cannot tell apart share it."""
    if spec.way == "gradient":
        return Launch(spec, (0, 1)), Launch(spec, ())
    plain = replace(spec, exprs=(Arg(0),), operands=())
    if spec.way == "maps":  # it transforms the tiles
        return Launch(replace(plain, transposed=False), (0,)), Launch(spec, (1,))
    weights = replace(plain, batch=1, height=3, width=3, pad=(0, 0, 0, 0))
    return Launch(weights, (1,)), Launch(spec, (0,))
