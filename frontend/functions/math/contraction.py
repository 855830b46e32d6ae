"""Sums of products over labelled axes, as matrix products: the same steps on arrays and on values of the compiler."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any


def contract(b: Any, terms: Sequence[str], output: str, xs: Sequence[Any], dtype: Any) -> Any:
    """The sum of products of ``xs``, whose axes are labelled by ``terms``, with the axes ``output``.

    ``b`` is a ``Builder`` with its values or ``Arrays`` with arrays. Two operands at a time become a matrix product
    (an elementwise one where there is nothing to sum); of more than two, those with the smallest result come first.
    """
    rest = [(t, b.cast(x, dtype)) for t, x in zip(terms, xs, strict=True)]
    while len(rest) > 1:
        found: tuple[int, int, int] | None = None
        for j in range(1, len(rest)):
            for i in range(j if len(rest) > 2 else 1):
                size = _size(rest[i], rest[j], _kept(rest, output, i, j))
                if found is None or size < found[0]:
                    found = size, i, j
        assert found is not None
        _, i, j = found
        kept = _kept(rest, output, i, j)
        wanted = output if len(rest) == 2 else "".join(c for c in dict.fromkeys(rest[i][0] + rest[j][0]) if c in kept)
        made = wanted, _pair(b, rest[i], rest[j], wanted)
        rest = [made if k == i else r for k, r in enumerate(rest) if k != j]
    return _alone(b, *rest[0], output)


def _kept(rest: Sequence[tuple[str, Any]], output: str, i: int, j: int) -> set[str]:
    """The labels that are needed after ``i`` and ``j`` have become one."""
    return set(output).union(*(t for k, (t, _) in enumerate(rest) if k not in (i, j)))


def _extents(*labelled: tuple[str, Any]) -> dict[str, int]:
    return {c: n for t, x in labelled for c, n in zip(t, x.shape, strict=True)}


def _size(left: tuple[str, Any], right: tuple[str, Any], kept: set[str]) -> int:
    return prod(n for c, n in _extents(left, right).items() if c in kept)


def _alone(b: Any, term: str, x: Any, output: str) -> Any:
    """One operand: what is not in the output is summed, the rest put in order."""
    gone = [i for i, c in enumerate(term) if c not in output]
    if gone:
        shape = [n for i, n in enumerate(x.shape) if i not in gone]
        x = b.reshape(b.reduce("sum", x, gone), shape)
        term = "".join(c for c in term if c in output)
    order = [term.index(c) for c in output]
    return x if order == list(range(len(order))) else b.transpose(x, order)


def _pair(b: Any, left: tuple[str, Any], right: tuple[str, Any], output: str) -> Any:
    """Two operands: as a matrix product, batched over the labels that both and the output have."""
    extents = _extents(left, right)
    (t, x), (u, y) = ((s, z) if set(s) <= known else (w := "".join(c for c in s if c in known), _alone(b, s, z, w))
                      for (s, z), known in ((left, {*output, *right[0]}), (right, {*output, *left[0]})))
    both = [c for c in t if c in u]
    summed = [c for c in both if c not in output]
    if not summed:  # nothing to add up: a product of every pair
        return b.call("multiply", _spread(b, t, x, output), _spread(b, u, y, output))
    batch = [c for c in output if c in both]
    rows, columns = [c for c in output if c in t and c not in both], [c for c in output if c in u and c not in both]
    if not rows and not columns:
        whole = "".join(batch + summed)
        z = b.call("multiply", _spread(b, t, x, whole), _spread(b, u, y, whole))
        return _alone(b, whole, z, output)
    n = [prod(extents[c] for c in group) for group in (rows, columns, summed)]
    lead = [extents[c] for c in batch]
    product = b.matmul(b.reshape(_ordered(b, t, x, [*batch, *rows, *summed]), (*lead, n[0], n[2])),
                       b.reshape(_ordered(b, u, y, [*batch, *summed, *columns]), (*lead, n[2], n[1])))
    made = "".join((*batch, *rows, *columns))
    return _alone(b, made, b.reshape(product, [extents[c] for c in made]), output)


def _ordered(b: Any, term: str, x: Any, labels: Sequence[str]) -> Any:
    order = [term.index(c) for c in labels]
    return x if order == list(range(len(order))) else b.transpose(x, order)


def _spread(b: Any, term: str, x: Any, output: str) -> Any:
    """``x`` with the axes of ``output``, of extent 1 where it has none."""
    x = _ordered(b, term, x, [c for c in output if c in term])
    extents = iter(x.shape)
    return b.reshape(x, [next(extents) if c in term else 1 for c in output])

