"""Signatures as people write arguments: ``(100, 784) float32, w=0.5, list of 16: (5,) int32 × 9, (7,) int32 × 7``."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from ..trees import ARRAY, VARIABLE, leaf_kinds, parts_of

MOST_ITEMS = 6  # of a container, in a text that is to be short


def mode_and_arguments(key: Any, most: int | None = None) -> str:
    """Return a signature as text; with ``most``, containers show no more items than that."""
    return f"train={key[0]}, enable_backprop={key[1]}; {', '.join(_arguments(key[2:], most)) or 'no arguments'}"


def _arguments(parts: tuple[Any, ...], most: int | None) -> Iterator[str]:
    """Yield the text of each argument.

    Invariant: as `signature` writes them, a tree stands before the types of its leaves, an array is its type alone,
    and a name stands before the tree of a keyword argument. Numbers of arrays that are given twice come last.
    """
    i, name = 0, ""
    while i < len(parts):
        part = parts[i]
        if isinstance(part, str) and i + 1 < len(parts) and _is_tree(parts[i + 1]):
            i, name = i + 1, f"{part}="
            continue
        if _is_shape(part) and i + 1 < len(parts) and isinstance(parts[i + 1], np.dtype):
            yield f"{part} {parts[i + 1]}"
            i += 2
            continue
        if _is_shape(part):
            yield "one array more than once"
            return
        tree, i = part, i + 1
        leaves, i = _leaves(parts, i, len(leaf_kinds(tree)))
        yield name + _text(tree, iter(leaves), most)
        name = ""


def _is_tree(part: Any) -> bool:
    return isinstance(part, str) or type(part) is tuple and part != () and isinstance(part[0], str)


def _is_shape(part: Any) -> bool:
    return type(part) is tuple and all(type(x) is int for x in part)


def _leaves(parts: tuple[Any, ...], i: int, count: int) -> tuple[list[str], int]:
    """Return the texts of ``count`` leaves from place ``i`` on, and the place behind them."""
    found: list[str] = []
    while len(found) < count:
        part = parts[i]
        if _is_shape(part):
            found.append(f"{part} {parts[i + 1]}")
            i += 2
            continue
        found.append("uninitialized Variable" if part == (None,) else f"Variable {part[0]} {part[1]}")
        i += 1
        if i < len(parts) and isinstance(parts[i], type):  # of a class of its own
            i += 1
    return found, i


def _text(tree: Any, leaves: Iterator[str], most: int | None) -> str:
    if tree in (ARRAY, VARIABLE):
        return next(leaves)
    kind, children = tree[0], parts_of(tree)
    if children is None:
        return f"number {next(leaves)}" if kind == "number" else str(tree[-1])
    texts = [_text(child, leaves, most) for child in children]
    if kind == "dict":
        texts = [f"{_text(name, leaves, most)}: {text}" for name, text in zip(tree[1], texts, strict=True)]
    elif kind == "dataclass":
        texts = [f"{name}={text}" for name, text in zip(tree[2], texts, strict=True)]
    runs = [(text, len(list(run))) for text, run in groupby(texts)]
    shown = [f"{text} × {n}" if n > 1 else text for text, n in runs[:most]]
    more = sum(n for _, n in runs[len(shown):])
    named = tree[1].__name__ if kind in ("tuple", "dataclass") else kind
    return f"{named} of {len(texts)}: [{', '.join(shown + [f'{more} more'] * (more > 0))}]"
