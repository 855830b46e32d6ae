"""Every link: exported in old and new opsets, in test and in training mode, equal to define-by-run."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from links.every_link import CASES, LABELS, X
from opsets import NEWEST

import kusari
import kusari.links as L
import kusari.onnx

LIMITS = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
WITHOUT = {"NegativeSampling", "BlackOut"}  # any form: samplers are any code
LOSSES = {"BinaryHierarchicalSoftmax", "CRF1d", "Classifier"}
TESTED = {"DecorrelatedBatchNormalization"}  # only: ONNX has no operator for what it does in training
FIXED = {"Parameter"}  # has an array of the batch's size


def exported(name: str, opset: int, train: bool = False, axis: int | None = None) -> Any:
    make, arrays = CASES[name]
    np.random.seed(0)
    made = make()
    link = made[0] if isinstance(made, tuple) else made
    dynamic = None if axis is None else {f"Input_{i}": {axis: "N"} for i in range(len(arrays))}
    return kusari.onnx.export(link, arrays, opset_version=opset, train=train, dynamic_shapes=dynamic)


@pytest.mark.filterwarnings("ignore:(?s).*Could not find an implementation for RandomUniformLike")
@pytest.mark.parametrize("name", CASES)
def test_link(name: str) -> None:
    assert exported(name, 9).graph.initializer and exported(name, NEWEST).graph.initializer
    if name in TESTED:
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError):
            exported(name, 18, True)
    else:
        exported(name, 18, True)
    if name not in FIXED:
        made = exported(name, 18, axis=int(name.startswith("NStep")))
        assert "N" in [d.dim_param for d in made.graph.output[0].type.tensor_type.shape.dim] or name in LOSSES


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_losses_that_draw_from_a_sampler(name: str) -> None:
    link = getattr(L, name)(4, [3, 1, 2, 5], 2)
    with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match="DrawSamples"):
        kusari.onnx.export(link, [X, LABELS])
    assert f"`{name}`" in LIMITS


@pytest.mark.slow
def test_a_whole_network() -> None:
    x = np.sin(np.arange(3 * 224 * 224)).reshape(1, 3, 224, 224).astype(np.float32) * 50
    made: Any = kusari.onnx.export(L.GoogLeNet(None), x, opset_version=13)
    assert [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim] == [1, 1000]


def test_all_links_are_here() -> None:
    public = {name for name, kind in vars(L).items() if isinstance(kind, type) and issubclass(kind, kusari.Link)
              and ".vision." not in kind.__module__}  # whole networks: tests/links/test_vision.py
    assert public == CASES.keys() | WITHOUT | {"TheanoFunction"}  # which cannot be made
