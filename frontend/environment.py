"""How environment variables are read: ``KUSARI_NAME``, else ``CHAINER_NAME``; docs/debugging.md lists all.

The layers below read theirs, which Chainer does not have, from ``os.environ``.
"""
from __future__ import annotations

import os

_PREFIXES = ("KUSARI_", "CHAINER_")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


def text(name: str, default: str = "") -> str:
    """Return ``KUSARI_<name>``, else ``CHAINER_<name>``, else `default`."""
    for prefix in _PREFIXES:
        value = os.environ.get(prefix + name)
        if value is not None:
            return value
    return default


def variable(name: str) -> str:
    """Return the full name of the variable that is in force, for messages."""
    for prefix in _PREFIXES:
        if prefix + name in os.environ:
            return prefix + name
    return _PREFIXES[0] + name


def flag(name: str, default: bool = False) -> bool:
    """Return a yes-or-no variable; raises ValueError when it is neither."""
    value = text(name, "1" if default else "0").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"{variable(name)} must be 0 or 1, but it is {value!r}.")


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """Return a variable that must be one of `allowed`; raises ValueError when it is not."""
    value = text(name, default).strip()
    if value not in allowed:
        raise ValueError(f"{variable(name)} must be one of {', '.join(allowed)}, but it is {value!r}.")
    return value


# All names behind KUSARI_, as docs/debugging.md has them; and those for processes that a script starts, and for tests.
_KNOWN = ("CACHE", "CACHE_DIR", "CACHE_SIZE", "CHECK", "CPU_CODEGEN", "CUDA_GRAPH", "CUDA_LIBRARIES",
          "CUDNN_FAST_BATCH_NORMALIZATION", "DATASET_ROOT", "DEBUG", "DTYPE", "DUMP", "FOLLOW_STATIC", "JOIN_LOOPS",
          "KEEP_DEFINE_BY_RUN", "KEEP_GRAPH_ON_REPORT", "LAZY_GRAD_SUM", "LOG", "NUMPY_ALIASES", "NUM_THREADS",
          "PASSES", "PROGRESS", "RANKS_PER_NODE", "TEST_GPU_LIMIT", "TYPE_CHECK", "USE_CUDNN", "USE_CUDNN_TENSOR_CORE",
          "USE_IDEEP", "USE_STATIC_GRAPH", "WARN_NONDETERMINISTIC", "WINOGRAD")
_INTERNAL = ("SCRIPT", "EXAMPLES", "ORACLE")


def check() -> None:
    """Raise ValueError where a variable ``KUSARI_…`` is none, or one that a layer below reads has an odd value."""
    prefix = _PREFIXES[0]
    wrong = [name for name in os.environ if name.startswith(prefix) and name[len(prefix):] not in _KNOWN + _INTERNAL]
    if wrong:
        raise ValueError(f"{' and '.join(sorted(wrong))}: there is no such variable. Known are "
                         f"{', '.join(prefix + name for name in _KNOWN)}; docs/debugging.md has their meanings.")
    for name in ("CACHE", "NUMPY_ALIASES", "PROGRESS"):
        flag(name, True)
    size = text("CACHE_SIZE").strip() or "0"
    if not size.isdecimal():
        raise ValueError(f"{variable('CACHE_SIZE')} must be a number of bytes, but it is {size!r}.")


_LOGS = ("cache", "passes", "static")  # loggers below "kusari"


def show_logs() -> None:
    """Send the logs that ``KUSARI_LOG`` names to stderr; without it, nothing is set up and ``logging`` not imported.

    Raises ValueError when there is no log of a name, and when ``KUSARI_DUMP`` names no folder.
    """
    parts = [part.strip() for part in text("LOG").split(",") if part.strip()]
    if wrong := [part for part in parts if part not in _LOGS]:
        raise ValueError(f"{variable('LOG')} must name logs, separated by commas, of {', '.join(_LOGS)}; "
                         f"there is none called {', '.join(map(repr, wrong))}.")
    dump = os.environ.get("KUSARI_DUMP", "")
    if dump.lower() in (*_LOGS, *_TRUE, *_FALSE[:-1]):
        raise ValueError(f"KUSARI_DUMP must be the folder that graphs are written to, but it is {dump!r}; "
                         f"if a folder is called that, write {os.path.join(os.curdir, dump)!r}.")
    if os.path.exists(dump) and not os.path.isdir(dump):
        raise ValueError(f"KUSARI_DUMP must be the folder that graphs are written to, but {dump!r} is a file.")
    if parts:
        import logging

        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logging.getLogger("kusari").addHandler(handler)
        for part in parts:
            logging.getLogger(f"kusari.{part}").setLevel(logging.DEBUG)
