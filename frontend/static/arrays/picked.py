"""Elements that a mask has picked, ``b[mask]``: as many as the mask says, which no shape of a graph can say.

Most of them are stored under the same mask at once, ``a[mask] = b[mask]``, and that is a choice between two arrays. So
the read is recorded only when anything else needs its result. Slices between computed numbers, ``x[:, i:i + 8]``, are
rows by an array of integers, where they are as many in other calls; else replays compare the numbers (``x[:n]``).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Node, Value

from ... import functions as F
from ...variable import Variable
from ..computed_numbers import ComputedNumber
from . import numpy_calls

if TYPE_CHECKING:
    from ..trace.recorder import Tape


_WHOLE = slice(None)
_OF_NUMPY = {"fn", "spec", "name", "errors"}  # the attributes of a node of NumPy's, which changes nothing


@dataclass(frozen=True)
class _Pick:
    """Elements of ``array``, which had the value ``source``, where ``mask`` is true; ``record`` records the read."""

    result: Any
    array: Any
    source: Value
    mask: Value
    record: Callable[[], None]


class Picked:
    """The reads of one call by masks that are not recorded. Invariant: their results are kept alive."""

    def __init__(self) -> None:
        self._picks: dict[int, _Pick] = {}

    def take(self, result: Any, array: Any, source: Value, mask: Value, record: Callable[[], None]) -> None:
        """Take in a result, which ``record`` gives a value."""
        self._picks[id(result)] = _Pick(result, array, source, mask, record)

    def settle(self, array: Any) -> None:
        """Give an array its value, if it is such a result."""
        if self._picks and (pick := self._picks.pop(id(array), None)) is not None:
            pick.record()

    def settle_all(self, tree: Any) -> None:
        """Give all such results in a tree their values."""
        if self._picks:
            for x in tree.values() if type(tree) is dict else tree:
                if isinstance(x, (tuple, list, dict)):
                    self.settle_all(x)
                else:
                    self.settle(x)

    def source(self, tape: Tape, mask: Any, result: Any) -> Any:
        """Return the array of which ``mask`` has picked ``result``; None if none is known."""
        pick = self._picks.get(id(result))
        if pick is None or tape.known(pick.array) is not pick.source:
            return None
        value = tape.known(mask)
        return pick.array if value is not None and _equal(value, pick.mask, tape.nodes) else None


def _equal(a: Value, b: Value, nodes: list[Node]) -> bool:
    """Whether two values are one, or computed in the same way."""
    if a is b:
        return True
    first, second = (next((n for n in reversed(nodes) if v in n.outputs), None) for v in (a, b))
    if first is None or second is None or first.op is not second.op or len(first.inputs) != len(second.inputs):
        return False
    if first.outputs.index(a) != second.outputs.index(b) or not _are_alike(first, second):
        return False
    return all(_equal(x, y, nodes) for x, y in zip(first.inputs, second.inputs, strict=True))


def _are_alike(a: Node, b: Node) -> bool:
    """Whether two nodes of one op do the same: functions of ours, or of NumPy's that Python runs."""
    if a.attrs.keys() == b.attrs.keys() == _OF_NUMPY:
        return all(a.attrs[name] == b.attrs[name] for name in ("fn", "spec"))
    key = a.op.key
    return key is not None and not a.has_effect and key(a.attrs) == key(b.attrs)


def copied(tape: Tape, array: Any, mask: Any, source: Any) -> Any:
    """Return the recorded value of ``array`` after ``array[mask] = source[mask]``; None if it is none."""
    if array.shape != source.shape:
        return None

    def choose(x: Variable, m: Variable, y: Variable) -> Variable:
        m = F.reshape(m, m.shape + (1,) * (x.ndim - m.ndim))
        return F.where(F.broadcast_to(m, x.shape), F.cast(y, x.dtype), x)

    def original(x: Any, m: Any, y: Any) -> Any:
        made = x.copy()
        made[m] = y[m]
        return made
    return numpy_calls.recorded(tape, choose, original, (array, mask, source))


def is_mask(key: Any) -> bool:
    """Whether an index is an array of booleans."""
    return type(key) is np.ndarray and key.dtype == bool


# -- slices between computed numbers -----------------------------------------------------------------------------------


def is_between_numbers(index: Any) -> bool:
    """Whether an index is a slice between a computed integer and the same with a number added: as many rows always."""
    if type(index) is not slice or not all(isinstance(x, ComputedNumber) and isinstance(x, (int, np.integer)) for x in (
            index.start, index.stop)) or not (index.step is None or type(index.step) is int):
        return False
    return _root(index.start) is _root(index.stop)


def _root(number: Any) -> Any:
    return number if number.kusari_sum is None else number.kusari_sum[0]


def taken(rows_of: Callable[[slice, int], Any], x: Any, key: Any, take: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return ``x`` and an index, of which ``take`` has done all such slices; ``rows_of`` gives their rows, or None."""
    keys = list(key) if type(key) is tuple else [key]
    if not any(map(is_between_numbers, keys)) or any(isinstance(i, (list, bool)) or hasattr(i, "ndim") and not (
            isinstance(i, ComputedNumber)) for i in keys):
        return x, key
    axis, more = 0, x.ndim - sum(i is not None and i is not Ellipsis for i in keys)
    for n, i in enumerate(keys):
        if is_between_numbers(i) and axis < x.ndim:
            rows = rows_of(i, x.shape[axis])
            if rows is None:
                return x, key
            x, keys[n] = take(x, (*[_WHOLE] * axis, rows)), _WHOLE
        axis += more if i is Ellipsis else i is not None
    return x, tuple(keys)


def stored(rows_of: Callable[[slice, int], Any], x: Any, key: Any) -> Any:
    """Return an index to store to with rows in the place of such a slice, where all others are slices."""
    keys = list(key) if type(key) is tuple else [key]
    found = [n for n, i in enumerate(keys) if is_between_numbers(i)]
    if len(found) != 1 or any(type(i) is not slice for i in keys) or len(keys) > x.ndim:
        return key
    rows = rows_of(keys[found[0]], x.shape[found[0]])
    if rows is not None:
        keys[found[0]] = rows
    return tuple(keys)


def plain_index(index: Any) -> Any:
    """Return an index with plain numbers, which are not read."""
    if type(index) is slice:
        return slice(*plain_index((index.start, index.stop, index.step)))
    if type(index) is tuple:
        return tuple(map(plain_index, index))
    return index.kusari_value if isinstance(index, ComputedNumber) else index
