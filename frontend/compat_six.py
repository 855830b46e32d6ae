"""The package six, where it is not installed: Chainer required it, so its programs import it.

Only what such programs use of it is here, for Python 3 alone.
"""
from __future__ import annotations

import functools
import importlib
import importlib.abc
import io
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["SixFinder", "withdraw"]

_MODULES = {
    "builtins": "builtins", "configparser": "configparser", "copyreg": "copyreg", "cPickle": "pickle",
    "html_entities": "html.entities", "html_parser": "html.parser", "http_client": "http.client", "queue": "queue",
    "reprlib": "reprlib", "socketserver": "socketserver", "urllib": "urllib", "urllib.error": "urllib.error",
    "urllib.parse": "urllib.parse", "urllib.request": "urllib.request", "urllib_parse": "urllib.parse",
    "urllib_request": "urllib.request", "urllib_error": "urllib.error",
}  # fmt: skip
_MOVES: dict[str, Any] = {
    "filter": filter, "getcwd": importlib.import_module("os").getcwd, "input": input, "intern": sys.intern,
    "map": map, "range": range, "reduce": functools.reduce, "reload_module": importlib.reload, "StringIO": io.StringIO,
    "cStringIO": io.StringIO, "UserDict": importlib.import_module("collections").UserDict, "xrange": range,
    "zip": zip, "zip_longest": importlib.import_module("itertools").zip_longest,
}  # fmt: skip


def _add_metaclass(metaclass: type) -> Callable[[type], type]:
    """Return a decorator that makes a class again, with a metaclass."""

    def decorate(cls: type) -> type:
        body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        return metaclass(cls.__name__, cls.__bases__, body)

    return decorate


def _reraise(kind: type[BaseException], error: BaseException | None, traceback: Any = None) -> None:
    raise (kind() if error is None else error).with_traceback(traceback)


def _raise_from(error: BaseException, cause: BaseException | None) -> None:
    raise error from cause


def _ensure_text(s: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    return s.decode(encoding, errors) if isinstance(s, bytes) else s


def _ensure_binary(s: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    return s.encode(encoding, errors) if isinstance(s, str) else s


def _iterator_of(method: str) -> Callable[..., Iterator[Any]]:
    return lambda d, **kwargs: iter(getattr(d, method)(**kwargs))


_NAMES: dict[str, Any] = {
    "PY2": False, "PY3": True, "PY34": True, "MAXSIZE": sys.maxsize,
    "string_types": (str,), "integer_types": (int,), "class_types": (type,), "text_type": str, "binary_type": bytes,
    "StringIO": io.StringIO, "BytesIO": io.BytesIO, "Iterator": object,
    "iteritems": _iterator_of("items"), "iterkeys": _iterator_of("keys"), "itervalues": _iterator_of("values"),
    "viewitems": operator.methodcaller("items"), "viewkeys": operator.methodcaller("keys"),
    "viewvalues": operator.methodcaller("values"), "next": next, "advance_iterator": next, "callable": callable,
    "add_metaclass": _add_metaclass, "with_metaclass": lambda meta, *bases: meta("temporary", bases, {}),
    "raise_from": _raise_from, "reraise": _reraise, "wraps": functools.wraps, "print_": print, "exec_": exec,
    "b": lambda s: s.encode("latin-1"), "u": str, "unichr": chr,
    "int2byte": operator.methodcaller("to_bytes", 1, "big"),
    "byte2int": operator.itemgetter(0), "indexbytes": operator.getitem, "iterbytes": iter,
    "get_function_code": operator.attrgetter("__code__"), "get_method_function": operator.attrgetter("__func__"),
    "get_method_self": operator.attrgetter("__self__"),
    "ensure_str": _ensure_text, "ensure_text": _ensure_text, "ensure_binary": _ensure_binary,
    "python_2_unicode_compatible": lambda cls: cls,
}  # fmt: skip


class _Six(ModuleType):
    """The module ``six``, or one of those in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "The part of the package six that programs written for Chainer use.")
        vars(self)["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        if self.__name__ == "six" and name in _NAMES:
            return _NAMES[name]
        if self.__name__ == "six.moves" and name in _MOVES:
            return _MOVES[name]
        if f"{self.__name__}.{name}" == "six.moves" or _module(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} (Kusari's, as six is not installed) has no attribute {name!r}")


def _module(fullname: str) -> str | None:
    """Return the module of Python's that a name below ``six.moves`` stands for, or None."""
    return _MODULES.get(fullname.removeprefix("six.moves.")) if fullname.startswith("six.moves.") else None


class SixFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``six`` and the modules in it; to be asked last, after an installed one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname in ("six", "six.moves") or _module(fullname) is not None
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Six(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if name := _module(module.__name__):
            found = importlib.import_module(name)
            vars(module).update({key: value for key, value in vars(found).items() if not key.startswith("__")})


def withdraw() -> None:
    """Forget the module ``six``, if it is this one."""
    for name in [name for name, module in list(sys.modules.items()) if isinstance(module, _Six)]:
        del sys.modules[name]
