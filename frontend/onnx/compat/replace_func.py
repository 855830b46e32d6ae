"""``onnx_chainer.replace_func``: functions that exports see as one, with ONNX-Chainer's warning."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...utils.experimental import experimental
from .. import replace_func

__all__ = ["as_funcnode", "fake_as_funcnode"]


def fake_as_funcnode(alt_func: Callable[..., Any], name: str,
                     rename_attributes: Sequence[tuple[Any, str]] | None = None,
                     experimental_warning: bool = True) -> Callable[..., Any]:
    """Return ``alt_func`` such that exporting sees one function; see `kusari.onnx.fake_as_funcnode`.

    >>> fake_as_funcnode(abs, "Abs", experimental_warning=False)(-1)
    1
    """
    if experimental_warning:
        experimental("as_funcnode")
    return replace_func.fake_as_funcnode(alt_func, name, rename_attributes)


def as_funcnode(name: str, rename_attributes: Sequence[tuple[Any, str]] | None = None) -> Callable[..., Any]:
    """Decorator form of `fake_as_funcnode`.

    >>> as_funcnode("Abs")  # doctest: +ELLIPSIS
    <function ...>
    """
    return lambda function: fake_as_funcnode(function, name, rename_attributes)
