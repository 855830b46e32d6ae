"""Signatures of all public names, as ``module.Class.method``; ``python -m oracle.signatures chainer FILE`` writes them.

Run from ``tests``, with Chainer or with Kusari behind the alias.
"""
from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

# The modules that have what the manual documents.
MODULES = (
    "", "backend", "backends.cuda", "backends.intel64", "computational_graph", "dataset", "dataset.tabular", "datasets",
    "device_resident", "distributions", "exporters.caffe", "function_hooks", "functions", "gradient_check",
    "graph_optimizations", "initializers", "iterators", "link_hooks", "links", "links.caffe", "optimizer_hooks",
    "optimizers", "reporter", "sequential", "serializers", "testing", "testing.attr", "testing.condition", "training",
    "training.extensions", "training.extensions.snapshot_writers", "training.triggers", "training.updaters", "utils",
    "utils.type_check", "variable",
)  # fmt: skip


def parameters(value: Any) -> list[list[Any]] | None:
    """Return names, kinds and defaults of parameters; None where Python cannot tell."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (bool, int, float, str, type(None))
    return [[p.name, p.kind.name,
             "" if p.default is p.empty else repr(p.default) if isinstance(p.default, plain) else "object"]
            for p in found]


def _members(module: ModuleType) -> dict[str, Any]:
    """What a module defines, or what a package has of its modules."""
    package = hasattr(module, "__path__")
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and callable(value) and (
                getattr(value, "__module__", "") or "").startswith("chainer" if package else module.__name__)}


def public() -> dict[str, Any]:
    """Return the signature of every public function, class and method of Chainer's."""
    found: dict[str, Any] = {}
    for place in MODULES:
        module = importlib.import_module(f"chainer.{place}".rstrip("."))
        for name, value in _members(module).items():
            path = f"{place}.{name}".lstrip(".")
            found[path] = parameters(value)
            if isinstance(value, type):
                found.update({f"{path}.{member}": parameters(method) for member in dir(value)
                              if not member.startswith("_") or member == "__call__"
                              if callable(method := getattr(value, member, None)) and not isinstance(method, type)})
    return found


def asked(names: list[str]) -> dict[str, Any]:
    """Return the signatures of these names, as far as they are there."""
    found: dict[str, Any] = {}
    for name in names:
        place = max((m for m in MODULES if not m or name.startswith(f"{m}.")), key=len)
        try:
            value: Any = importlib.import_module(f"chainer.{place}".rstrip("."))
            for part in name[len(place):].lstrip(".").split("."):
                value = getattr(value, part)
        except (AttributeError, ImportError):
            continue
        found[name] = parameters(value)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    library, file, *names = sys.argv[1:]
    if library == "kusari":
        importlib.import_module("kusari.compat").install()
        result = asked(list(json.loads(Path(names[0]).read_text())))
    else:
        result = public()
    Path(file).write_text(json.dumps(result))
