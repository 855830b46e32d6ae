"""Programs that Chainer and Kusari run; Chainer's Python runs ``python -m oracle.sweep AREA FILE``."""
from __future__ import annotations

import importlib
import pickle
import sys
import types
import warnings
from typing import Any

from .data import data
from .functions import distributions, functions
from .links import links
from .programs import attempt
from .training import optimizers, trainings

AREAS = {"functions": functions, "distributions": distributions, "links": links, "optimizers": optimizers,
         "trainings": trainings, "data": data}


def evaluate(library: str, area: str) -> dict[str, Any]:
    """Run all programs of an area with a library."""
    def part(name: str = "") -> Any:
        return importlib.import_module(library + name)
    lib = types.SimpleNamespace(
        chainer=part(), F=part(".functions"), L=part(".links"), testing=part(".testing"),
        training=part(".training"), triggers=part(".training.triggers"), extensions=part(".training.extensions"),
        **{name: part(f".{name}") for name in
           "distributions optimizers optimizer_hooks serializers iterators datasets dataset initializers".split()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: attempt(program) for name, program in AREAS[area](lib)}


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(evaluate("chainer", sys.argv[1]), file, protocol=4)
