"""The constants of Chainer's module ``memory_layouts``; arrays of Kusari only have the layout that None stands for."""
from __future__ import annotations

CUDNN_CHANNEL_FIRST_X = None
CUDNN_CHANNEL_FIRST_W = None
CUDNN_CHANNEL_LAST_X = "CUDNN_CHANNEL_LAST_X"
CUDNN_CHANNEL_LAST_W = "CUDNN_CHANNEL_LAST_W"
