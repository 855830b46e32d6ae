"""Run code written for Chainer without changing it: its import names lead to Kusari.

After :func:`install`, ``import chainer.functions as F`` binds the very module ``kusari.functions``, so
that classes, configuration and pickles are the same whichever name they were reached by:

    >>> import kusari.compat
    >>> kusari.compat.install()
    >>> import chainer.functions as F
    >>> F is kusari.functions
    True
    >>> import chainer
    >>> chainer.Variable is kusari.Variable, chainer.__version__
    (True, '7.8.1')
    >>> kusari.compat.uninstall()

``python -m kusari run script.py`` does this around a script.  Only the top-level name ``chainer`` is an
object of its own (it reports the version of the API), which passes every other access on to ``kusari``.
Names that NumPy has removed come back with it, and the package ``six``, where it is not installed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import operator
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import compat_numpy, compat_six, environment, errors
from .backends.chainerx import is_chainerx_array
from .backends.cuda import GpuDevice
from .compat_classes import ATTRIBUTES, OF_AXES
from .compat_modules import GatheredModules, serve, top_level, withdraw
from .link import Link
from .runtime_info import API_VERSION
from .variable import Variable

__all__ = ["API_VERSION", "install", "installed", "uninstall"]

# The longest matching name wins.
_NAMES = {
    "chainer": "kusari",
    "chainer.basic_math": "kusari.functions.math.basic_math",
    "chainer.cuda": "kusari.backends.cuda",
    "chainer.backends._chainerx": "kusari.backends.chainerx",
    "chainermn": "kusari.distributed",
    "chainerx": "kusari.chainerx",
    "onnx_chainer": "kusari.onnx.compat",
    **{f"onnx_chainer.{name}": f"kusari.onnx.{name}" for name in (
        "context", "functions", "onnx_helper", "testing")},
    **{f"onnx_chainer.functions.{name}": "kusari.onnx.functions" for name in (
        "activation", "array", "connection", "loss", "math", "noise", "normalization", "pooling", "rnn")},
}


def _device_id(link: Link) -> int | None:
    """The number of a link's card, as old programs ask for it."""
    warnings.warn("Link._device_id is left only for backward compatibility and likely to be removed. "
                  "Use Link.device instead.", DeprecationWarning, stacklevel=2)
    return link.device.device.id if isinstance(link.device, GpuDevice) else None


# Attributes of Chainer's classes by which programs ask about ChainerX, about cards, and about functions of images.
_ATTRIBUTES: tuple[tuple[type, str, Any], ...] = (
    (Link, "_device_id", property(_device_id)),
    (Variable, "_has_chainerx_array", property(lambda variable: is_chainerx_array(variable._array))),
    *OF_AXES,
)
_ROOTS = tuple(name for name in _NAMES if "." not in name)
_lock = threading.Lock()


def _kusari_name(name: str) -> str | None:
    """The module of ours that an import name stands for; None for any other name."""
    for alias in sorted(_NAMES, key=len, reverse=True):
        if name == alias or name.startswith(f"{alias}."):
            return _NAMES[alias] + name[len(alias) :]
    return None


