"""Chainer's modules of which there is no file here: ``chainer.functions.activation.relu``, ``chainer.backends._cpu``.

Scripts import names from them, and pickles name them. Each has the names of other modules: of one that a table says,
or else of its folder's and of the package the folder belongs to.
"""
from __future__ import annotations

import importlib
import importlib.abc
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["GatheredModules", "Gathered"]

_FOLDED = ("functions", "links")  # their modules stand in folders
_FLAT = ("distributions", "link_hooks", "optimizer_hooks", "optimizers")
# Most modules are called like a function or class in them; these are not.
_OTHERS = frozenset({
    "basic_math", "discriminative_loss", "exponential_m1", "hyperbolic", "logarithm_1p", "minmax", "squared_error",
    "trigonometric", "mgu", "peephole", "zoneoutlstm",
})  # fmt: skip
# Modules that are called otherwise here.
_ELSEWHERE = {
    "kusari.backends._cpu": "kusari.backends.cpu",
    "kusari.graph_optimizations": "kusari.static",
    "kusari.graph_optimizations.static_graph": "kusari.static",
    "kusari.memory_layouts": "kusari.compat_layouts",
    "kusari.training.updaters.multiprocess_parallel_updater": "kusari.training.updaters.parallel_updater",
    "kusari.utils.conv_nd": "kusari.utils.conv",
}
# Names in such modules that are called otherwise here.
_RENAMED = {"kusari.backends._cpu._to_cpu": ("kusari.backends.cuda", "to_cpu")}


class Gathered(ModuleType):
    """A module of Chainer's that has the names of others: of ``source``, and of its folder's if that is a package."""

    def __init__(self, name: str, source: str) -> None:
        super().__init__(name, f"The names of Chainer's module {name.rpartition('.')[2]}.")
        self._source = source

    def _sources(self) -> Iterator[ModuleType]:
        yield importlib.import_module(self._source)
        if self.__name__ in _ELSEWHERE:
            return
        folder = self.__name__.rpartition(".")[0]
        for found in pkgutil.iter_modules(importlib.import_module(folder).__path__):
            yield importlib.import_module(f"{folder}.{found.name}")

    def __getattr__(self, name: str) -> Any:
        if f"{self.__name__}.{name}" in _RENAMED:
            module, here = _RENAMED[f"{self.__name__}.{name}"]
            return getattr(importlib.import_module(module), here)
        if not name.startswith("__"):
            for source in self._sources():
                if name in vars(source):
                    return vars(source)[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class GatheredModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds such modules under Kusari's name; to be asked last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_package = any(name.startswith(f"{fullname}.") for name in _ELSEWHERE)
        return None if _source(fullname) is None else ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        source = _source(spec.name)
        assert source is not None
        return Gathered(spec.name, source)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are asked for."""


def _source(fullname: str) -> str | None:
    """Return the module or package whose names a module has, or None where Chainer has no such module."""
    if fullname in _ELSEWHERE:
        return _ELSEWHERE[fullname]
    parts = fullname.split(".")
    if parts[0] != "kusari" or len(parts) < 3 or len(parts) != (4 if parts[1] in _FOLDED else 3) or (
            parts[1] not in _FOLDED + _FLAT):
        return None
    package = sys.modules.get(f"kusari.{parts[1]}")
    known = {name.replace("_", "").lower() for name in vars(package or ModuleType("none"))}
    return f"kusari.{parts[1]}" if parts[-1].replace("_", "") in known or parts[-1] in _OTHERS else None
