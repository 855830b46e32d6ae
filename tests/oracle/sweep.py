"""Programs that Chainer and Kusari run; Chainer's Python runs ``python -m oracle.sweep AREA FILE``."""
from __future__ import annotations

import importlib
import pickle
import sys
import tempfile
import types
import warnings
from typing import Any

from .core import core
from .data import data, files
from .distributions import distributions
from .functions import functions
from .links import links
from .programs import attempt
from .training import optimizers, trainings

AREAS = {"functions": functions, "distributions": distributions, "links": links, "optimizers": optimizers,
         "trainings": trainings, "data": data, "core": core}


def parts_of(library: str) -> types.SimpleNamespace:
    """A library with those of its modules that programs use, by short names."""
    def part(name: str = "") -> Any:
        return importlib.import_module(library + name)
    return types.SimpleNamespace(
        chainer=part(), F=part(".functions"), L=part(".links"), testing=part(".testing"), training=part(".training"),
        **{name: part(f".training.{name}") for name in ("extensions", "triggers", "updaters")},
        **{name: part(f".{name}") for name in (
            "computational_graph", "dataset", "datasets", "distributions", "function_hooks", "gradient_check",
            "initializers", "iterators", "link_hooks", "optimizer_hooks", "optimizers", "serializers")})


def evaluate(library: str, area: str) -> dict[str, Any]:
    """Run all programs of an area with a library."""
    lib = parts_of(library)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        lib.files = files(folder)
        return {name: attempt(program) for name, program in AREAS[area](lib)}


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(evaluate("chainer", sys.argv[1]), file, protocol=4)
