"""Indices as static attributes of functions, and back."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...variable import Variable

# An index as a static attribute: int, (start, stop, step), None, "..." for an ellipsis, "@" for an array that is an
# input of the node, ("#", nested tuple) for a list of integers.
Entry = Any


def encode(slices: Any) -> tuple[tuple[Entry, ...], list[Any]]:
    """Return an index as static entries, and the arrays in it."""
    entries: list[Entry] = []
    arrays: list[Any] = []
    for s in slices if isinstance(slices, tuple) else (slices,):
        if isinstance(s, slice):
            entries.append(tuple([None if v is None else int(v) for v in (s.start, s.stop, s.step)]))
        elif s is None:
            entries.append(None)
        elif s is Ellipsis:
            entries.append("...")
        elif isinstance(s, (int, np.integer)) and (computed := getattr(s, "kusari_array", None)) is not None:  # traced
            entries.append("@")
            arrays.append(computed)
        elif isinstance(s, (int, np.integer)) and not isinstance(s, (bool, np.bool_)):
            entries.append(int(s))
        elif isinstance(s, (list, tuple)):
            array = np.asarray(s, None if np.size(s) else np.int64)
            if array.dtype.kind == "b":
                entries.append("@")
                arrays.append(array)
            elif array.dtype.kind in "iu":
                entries.append(("#", _nested(array.tolist())))
            else:
                raise IndexError(f"an index list must hold integers or booleans, got {s!r}")
        elif isinstance(s, (bool, np.bool_)):
            entries.append("@")
            arrays.append(np.asarray(s))
        elif isinstance(s, Variable) or hasattr(s, "dtype"):
            entries.append("@")
            arrays.append(s)
        else:
            raise IndexError("only integers, slices, ellipsis, None, and integer or boolean arrays are valid indices, "
                             f"got {s!r}")
    if entries.count("...") > 1:
        raise ValueError("an index can have one ellipsis only")
    return tuple(entries), arrays


def _nested(x: Any) -> Any:
    return tuple([_nested(v) for v in x]) if isinstance(x, list) else x


def _lists(x: Any) -> Any:
    return [_lists(v) for v in x] if isinstance(x, tuple) else x


def decode(entries: tuple[Entry, ...], arrays: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the index that NumPy takes."""
    rest = iter(arrays)
    index: list[Any] = []
    for e in entries:
        if isinstance(e, tuple):
            index.append(_lists(e[1]) if e and e[0] == "#" else slice(*e))
        elif isinstance(e, str):
            index.append(Ellipsis if e == "..." else next(rest))
        else:
            index.append(e)
    return tuple(index)


def spread_ellipsis(entries: tuple[Entry, ...], ndim: int) -> list[Entry]:
    """Replace the ellipsis by whole slices, so that every axis has its entry."""
    used = sum(e is not None and e != "..." for e in entries)
    full = [(None, None, None)] * (ndim - used)
    if "..." in entries:
        i = entries.index("...")
        return [*entries[:i], *full, *entries[i + 1:]]
    return [*entries, *full]
