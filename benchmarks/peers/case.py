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
    ``trained`` are those of parameters. ``inputs`` are the arrays of the phase's input, ``labels`` the label sets,
    arrays each. ``optimizer`` is the name of Chainer's class and its hyperparameters.
    """

    model: str
    phase: str
    variant: str
    threads: int
    folder: Path
    sizes: dict[str, Any]
    weights: dict[str, Any]
    trained: tuple[str, ...]
    inputs: tuple[Any, ...]
    labels: list[tuple[Any, ...]]
    optimizer: str
    hyper: dict[str, Any]
    clip: float | None
    input_gradient: bool
    card: int | None = None

    @property
    def onnx(self) -> Path:
        """The exported model."""
        return self.folder / "model.onnx"


def save(folder: Path, weights: dict[str, Any], inputs: dict[str, Any], labels: list[Any], **facts: Any) -> None:
    """Write what ``load`` reads; ``inputs`` by phase."""
    arrays = {"w:" + path: array for path, array in weights.items()}
    for phase, given in inputs.items():
        arrays.update({f"{phase}:{i}": x for i, x in enumerate(given)})
    for k, labels_of in enumerate(labels):
        arrays.update({f"t:{k}:{i}": t for i, t in enumerate(labels_of)})
    np.savez(folder / "arrays.npz", **arrays)
    facts["counts"] = {phase: len(given) for phase, given in inputs.items()}
    facts["labels"] = [len(labels_of) for labels_of in labels]
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def load(model: str, phase: str, variant: str, threads: int, folder: Path, card: int | None = None) -> Case:
    """Read what ``on_kusari.prepare`` has written; ``card``: the number of the card that is measured, if one is."""
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    with np.load(folder / "arrays.npz") as arrays:
        weights = {name[2:]: arrays[name] for name in arrays.files if name.startswith("w:")}
        inputs = tuple(arrays[f"{phase}:{i}"] for i in range(facts["counts"][phase]))
        labels = [tuple(arrays[f"t:{k}:{i}"] for i in range(n)) for k, n in enumerate(facts["labels"])]
    return Case(model, phase, variant, threads, folder, facts["sizes"], weights, tuple(facts["trained"]), inputs,
                labels, facts["optimizer"], facts["hyper"], facts["clip"], facts["input_gradient"], card)


def magnitude(outputs: Any) -> float:
    """The mean magnitude of the elements of an output, or of several."""
    given = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    arrays = [y.get() if hasattr(y, "get") else np.asarray(y) for y in given]  # CuPy's on a card
    return float(sum(np.abs(y).sum(dtype=np.float64) for y in arrays) / sum(y.size for y in arrays))


def loss_value(i: int, result: Any) -> float:
    """The number of a training step that returns its loss."""
    return float(result)
