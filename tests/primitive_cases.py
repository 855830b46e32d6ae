"""Shapes of primitives, for the tests of all machines' kernels."""
from __future__ import annotations

POOLINGS: dict[str, dict[str, tuple[int, ...]]] = {
    "resnet": dict(size=(16, 16), kernel=(3, 3), stride=(2, 2), pad=(1, 1), out=(8, 8)),
    "covers all": dict(size=(8, 9), kernel=(3, 3), stride=(2, 2), pad=(0, 0), out=(4, 4)),
    "wide": dict(size=(5, 40), kernel=(2, 3), stride=(1, 1), pad=(1, 2), out=(6, 42)),
    "leaves out": dict(size=(11, 12), kernel=(2, 2), stride=(3, 3), pad=(0, 0), out=(3, 4)),
    "1-d": dict(size=(30,), kernel=(5,), stride=(3,), pad=(2,), out=(10,)),
    "3-d": dict(size=(5, 4, 6), kernel=(3, 2, 2), stride=(2, 1, 2), pad=(1, 0, 1), out=(3, 3, 4)),
    "large windows": dict(size=(12, 12), kernel=(7, 7), stride=(2, 2), pad=(3, 3), out=(6, 6)),
}
SCANS = [((5,), 0), ((1,), 0), ((0,), 0), ((1000,), 0), ((37, 16), 1), ((16, 37), 1), ((3, 5), 1), ((33, 100), -1),
          ((7, 3), 0), ((50, 300), 0), ((4, 9, 17), 1), ((40, 2, 1), 1), ((2, 1, 5), 1), ((3, 4, 5, 2), 0),
          ((2, 130), 0), ((5, 0), 0), ((18, 1), 1)]
