"""Thread-local configuration with process-wide defaults: ``config``, ``global_config``, ``using_config``.

Reading ``config.train`` is on the path of every function call, so a `LocalConfig` keeps a thread's own values in the
instance dictionary of a `threading.local` and the shared ones as attributes of its (private) class: the interpreter's
ordinary attribute lookup then is the whole fallback rule.
"""
from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from . import environment
from .callsite import user_stacklevel
from .epochs import Shared
from .mixed_precision import dtype_named

_ABSENT: Any = object()


def _class_value(value: Any) -> Any:
    """Wrap what would turn into a bound method when read through an instance."""
    return staticmethod(value) if hasattr(type(value), "__get__") else value


def _show(names: set[str], read: Callable[[str], Any], file: TextIO | None) -> None:
    width = max(map(len, names), default=0)
    for name in sorted(names):
        print(f"{name:<{width}} {read(name)}", file=file or sys.stdout)


class GlobalConfig:
    """The configuration shared by all threads of the process.

    It is a plain object: set any attribute. `LocalConfig` refers to it for the keys a thread has not set itself. Keys
    of one's own should start with ``user_``.

    Example:
        >>> import kusari
        >>> kusari.global_config.train
        True
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_mirrors", [])

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        for mirror in self._mirrors:
            setattr(mirror, name, _class_value(value))
        Shared.version = object()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        for mirror in self._mirrors:
            delattr(mirror, name)
        Shared.version = object()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def show(self, file: TextIO | None = None) -> None:
        """Print all entries, one ``name value`` line each, to `file` (standard output by default)."""
        names = {name for name in vars(self) if name != "_mirrors"}
        _show(names, functools.partial(getattr, self), file)


class LocalConfig(threading.local):
    """The configuration of the current thread; what it has not set is read from `global_config`.

    Args:
        global_config (GlobalConfig): Where to look for keys that the thread has not set.

    Example:
        >>> import kusari
        >>> kusari.config.train
        True
        >>> kusari.config.train = False
        >>> kusari.config.train, kusari.global_config.train
        (False, True)
        >>> del kusari.config.train
    """

    _global: GlobalConfig

    def __new__(cls, global_config: GlobalConfig) -> LocalConfig:
        shared = {k: _class_value(v) for k, v in vars(global_config).items() if k != "_mirrors"}
        mirror = type(cls.__name__, (cls,), {**shared, "_global": global_config, "__module__": cls.__module__})
        global_config._mirrors.append(mirror)
        # threading.local calls __init__ with these arguments in every thread.
        return threading.local.__new__(mirror, global_config)  # pyright: ignore[reportCallIssue]

    def __init__(self, global_config: GlobalConfig) -> None:
        super().__init__()

    if TYPE_CHECKING:
        # Not at run time: a class with this method is read at half the speed.
        def __getattr__(self, name: str) -> Any: ...

    def show(self, file: TextIO | None = None) -> None:
        """Print all entries as this thread sees them, one ``name value`` line each, to `file`."""
        names = {name for name in vars(self._global) if name != "_mirrors"} | set(self.__dict__)
        _show(names, functools.partial(getattr, self), file)


class ConfigScope:
    """A context manager that sets one key of a thread's configuration and puts the old value back; also a decorator.

    Invariant: `_saved` is a chain (older chain, namespace, old value), so that one object may be entered again inside
    itself.
    """

    __slots__ = ("_config", "_name", "_saved", "_value")

    def __init__(self, name: str, value: Any, config: Any) -> None:
        self._name = name
        self._value = value
        self._config = config
        self._saved: Any = None

    def __enter__(self) -> None:
        values = self._config.__dict__
        name = self._name
        self._saved = self._saved, values, values[name] if name in values else _ABSENT
        values[name] = self._value

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._saved, values, old = self._saved
        if old is not _ABSENT:
            values[self._name] = old
        else:
            values.pop(self._name, None)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with ConfigScope(self._name, self._value, self._config):
                return function(*args, **kwargs)

        return wrapper


class _AttributeScope(ConfigScope):
    """The same for any other object, such as ``global_config``, whose attributes must be set the ordinary way."""

    __slots__ = ()

    def __enter__(self) -> None:
        values = vars(self._config)
        self._saved = (self._saved, values, values.get(self._name, _ABSENT))
        setattr(self._config, self._name, self._value)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._saved, _, old = self._saved
        if old is not _ABSENT:
            setattr(self._config, self._name, old)
        elif self._name in vars(self._config):
            delattr(self._config, self._name)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _AttributeScope(self._name, self._value, self._config):
                return function(*args, **kwargs)

        return wrapper


def _defaults() -> GlobalConfig:
    found = GlobalConfig()
    found.autotune = False
    found.compute_mode = None
    found.cpu_codegen = environment.choice("CPU_CODEGEN", "llvm", ("llvm", "numba"))
    found.cudnn_deterministic = False
    found.cudnn_fast_batch_normalization = environment.flag("CUDNN_FAST_BATCH_NORMALIZATION")
    found.debug = environment.flag("DEBUG")
    found.dtype = dtype_named(
        environment.choice("DTYPE", "float32", ("mixed16", "float16", "float32", "float64"))
    )
    found.enable_backprop = True
    found.follow_static = environment.flag("FOLLOW_STATIC", True)
    found.join_loops = environment.flag("JOIN_LOOPS", True)
    found.in_recomputing = False
    found.keep_define_by_run = environment.flag("KEEP_DEFINE_BY_RUN", True)
    found.keep_graph_on_report = environment.flag("KEEP_GRAPH_ON_REPORT")
    found.lazy_grad_sum = environment.flag("LAZY_GRAD_SUM")
    found.train = True
    found.type_check = environment.flag("TYPE_CHECK", True)
    found._will_recompute = False  # Chainer's name: the call is made again in backward, with in_recomputing
    found.use_cudnn = environment.choice("USE_CUDNN", "auto", ("always", "auto", "never"))
    found.use_cudnn_tensor_core = environment.choice("USE_CUDNN_TENSOR_CORE", "auto", ("always", "auto", "never"))
    found.use_ideep = environment.choice("USE_IDEEP", "never", ("always", "auto", "never"))
    found.use_static_graph = environment.flag("USE_STATIC_GRAPH", True)
    found.warn_nondeterministic = environment.flag("WARN_NONDETERMINISTIC")
    found.winograd = int(environment.choice("WINOGRAD", "4", ("0", "2", "4")))
    return found


global_config = _defaults()
config: Any = LocalConfig(global_config)
_own = config
_known = frozenset(vars(global_config)) - {"_mirrors"}


def using_config(name: str, value: Any, config: Any = config) -> ConfigScope:
    """Return a context manager that changes one configuration entry for the current thread.

    Args:
        name (str): The entry's name.
        value: Its value inside the ``with`` block (or the decorated function).
        config: The configuration to change, ``kusari.config`` by default.

    A name that is not set may be one of your own (``user_...``); if it is nearly one of Kusari's, a warning asks.

    Example:
        >>> import kusari
        >>> with kusari.using_config("train", False):
        ...     kusari.config.train
        False
        >>> kusari.config.train
        True
    """
    if name not in _known and config is _own and not hasattr(config, name):
        _ask(name)
    if config is _own or isinstance(config, LocalConfig):
        return ConfigScope(name, value, config)
    return _AttributeScope(name, value, config)


def _ask(name: str) -> None:
    """Warn about the name of an entry that is nearly a known one."""
    import difflib

    alike = [known for known in _known if known[0] == name[:1] and abs(len(known) - len(name)) < 2]  # not my_debug
    if close := difflib.get_close_matches(name, alike, 1, 0.75):
        warnings.warn(f"using_config({name!r}, ...): there is no such entry, did you mean {close[0]!r}?",
                      stacklevel=user_stacklevel())


def no_backprop_mode() -> ConfigScope:
    """Return a context manager in which no computational graph is recorded.

    Functions applied inside produce variables without creators, so nothing is kept for `Variable.backward`.

    Example:
        >>> import kusari, numpy as np
        >>> x = kusari.Variable(np.ones(2, np.float32))
        >>> with kusari.no_backprop_mode():
        ...     y = x + 1
        >>> y.creator is None
        True
    """
    return ConfigScope("enable_backprop", False, config)


def force_backprop_mode() -> ConfigScope:
    """Return a context manager in which the graph is recorded even inside `no_backprop_mode`."""
    return ConfigScope("enable_backprop", True, config)


def is_debug() -> bool:
    """Return whether debug mode is on in this thread."""
    return bool(config.debug)


def set_debug(debug: bool) -> None:
    """Turn debug mode on or off in this thread.

    In debug mode every result of a forward and backward computation is checked for NaN.
    """
    config.debug = debug


class DebugMode(ConfigScope):
    """A context manager that turns debug mode on (or off) inside; deprecated, use ``using_config("debug", …)``."""

    __slots__ = ()

    def __init__(self, debug: bool) -> None:
        warnings.warn('chainer.DebugMode is deprecated. Use chainer.using_config("debug", ...) instead.',
                      DeprecationWarning, stacklevel=2)
        super().__init__("debug", debug, config)
