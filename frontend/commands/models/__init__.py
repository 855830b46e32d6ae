"""The models that ``python -m kusari bench`` and ``benchmarks/`` measure, written for the API of Chainer.

A model is a :class:`Chain` with ``forward`` and ``loss`` under one :func:`~.definition.model` line with its name,
sizes, optimizer and a function that makes its data. To add one, add such a class to one of these files (and, for
``benchmarks/side_by_side.py``, its entry in ``benchmarks/peers/torch_models.py`` and ``jax_models.py``).

Invariant: nothing newer than Python 3.9 and nothing that Chainer 7 lacks, for ``benchmarks/`` imports this package also
where ``kusari`` stands for Chainer.
"""

from __future__ import annotations

from . import dense, images, sequences
from .definition import MODELS, Model, compiled

__all__ = ["MODELS", "Model", "compiled", "dense", "images", "sequences"]
