"""Whole models on a card whose products are cuBLASLt's, and what the library itself says of its descriptors."""
from __future__ import annotations

import ctypes
from dataclasses import replace

import cupy_kernels
import numpy as np
import pytest
from cards.machines import SWEEP, Machine
from cards.test_compiled import WHOLE, check_training, step_report
from cublaslt_double import CublasLt

from kusari.commands.models import MODELS
from kusari.runtime.card import libraries
from kusari.runtime.card.cublaslt import Function, Heuristic, Library, Product, Work, alignment_of

# Launches of a whole step with the library, kernels among them that differ, calls, and bytes of a frame.
CALLED = {"mushroom_mlp": (13, 5, 8, 1280), "mnist_mlp": (13, 5, 8, 2304), "lenet_cnn": (23, 17, 6, 9728),
          "ptb_lstm": (89, 24, 23, 16896), "transformer_block": (43, 16, 18, 10752), "vgg_cifar": (50, 39, 6, 15616),
          "resnet18": (115, 74, 3, 156672)}


@pytest.mark.parametrize("name, kind", [
    pytest.param(name, kind, marks=pytest.mark.slow if (name, kind) in (
        ("mushroom_mlp", "parts"), ("transformer_block", "whole")) else SWEEP)
    for name in WHOLE if name != "elementwise" for kind in ("whole", "parts")])
def test_models_train_through_the_library(card: Machine, blas: CublasLt, name: str, kind: str) -> None:
    check_training(card, name, kind)
    assert cupy_kernels.launches["calls"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLED)
def test_launches_calls_and_bytes(card: Machine, blas: CublasLt, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_kernels.RawKernel, "_run", lambda *_: None)
    report = step_report(card, name)
    assert (report.launches, report.kernels, report.calls.total(), report.frame_bytes) == CALLED[name]
    assert {kind for kind, _ in report.refused} <= {"convolutions"} and not report.python_instructions


@pytest.mark.slow
@pytest.mark.parametrize("agrees", [True, False])
def test_launches_of_a_block_with_gelu(card: Machine, blas: CublasLt, agrees: bool,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests' units are no multiple of 8."""
    monkeypatch.setattr(cupy_kernels.RawKernel, "_run", lambda *_: None)
    model = MODELS["transformer_block"]
    monkeypatch.setitem(MODELS, "transformer_block", replace(model, tiny={**model.tiny, "units": 16}))
    if not agrees:
        blas.gelu = lambda x: x
    report = step_report(card, "transformer_block")
    assert (report.launches, report.calls.total()) == (41 if agrees else 43, 18)
    assert {kind for kind, _ in report.refused} == (set() if agrees else {"GELUs", "gradients of GELU"})


def test_sizes_and_alignments() -> None:
    assert ctypes.sizeof(Heuristic) == 96 and Heuristic.workspaceSize.offset == 64 and Heuristic.state.offset == 72
    assert [alignment_of(a) for a in (0, 512, 256, 128, 24, 20, 2)] == [256, 256, 256, 16, 8, 4, 2]


def test_descriptors_are_those_of_the_library() -> None:
    """The library makes and changes descriptors without a card: it knows all attributes by number and size."""
    found = next((f for f in (libraries.loaded("cublasLt", major) for major in (13, 12)) if f is not None), None)
    if found is None:
        pytest.skip("there is no cuBLASLt")
    library = Library(found)
    for kind in ("float16", "float32", "float64"):
        work = Work(3, 4, 5, True, True, 2, 15, 20, np.dtype(kind), np.dtype(kind), bias=True, function="relu")
        product = Product(library, 0, work)
        library.set_vector(product._description, 256)
    single = np.dtype("f")
    plain = Work(3, 4, 5, True, False, 1, 15, 20, single, single)
    for work in (replace(plain, sums=0), replace(plain, sums=1), replace(plain, rounding="bf16"),
                 replace(plain, rounding="tf32")):
        Product(library, 0, work)
    names: tuple[Function, ...] = ("relu", "gelu", "gradient of relu", "gradient of gelu")
    for work in [replace(plain, function=name, keeps=i < 2, totals=i >= 2) for i, name in enumerate(names)]:
        product = Product(library, 0, work)
        library.set_kept(product._description, 256)
    assert int(library.version.split(".")[0]) in (12, 13)
