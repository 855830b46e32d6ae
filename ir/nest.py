"""Loop nests: the computation of a fused body at every point of its iteration domain, in order."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from .alignment import Alignment, NotANest, align
from .expr import Arg, Call, Expr, Lit, expr_dtype, strong, walk
from .graph import Graph, Node, Value
from .types import DType

TRANSCENDENTAL = frozenset((
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh erf erfc power"
).split())
COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum",
           "any": "logical_or", "all": "logical_and"}


@dataclass(frozen=True)
class Dim:
    """One loop of the domain; a reduced one runs inside all that are not."""

    extent: int
    reduced: bool


@dataclass(frozen=True)
class Buffer:
    """An operand or an output: elements between neighbours along each dim, 0 where it is broadcast.

    A ``part`` is a slice of its buffer that begins at element ``offset``.
    """

    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0
    part: bool = False


@dataclass(frozen=True)
class Step:
    """One value per point: ``load`` of operand ``operand``, ``index`` (a sum of loop counters by ``strides``),
    ``call`` of the scalar function ``fn``, or ``reduce`` (the value of ``args[0]`` folded with ``fn``).

    ``args`` are earlier steps or literals; ``dims`` are the loops it varies with; ``stage`` is the number of
    reductions that must have finished before.
    """

    kind: Literal["load", "index", "call", "reduce"]
    dtype: DType
    dims: tuple[int, ...]
    stage: int
    fn: str = ""
    args: tuple[int | Lit, ...] = ()
    operand: int = -1
    strides: tuple[int, ...] = ()

    @property
    def sources(self) -> tuple[int, ...]:
        """The steps that this one reads."""
        return tuple(a for a in self.args if isinstance(a, int))


@dataclass(frozen=True)
class Nest:
    """The analysis of a body: dims from the outermost to the innermost, operands, outputs and steps in order.

    ``results[i]`` is the step whose value output ``i`` holds. Neighbouring dims of one kind along which every
    buffer is contiguous are one dim. There is always at least one dim.
    """

    dims: tuple[Dim, ...]
    operands: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    results: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def stages(self) -> int:
        """Number of sweeps over the reduced dims."""
        return 1 + max(s.stage for s in self.steps)

    @property
    def size(self) -> int:
        """Points of the domain."""
        return prod(d.extent for d in self.dims)

    @property
    def traffic(self) -> int:
        """Bytes of all operands and outputs, every element that is read or written counted once."""
        return sum(b.dtype.itemsize * prod([d.extent for d, s in zip(self.dims, b.strides, strict=True) if s])
                   for b in (*self.operands, *self.outputs))

    def is_full(self, output: int) -> bool:
        """Whether an output has an element for every point, not for every row."""
        return all(s or d.extent == 1 for s, d in zip(self.outputs[output].strides, self.dims, strict=True))

    def store_stage(self, output: int) -> int:
        """The sweep in which an output of the full domain is written."""
        return self.steps[self.results[output]].stage

    def needed(self, stage: int) -> list[bool]:
        """For each step whether sweep ``stage`` computes it when nothing is kept from earlier sweeps.

        A sweep that reads the result of a reduction never computes that reduction.
        """
        marks = [False] * len(self.steps)
        for s in self.steps:
            if s.kind == "reduce" and self.steps[s.sources[0]].stage == stage:
                marks[s.sources[0]] = True
        for o, r in enumerate(self.results):
            if self.is_full(o) and self.store_stage(o) == stage:
                marks[r] = True
        for i in range(len(self.steps) - 1, -1, -1):
            if marks[i] and self.steps[i].kind != "reduce":
                for a in self.steps[i].sources:
                    marks[a] = True
        return marks

    def overwrites(self) -> list[tuple[int, int]]:
        """Pairs (output, operand) where the output may have the operand's buffer.

        Invariant: both have the same bytes at every index, and no sweep after the one that writes the output reads
        the operand.
        """
        last = [-1] * len(self.operands)
        for stage in range(self.stages):
            for s, wanted in zip(self.steps, self.needed(stage), strict=True):
                if wanted and s.kind == "load":
                    last[s.operand] = stage
        read = self._operands_read()
        pairs: list[tuple[int, int]] = []
        for o, out in enumerate(self.outputs):
            for i in read:
                operand = self.operands[i]
                if operand.part:
                    continue
                if operand.strides != out.strides or operand.dtype.itemsize != out.dtype.itemsize:
                    continue
                if not self.is_full(o) or last[i] <= self.store_stage(o):
                    pairs.append((o, i))
        return pairs

    def _operands_read(self) -> list[int]:
        """The operands on which an output depends; the strides of others mean nothing."""
        marks = [False] * len(self.steps)
        for r in self.results:
            marks[r] = True
        for i in range(len(self.steps) - 1, -1, -1):
            if marks[i]:
                for a in self.steps[i].sources:
                    marks[a] = True
        return sorted(s.operand for s, m in zip(self.steps, marks, strict=True) if m and s.kind == "load")


def identity(fn: str, dtype: DType) -> float | int | bool:
    """The element that changes nothing when it is folded in by a reduction."""
    if fn in ("sum", "any"):
        return 0
    if fn in ("prod", "all"):
        return 1
    if dtype.kind == "f":
        return -np.inf if fn == "max" else np.inf
    if dtype.kind == "b":
        return fn == "min"
    info = np.iinfo(dtype)
    return int(info.min if fn == "max" else info.max)


class _Steps:
    """Collects steps, each distinct one once."""

    def __init__(self) -> None:
        self.rows: list[Step] = []
        self._known: dict[Step, int] = {}

    def add(self, step: Step) -> int:
        found = self._known.get(step)
        if found is None:
            found = self._known[step] = len(self.rows)
            self.rows.append(step)
        return found

    def call(self, fn: str, args: tuple[int | Lit, ...]) -> int:
        sources = [self.rows[a] for a in args if isinstance(a, int)]
        dtype = call_dtype(fn, tuple(a if isinstance(a, Lit) else self.rows[a].dtype for a in args))
        if len(args) == 1 and sources and fn == dtype.name and sources[0].dtype == dtype:
            return next(a for a in args if isinstance(a, int))  # a cast to its own dtype
        dims = tuple(sorted({d for s in sources for d in s.dims}))
        return self.add(Step("call", dtype, dims, max((s.stage for s in sources), default=0), fn, args))


@lru_cache(maxsize=4096)
def call_dtype(fn: str, args: tuple[Lit | DType, ...]) -> DType:
    """The dtype of one scalar function of literals and of elements of known dtypes."""
    dtypes = tuple(a for a in args if not isinstance(a, Lit))
    count = iter(range(len(dtypes)))
    return expr_dtype(Call(fn, tuple(a if isinstance(a, Lit) else Arg(next(count)) for a in args)), dtypes)


def _expression(steps: _Steps, expr: Expr, args: list[int]) -> int:
    done: dict[Expr, int | Lit] = {}
    for e in walk(expr):
        if isinstance(e, Arg):
            done[e] = args[e.index]
        elif isinstance(e, Lit):
            done[e] = e
        else:
            done[e] = steps.call(e.fn, tuple(done[a] for a in e.args))
    root = done[expr]
    return steps.call(strong(root.value).fn, (root,)) if isinstance(root, Lit) else root


def _compute(steps: _Steps, env: dict[Value, int], node: Node, space: Alignment) -> int:
    """Add the steps of one node."""
    name = node.op.name
    if name == "map":
        return _expression(steps, node.attrs["expr"], [env[v] for v in node.inputs])
    if name == "arange":
        strides = space.strides(node.output)
        dims = tuple(i for i, s in enumerate(strides) if s)
        return steps.add(Step("index", node.output.tensor.dtype, dims, 0, strides=strides))
    source = env[node.inputs[0]]
    own = space.axes[node.inputs[0]]
    if name == "reduce" and any(own[i] is not None for i in node.attrs["axes"]):
        row = steps.rows[source]
        dims = tuple(i for i, a in enumerate(space.order) if a not in space.reduced)
        return steps.add(Step("reduce", row.dtype, dims, row.stage + 1, node.attrs["fn"], (source,)))
    return source


_known: WeakKeyDictionary[Graph, Nest] = WeakKeyDictionary()


def nest_of(body: Graph) -> Nest:
    """Return the analysis of ``body``; raises ``NotANest`` with the reason when it does not fit one loop nest.

    Memory planning and code generation both ask, so the answer is kept as long as the body lives.
    """
    nest = _known.get(body)
    if nest is None:
        nest = _known[body] = _analyse(body)
    return nest


def _analyse(body: Graph) -> Nest:
    if body.params or body.consts:
        raise NotANest("a body has inputs only, no params or constants")
    for v in body.outputs:
        if v in body.inputs:
            raise NotANest("an output is an input")
    space = align(body.nodes, body.outputs)
    steps = _Steps()
    env: dict[Value, int] = {}
    operands: list[Buffer] = []
    slices = {n.inputs[0]: n for n in body.nodes if n.op.name == "slice"}
    if sum(v in slices for n in body.nodes for v in n.inputs) > len(slices):
        raise NotANest("an input that is sliced is read in another way too")
    for v in body.inputs:
        buffer = _part(slices[v], space) if v in slices else Buffer(v.tensor.dtype, _strides(v, space))
        dims = tuple(i for i, s in enumerate(buffer.strides) if s)
        read = slices[v].output if v in slices else v
        env[read] = steps.add(Step("load", v.tensor.dtype, dims, 0, operand=len(operands)))
        operands.append(buffer)
    for node in body.nodes:
        if node.op.name != "slice":
            env[node.output] = _compute(steps, env, node, space)
    outputs = [Buffer(v.tensor.dtype, space.strides(v)) for v in body.outputs]
    dims = [Dim(n, a in space.reduced) for a, n in zip(space.order, space.extents, strict=True)]
    nest = _collapse(dims, operands, outputs, tuple(env[v] for v in body.outputs), steps.rows)
    for buffer in (*nest.operands, *nest.outputs):
        if buffer.strides[-1] not in (0, 1) and not buffer.part:
            raise NotANest("an operand is not contiguous along the innermost loop")
    return nest


def _strides(v: Value, space: Alignment) -> tuple[int, ...]:
    return space.strides(v) if v in space.axes else (0,) * len(space.order)


def _part(node: Node, space: Alignment) -> Buffer:
    """Strides and first element of a slice in the buffer of its operand."""
    source = node.inputs[0]
    step = 1
    offset = 0
    found: dict[int, int] = {}
    places = zip(source.shape, node.attrs["starts"], node.attrs["steps"], space.axes[node.output], strict=True)
    for n, start, jump, axis in reversed(list(places)):
        offset += start * step
        if axis is not None:
            found[axis] = jump * step
        step *= n
    return Buffer(source.tensor.dtype, tuple(found.get(a, 0) for a in space.order), offset, True)


def _collapse(dims: list[Dim], operands: list[Buffer], outputs: list[Buffer], results: tuple[int, ...],
              steps: list[Step]) -> Nest:
    """Join neighbouring dims where one loop does; see ``Nest``."""
    walked = [b.strides for b in (*operands, *outputs)] + [s.strides for s in steps if s.kind == "index"]
    groups: list[list[int]] = []
    for i, d in enumerate(dims):
        joins = groups and dims[i - 1].reduced == d.reduced and all(s[i - 1] == s[i] * d.extent for s in walked)
        if joins:
            groups[-1].append(i)
        else:
            groups.append([i])
    place = {i: g for g, group in enumerate(groups) for i in group}

    def kept(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[group[-1]] for group in groups) if groups else (0,)

    merged = tuple(Dim(prod(dims[i].extent for i in group), dims[group[0]].reduced) for group in groups)
    rows = tuple(Step(s.kind, s.dtype, tuple(sorted({place[i] for i in s.dims})), s.stage, s.fn, s.args, s.operand,
                      kept(s.strides) if s.kind == "index" else ()) for s in steps)
    return Nest(merged or (Dim(1, False),),
                tuple(Buffer(b.dtype, kept(b.strides), b.offset, b.part) for b in operands),
                tuple(Buffer(b.dtype, kept(b.strides)) for b in outputs), results, rows)
