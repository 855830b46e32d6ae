"""What the peers run: one entry per model of ``python -m kusari bench``, with its definition for each library.

Weights, inputs, labels and the optimizer's settings are Kusari's own (``frontend/commands/models.py``) and are handed
to the peers; here stands only the network and its loss, in each library's own words. To add a model, add it there and
one entry here. Nothing newer than Python 3.9, for the peers' interpreters read this.
"""

from __future__ import annotations

from . import mlp
from .definition import Definition

__all__ = ["MODELS", "Definition"]

MODELS: dict[str, Definition] = {
    "mushroom_mlp": mlp.definition((22, 44, 44, 1), binary=True),
    "mnist_mlp": mlp.definition((784, 1000, 1000, 10), binary=False),
}
