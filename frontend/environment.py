"""Every environment variable that Kusari reads, in one place.

| variable | default | meaning |
|---|---|---|
| ``KUSARI_DTYPE`` | ``float32`` | ``config.dtype``: ``mixed16``, ``float16``, ``float32`` or ``float64`` |
| ``KUSARI_DEBUG`` | ``0`` | ``config.debug`` |
| ``KUSARI_TYPE_CHECK`` | ``1`` | ``config.type_check`` |
| ``KUSARI_KEEP_GRAPH_ON_REPORT`` | ``0`` | ``config.keep_graph_on_report`` |
| ``KUSARI_KEEP_DEFINE_BY_RUN`` | ``1`` | ``config.keep_define_by_run`` |
| ``KUSARI_LAZY_GRAD_SUM`` | ``0`` | ``config.lazy_grad_sum`` |
| ``KUSARI_WARN_NONDETERMINISTIC`` | ``0`` | ``config.warn_nondeterministic`` |
| ``KUSARI_USE_STATIC_GRAPH`` | ``1`` | ``config.use_static_graph`` |
| ``KUSARI_CPU_CODEGEN`` | ``llvm`` | ``config.cpu_codegen``: ``llvm`` or ``numba`` |
| ``KUSARI_WINOGRAD`` | ``4`` | ``config.winograd``: ``0``, ``2`` or ``4`` |
| ``KUSARI_USE_CUDNN`` | ``auto`` | ``config.use_cudnn``: ``always``, ``auto`` or ``never`` |
| ``KUSARI_USE_CUDNN_TENSOR_CORE`` | ``auto`` | ``config.use_cudnn_tensor_core`` |
| ``KUSARI_CUDNN_FAST_BATCH_NORMALIZATION`` | ``0`` | ``config.cudnn_fast_batch_normalization`` |
| ``KUSARI_USE_IDEEP`` | ``never`` | ``config.use_ideep``; accepted and ignored |
| ``KUSARI_DATASET_ROOT`` | ``~/.kusari/dataset`` | where downloaded data sets are kept |
| ``KUSARI_SEED`` | random | default seed of the GPU's random generators |
| ``KUSARI_NUM_THREADS`` | all cores | size of the kernel thread pool |
| ``KUSARI_CACHE_DIR`` | the user's cache folder | where compiled kernels are kept |
| ``KUSARI_LOG`` | off | parts of the compiler, like ``passes``, whose log goes to stderr; separated by commas |
| ``KUSARI_CHECK`` | ``0`` | verify every static call, check every memory plan by simulation |
| ``KUSARI_DUMP`` | off | a folder for the text of every graph, after each pass |

Where a ``KUSARI_*`` variable is not set, the ``CHAINER_*`` variable of the same ending is honoured.
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


def show_logs() -> None:
    """Send the logs that ``KUSARI_LOG`` names to stderr; without it, nothing is set up and ``logging`` not imported."""
    parts = [part.strip() for part in text("LOG").split(",") if part.strip()]
    if parts:
        import logging

        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logging.getLogger("kusari").addHandler(handler)
        for part in parts:
            logging.getLogger(f"kusari.{part}").setLevel(logging.INFO)
