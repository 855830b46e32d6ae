"""One measurement's model, weights and data, as Kusari has written them into a folder for everybody."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """What a peer needs to build its step.

    ``weights`` are in Chainer's layout and keyed by Chainer's paths (``l1/W``), persistent arrays included;
    ``trained`` are those of parameters. ``optimizer`` is the name of Chainer's class and its hyperparameters.
    """

    model: str
    phase: str
    variant: str
    threads: int
    folder: Path
    weights: dict[str, Any]
    trained: tuple[str, ...]
    x: Any
    labels: list[Any]
    optimizer: str
    hyper: dict[str, Any]

    @property
    def onnx(self) -> Path:
        """The exported model."""
        return self.folder / "model.onnx"


def load(model: str, phase: str, variant: str, threads: int, folder: Path) -> Case:
    """Read what ``on_kusari.prepare`` has written."""
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    with np.load(folder / "arrays.npz") as arrays:
        weights = {name[2:]: arrays[name] for name in arrays.files if name.startswith("w:")}
        labels = [arrays[f"t:{i}"] for i in range(facts["labels"])]
        x = arrays["x"]
    return Case(model, phase, variant, threads, folder, weights, tuple(facts["trained"]), x, labels,
                facts["optimizer"], facts["hyper"])


def magnitude(y: Any) -> float:
    """The mean magnitude of an output."""
    return float(np.abs(np.asarray(y)).mean())


def loss_value(i: int, result: Any) -> float:
    """The number of a training step that returns its loss."""
    return float(result)