class _Chainer(ModuleType):
    """The module ``chainer``: everything of ``kusari``, under Chainer's version number."""

    __version__ = API_VERSION

    def __init__(self) -> None:
        super().__init__("chainer", sys.modules["kusari"].__doc__)

    def __getattr__(self, name: str) -> Any:
        kusari = sys.modules["kusari"]
        if name == "__all__":  # asked for by a star import
            return getattr(kusari, "__all__", [key for key in vars(kusari) if not key.startswith("_")])
        try:
            value = top_level(name)
        except AttributeError:
            raise AttributeError(f"module 'chainer' (Kusari's) has no attribute {name!r}") from None
        if isinstance(value, ModuleType):
            serve(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("__spec__", "__loader__", "__file__", "__path__", "__package__", "__cached__"):
            return super().__setattr__(name, value)
        setattr(sys.modules["kusari"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(sys.modules["kusari"], name)

    def __dir__(self) -> list[str]:
        return dir(sys.modules["kusari"])


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Chainer's names; the loader hands out the module that already carries our name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = _kusari_name(fullname)
        if name is None or importlib.util.find_spec(name) is None:
            return None
        return ModuleSpec(fullname, _Loader(name), is_package=fullname == "chainer")


class _Loader(importlib.abc.Loader):
    """Imports our module and lets the import system register it under the other name as well.

    The import system overwrites ``module.__spec__`` with the alias's: it is put back, for a module's own
    name is what relative imports, ``importlib.reload`` and pickles go by.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        if spec.name == "chainer":
            return _Chainer()
        self._spec = module.__spec__
        serve(module)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is None:
            return
        assert module.__spec__ is not None
        _keep_shadows(module, module.__spec__.name)
        module.__spec__ = self._spec


def _keep_shadows(package: ModuleType, alias: str) -> None:
    """Register modules that a function of the same name hides: importing them would put them in its place."""
    for name, module in list(sys.modules.items()):
        place, _, last = name.rpartition(".")
        if place == package.__name__ and vars(package).get(last, module) is not module:
            serve(module)
            sys.modules[f"{alias}.{last}"] = module


_finder = _Finder()
_gathered = GatheredModules()
_six = compat_six.SixFinder()


def _aliases() -> list[str]:
    """The names in ``sys.modules`` that are Chainer's."""
    return [name for name in list(sys.modules) if name.partition(".")[0] in _ROOTS]


def installed() -> bool:
    """Whether the import names of Chainer lead to Kusari now."""
    return _finder in sys.meta_path


def install(numpy_aliases: bool | None = None) -> None:
    """Let ``chainer``, ``chainermn``, ``chainerx`` and ``onnx_chainer`` (sub-modules included) resolve to Kusari.

    A second call does nothing.  An installed Chainer is not imported while this is on.  Where the package ``six`` is
    not installed, which Chainer required, its most used names are importable.

    Args:
        numpy_aliases: Whether ``numpy`` gets the names back that it has removed (``np.float``, ``np.Inf`` …); by
            default the environment variable ``KUSARI_NUMPY_ALIASES`` says so, and without it they come back.

    Raises:
        kusari.errors.KusariError: if the real Chainer has been imported already, since half of the program
            would then hold objects of the other library.
    """
    with _lock:
        if installed():
            return
        for name in _aliases():
            where = getattr(sys.modules[name], "__file__", None) or "somewhere else"
            raise errors.KusariError(
                f"kusari.compat.install() expected that nothing of Chainer is imported yet, but {name!r} is already "
                f"imported, from {where}. Call install() before the first 'import {name.partition('.')[0]}'."
            )
        sys.meta_path.insert(0, _finder)
        sys.meta_path.append(_gathered)
        sys.meta_path.append(_six)
        if environment.flag("NUMPY_ALIASES", True) if numpy_aliases is None else numpy_aliases:
            compat_numpy.put_back()
        for cls, name, value in _ATTRIBUTES:
            setattr(cls, name, value)
        for owner, theirs, ours in ATTRIBUTES:
            setattr(owner, theirs, property(operator.attrgetter(ours), functools.partial(_set, ours)))


def _set(name: str, instance: Any, value: Any) -> None:
    setattr(instance, name, value)


def uninstall() -> None:
    """Undo :func:`install`; names that are bound already stay what they are."""
    with _lock:
        if not installed():
            return
        sys.meta_path.remove(_finder)
        sys.meta_path.remove(_gathered)
        sys.meta_path.remove(_six)
        compat_six.withdraw()
        compat_numpy.take_away()
        for cls, name, _ in _ATTRIBUTES:
            delattr(cls, name)
        withdraw()
        for owner, theirs, _ in ATTRIBUTES:
            delattr(owner, theirs)
        for name in _aliases():
            del sys.modules[name]
