"""Primitives on arrays: calls of NumPy one after the other, which write to arrays that nothing reads any more."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from math import prod
from operator import itemgetter
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from kusari.ir import CASTS, SCALARS, Arg, Call, Expr, Lit, Node, Value, fold, used_args, walk
from kusari.ir.primitives import common_shape, line_index

from .symbolic import masked

_REDUCED = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
            "all": np.logical_and}
_VIEWS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "reshape": lambda attrs: lambda x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs: lambda x: x.transpose(attrs["axes"]),
    "broadcast_to": lambda attrs: lambda x: np.broadcast_to(x, attrs["shape"]),
    "part": lambda attrs: itemgetter(slice(attrs["start"], attrs["stop"])),
    "slice": lambda attrs: itemgetter(tuple([
        slice(a, b if s > 0 or b >= 0 else None, s)
        for a, b, s in zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)])),
}
MOST_FOLDED_ELEMENTS = 1 << 16  # of a constant that is kept
_BY_KEYWORD = (np.maximum, np.minimum)  # NumPy takes no array for their results by position, which is faster
_Result = tuple[int, np.dtype[Any], tuple[int, ...]]  # a number, dtype and shape


class _Step(NamedTuple):
    """A call: the numbers of what it reads and makes, and of the array its result shares memory with (or itself).

    ``more`` are arguments behind the operands: in the text they take half the time of `partial`'s.
    """

    fn: Callable[..., Any]
    reads: tuple[int, ...]
    made: _Result
    root: int
    more: tuple[Any, ...]


class _AddAt:
    """Adds numbers to one element of each line along an axis: to ``x`` itself where that is the last operand, too."""

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def __call__(self, x: Any, g: Any, indices: Any, out: Any = None) -> Any:
        x = x if out is x else x.copy()
        x[line_index(indices, self._axis)] += g
        return x


class _Calls:
    """The calls that nodes come to; equal ones are made once."""

    def __init__(self, inputs: Sequence[Value]) -> None:
        self.steps: list[_Step] = []
        self.literals: dict[int, Any] = {}
        self.effects: list[int] = []
        self.count = 0
        self.of: dict[Value, _Result] = {}
        self.roots: dict[int, int] = {}
        self._spread: set[int] = set()  # made by broadcasting: elements share memory
        self._put: dict[int, tuple[Any, Sequence[_Result]]] = {}
        self._known: dict[Any, _Result] = {}
        for v in inputs:
            self.of[v] = self._number(v.tensor.dtype, v.shape)

    def _number(self, dtype: Any, shape: tuple[int, ...], root: int = -1) -> _Result:
        found = (self.count, dtype, shape)
        self.roots[self.count] = self.count if root < 0 else root
        self.count += 1
        return found

    def _call(self, fn: Callable[..., Any], reads: Sequence[_Result], dtype: Any, shape: tuple[int, ...],
              view: bool = False, folds: bool = True, more: tuple[Any, ...] = ()) -> _Result:
        made = self._number(dtype, shape, self.roots[reads[0][0]] if view else -1)
        if folds and all(r[0] in self.literals for r in reads):  # the same in every call
            self.literals[made[0]] = fn(*[self.literals[r[0]] for r in reads], *more)
            return made
        self.steps.append(_Step(fn, tuple([r[0] for r in reads]), made, self.roots[made[0]], more))
        return made

    def add(self, node: Node) -> None:
        """Add the calls of a node."""
        name, attrs, reads = node.op.name, node.attrs, [self.of[v] for v in node.inputs]
        if name == "map":
            self.of[node.output] = self._map(attrs["expr"], reads)
            return
        view, more = name in _VIEWS, ()
        if view:
            fn = _VIEWS[name](attrs)
        elif name == "reduce":
            ufunc = _REDUCED[attrs["fn"]]
            kind = None if reads[0][1].kind == "f" or attrs["fn"] not in ("sum", "prod") else reads[0][1]
            axes = attrs["axes"]
            fn, more = ufunc.reduce, (axes[0] if len(axes) == 1 else axes, kind, None, True)
        elif name == "matmul" and not attrs["transa"] and not attrs["transb"]:
            fn = np.matmul
        else:
            fn = partial(node.op.call, attrs)
            folds = not node.op.has_effect and all(v.tensor.size <= MOST_FOLDED_ELEMENTS for v in node.outputs)
            results = self._call(fn, reads, None, (), folds=folds)
            if node.op.has_effect:
                self.effects.append(results[0])
            for i, v in enumerate(node.outputs):
                self.of[v] = self._call(itemgetter(i), [results], v.tensor.dtype, v.shape, view=True)
            if name == "put":
                self._put[self.of[node.output][0]] = attrs["axis"], reads
            return
        made = self.of[node.output] = self._call(
            fn, reads, node.output.tensor.dtype, node.output.shape, view, more=more)
        if name == "broadcast_to" or view and reads[0][0] in self._spread:
            self._spread.add(made[0])

    def _map(self, expr: Any, operands: Sequence[_Result]) -> _Result:
        if len({r[1] for r in operands}) == 1:
            expr = fold(expr, lambda e: e, lambda fn, xs: _product(fn, xs, operands))
        done: dict[Any, _Result] = {}
        for e in walk(expr):
            if isinstance(e, Arg):
                done[e] = operands[e.index]
            elif not isinstance(e, Call):
                key = (type(e.value), repr(e.value))
                if key not in self._known:
                    self._known[key] = self._number(None, ())
                    self.literals[self._known[key][0]] = e.value
                done[e] = self._known[key]
            else:
                reads = [done[a] for a in e.args]
                key = (e.fn, *[r[0] for r in reads])
                if key not in self._known:
                    fn = _function(e.fn, e, reads)
                    dtype = _dtype(e.fn, *[a if isinstance(a, Lit) else done[a][1] for a in e.args])
                    shape = common_shape(*[r[2] for r in reads])
                    if e.fn == "add" and not self._put.keys().isdisjoint(key[1:]) and reads[0][1:] == reads[1][1:]:
                        reads = sorted(reads, key=lambda r: r[0] in self._put)
                        axis, put = self._put[reads[1][0]]
                        fn, reads = _AddAt(axis), [reads[0], *put]
                    self._known[key] = self._call(fn, reads, dtype, shape, folds=prod(shape) <= MOST_FOLDED_ELEMENTS)
                done[e] = self._known[key]
        return done[expr]

    def results(self, values: Sequence[Value]) -> list[int]:
        """The numbers of results: not operands themselves nor constants, and no two of them share memory."""
        found: list[int] = []
        made = {s.made[0] for s in self.steps}
        taken = {i for i in self.roots if i in self.literals}
        for v in values:
            number, dtype, shape = self.of[v]
            root = self.roots[number]
            if root in taken or number not in made or number in self._spread:
                number = self._call(_copied, [(number, dtype, shape)], dtype, shape)[0]
                root = number
            taken.add(root)
            found.append(number)
        return found


@lru_cache(maxsize=4096)
def _dtype(fn: str, *operands: Any) -> np.dtype[Any]:
    """The dtype that a scalar function has of literals and of arrays of certain dtypes."""
    with np.errstate(all="ignore"):
        return np.asarray(SCALARS[fn].apply(np, *[x.value if isinstance(x, Lit) else np.ones(1, x)
                                                  for x in operands])).dtype


def _product(fn: str, xs: Sequence[Expr], operands: Sequence[_Result]) -> Expr:
    """A call; the factors of a product are multiplied smallest first."""
    if fn != "multiply":
        return Call(fn, tuple(xs))
    sizes: list[tuple[int, Expr]] = []
    for factor in (f for x in xs for f in (x.args if isinstance(x, Call) and x.fn == "multiply" else (x,))):
        shapes = [operands[i][2] for i in used_args(factor)]
        sizes.append((prod(common_shape(*shapes)), factor))
    if len({n for n, _ in sizes}) == 1:
        return Call(fn, tuple(xs))
    factors = [f for _, f in sorted(sizes, key=lambda row: row[0])]
    return reduce(lambda x, y: Call("multiply", (x, y)), factors)


def _copied(x: Any) -> Any:
    return x.copy()


def _function(name: str, call: Call, reads: Sequence[_Result]) -> Callable[..., Any]:
    fn = getattr(np, name, None)
    if isinstance(fn, np.ufunc):
        return fn
    if name in CASTS:
        kind = np.dtype(name.rstrip("_"))
        return lambda x: np.asarray(x).astype(kind)
    if name == "where" and getattr(call.args[2], "value", None) == 0 and reads[0][2] == reads[1][2]:
        return lambda condition, x, _: masked(np, condition, x)
    return partial(SCALARS[name].apply, np)


def array_function(inputs: Sequence[Value], nodes: Sequence[Node],
                   outputs: Sequence[Value]) -> Callable[..., tuple[Any, ...]]:
    """Return ``f(*arrays)``, which computes nodes of primitives by calls of NumPy.

    Results may be views of operands, as those of NumPy's functions.
    """
    calls = _Calls(inputs)
    for node in nodes:
        calls.add(node)
    results = calls.results(outputs)
    last = dict.fromkeys([calls.roots[i] for i in results], len(calls.steps))
    used = {*results, *calls.effects}
    for k in range(len(calls.steps) - 1, -1, -1):
        step = calls.steps[k]
        for i in step.reads if step.made[0] in used else ():
            used.add(i)
            last.setdefault(calls.roots[i], k)
    owned = {s.made[0]: s.made for s in calls.steps if s.root == s.made[0]}
    names = {**{i: f"a{i}" for i in range(len(inputs))}, **{i: f"c{i}" for i in calls.literals}}
    scope: dict[str, Any] = {"asarray": np.asarray, **{f"c{i}": v for i, v in calls.literals.items()}}
    lines = [f"def f({', '.join(names[i] for i in range(len(inputs)))}):"]
    for k, (fn, reads, made, _, more) in enumerate(calls.steps):
        if made[0] not in used:
            continue
        given, out = [names[i] for i in reads], f"t{made[0]}"
        if isinstance(fn, (np.ufunc, _AddAt)) and made[2] != ():
            # An array that nothing reads after this, of the type of the result, takes it.
            dead = [names[i] for i in reads if last[calls.roots[i]] == k and owned.get(i, ())[1:] == made[1:]]
            if dead:
                out = dead[0]
                given.append(f"out={out}" if fn in _BY_KEYWORD else out)
        names[made[0]] = out
        for i, value in enumerate(more):
            scope[f"m{k}_{i}"] = value
            given.append(f"m{k}_{i}")
        scope[f"f{k}"] = fn
        lines.append(f"    {out} = f{k}({', '.join(given)})")
    found = [names[i] if i in owned and owned[i][2] != () else f"asarray({names[i]})" for i in results]
    lines.append(f"    return ({''.join(f'{x}, ' for x in found)})")
    exec(_code("\n".join(lines)), scope)
    return scope["f"]


@lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    return compile(text, "<arrays>", "exec")
