"""The libraries that ``side_by_side.py`` measures: ``on_….py``, each with ``build``, ``threads``, ``version``.

``build(case)`` returns ``step(i)``, one complete step, and ``value(i, result)``, the number by which libraries are
compared: the loss, or the mean magnitude of what inference returns. Nothing newer than Python 3.9.
"""

from __future__ import annotations

VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "kusari": {"eager": ("train", "infer"), "static": ("train", "infer"), "static step": ("train",),
               "whole step": ("train",)},
    "chainer": {"eager": ("train", "infer"), "static": ("train", "infer")},
    "torch": {"eager": ("train", "infer"), "compile": ("train", "infer"), "compile step": ("train",)},
    "jax": {"jit": ("train", "infer")},
    "onnxruntime": {"": ("infer",)},
}
"""Library, variant, and the phases it has."""
