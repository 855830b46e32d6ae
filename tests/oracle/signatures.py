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

# The modules that have what the manual documents, and those of Chainer's core.
MODULES = (
    "", "backend", "backends.cuda", "backends.intel64", "computational_graph", "configuration", "dataset",
    "dataset.convert", "dataset.download", "dataset.tabular", "datasets", "device_resident", "distribution",
    "distributions", "exporters.caffe", "function", "function_hook", "function_hooks", "function_node", "functions",
    "gradient_check", "graph_optimizations", "initializer", "initializers", "iterators", "link", "link_hook",
    "link_hooks", "links", "links.caffe", "optimizer", "optimizer_hooks", "optimizers", "reporter", "sequential",
    "serializer", "serializers", "testing", "testing.attr", "testing.condition", "training", "training.extension",
    "training.extensions", "training.extensions.snapshot_writers", "training.trainer", "training.trigger",
    "training.triggers", "training.updater", "training.updaters", "training.util", "types", "utils", "utils.argument",
    "utils.type_check", "variable",
)  # fmt: skip
POSITIONAL = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")


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


def differences(theirs: list[list[Any]], ours: list[list[Any]]) -> list[str]:
    """Return what a call that suits Chainer's signature may miss in ours."""
    kinds, known = {p[1] for p in ours}, {p[0]: p for p in ours}
    places = [p[0] for p in ours if p[1] in POSITIONAL]
    found: list[str] = []
    for i, (name, kind, default) in enumerate(theirs):
        if kind.startswith("VAR") or name == "_" or (i == 0 and name == "self"):
            continue
        if name not in known and "VAR_KEYWORD" not in kinds:
            found.append(f"no {name}")
        elif kind in POSITIONAL and "VAR_POSITIONAL" not in kinds and places[i:i + 1] != [name]:
            found.append(f"{name} at another place")
        elif name in known and default not in ("", "object", known[name][2]):
            found.append(f"{name}={known[name][2]} for {default}")
    if not any(kind.startswith("VAR") for _, kind, _ in theirs):
        found += [f"needs {name}" for name, kind, default in ours[len(theirs):]
                  if default == "" and not kind.startswith("VAR")]
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
