"""Programs on random arguments against Chainer 7.8.1 itself, where it is installed (with SciPy and mock).

Where Chainer gives a value, Kusari gives the same, with gradients; where Chainer fails, Kusari may do more.
"""
from __future__ import annotations

import os
import pickle
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import sweep
from oracle.training import HOOKS

ORACLE = os.environ.get("KUSARI_ORACLE")
# Beginnings of programs that give something else, and why.
DIFFERENT = {
    'F.pad(x, ((k, l),), "edge")': "Chainer drops what is padded from gradients",
    'F.pad(x, (k, l), "reflect")': "Chainer drops what is padded from gradients",
    "F.maxout(x, k + 1, axis=axis)": "Chainer takes the wrong axis where it counts from the end",
    "F.precision(b, t)": "Chainer takes the largest label for the number of labels",
    "F.recall(b, t)": "Chainer takes the largest label for the number of labels",
    "MSVAG": "Chainer divides rounding errors by 0 in the first step",
    "SMORMS3 of a model": "Chainer divides 0 by 0 in float16",
    "BlackOut(": "Chainer begins with weights of NaN",
    "Pareto.sample": "Chainer's samples have no gradient of `alpha`",
}
# Public names without a program, and why.
NOT_SWEPT = {
    "networks whose files are read, see tests/links/test_vision.py":
        "GoogLeNet ResNet50Layers ResNet101Layers ResNet152Layers VGG16Layers VGG19Layers",
    "downloads": "get_cifar10 get_cifar100 get_fashion_mnist get_fashion_mnist_labels get_kuzushiji_mnist "
                 "get_kuzushiji_mnist_labels get_mnist get_ptb_words get_ptb_words_vocabulary get_svhn",
    "needs NCCL, DALI or a card there":
        "MultiprocessParallelUpdater DaliIterator CUDAProfileHook CupyMemoryProfileHook",
    "raises": "TheanoFunction",
    "another name of DumpGraph, a base class, and called with each initializer":
        "dump_graph OrderSampler generate_array",
    "Kusari's own": "get_mnist_sample get_fans is_array",
    "what modules of Kusari import": "Any Callable Initializer Sequence",
}


def same(theirs: Any, ours: Any) -> bool:
    """Whether two results agree: in kind, shape, dtype and, up to rounding, in value."""
    if isinstance(theirs, dict):
        return theirs.keys() == ours.keys() and all(same(value, ours[key]) for key, value in theirs.items())
    if isinstance(theirs, list):
        return type(ours) is list and len(theirs) == len(ours) and all(map(same, theirs, ours))
    if theirs is None or isinstance(theirs, str):
        return theirs == ours if ours is None or isinstance(ours, str) else False
    if isinstance(theirs, np.ndarray) and not (
            isinstance(ours, np.ndarray) and theirs.shape == ours.shape and theirs.dtype == ours.dtype):
        return False
    a, b = np.asarray(theirs), np.asarray(ours)
    tolerance = 2e-2 if a.dtype == np.float16 else 1e-4
    return a.shape == b.shape and b.dtype.kind in "biuf" and np.allclose(
        a.astype(float), b.astype(float), tolerance, tolerance, equal_nan=True)


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE does not name a Python with Chainer")
@pytest.mark.parametrize("area", sweep.AREAS)
def test_programs(area: str, tmp_path: Path) -> None:
    file = tmp_path / "found.pkl"
    subprocess.run([str(ORACLE), "-m", "oracle.sweep", area, str(file)], check=True, capture_output=True,
                   cwd=Path(sweep.__file__).parents[1])
    theirs = pickle.loads(file.read_bytes())
    ours = sweep.evaluate("kusari", area)
    given = {name: value for name, value in theirs.items() if not isinstance(value, tuple)}
    assert len(given) > 100
    wrong = [f"{name}\n  Chainer: {value}\n  Kusari: {ours[name]}" for name, value in given.items()
             if not name.startswith(tuple(DIFFERENT)) and not same(value, ours[name])]
    assert not wrong, "\n".join(wrong[:10])


def test_everything_has_a_program() -> None:
    lib = sweep.parts_of("kusari")
    lib.files = {}
    texts = [*HOOKS, *(name for programs in sweep.AREAS.values() for name, _ in programs(lib))]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    kinds = (lib.F, lib.L, lib.datasets, lib.distributions, lib.extensions, lib.function_hooks, lib.initializers,
             lib.iterators, lib.link_hooks, lib.optimizer_hooks, lib.optimizers, lib.triggers, lib.updaters)
    names = {name for kind in kinds for name in dir(kind) if not name.startswith("_")
             if callable(getattr(kind, name))}
    assert len(names) > 400
    assert names - words == set(" ".join(NOT_SWEPT.values()).split())
