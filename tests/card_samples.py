"""Kernels of the card, of every kind, with arrays to run them on."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from bodies import body, softmax
from contraction_cases import spec_of
from nest_bodies import BODIES

from kusari.codegen import TARGETS, generate
from kusari.codegen.contractions import Direction, GemmSpec
from kusari.codegen.cuda.contraction import conv, gemm
from kusari.codegen.cuda.nest.kernels import nest_kernels
from kusari.ir import PRIMITIVES, Arg, Builder, Call, Graph, Kernel, TensorType, Value, tensor_type
from kusari.ir.nest import nest_of
from kusari.ir.product import Rounding
from kusari.passes import plan

HALF = body(lambda b, x, y: b.call("maximum", b.call("tanh", b.call("add", x, 1)), b.cast(y, "float16")),
            ("float16", (40,)), ("float64", (40,)))
LONG = body(lambda b, x: (softmax(b, x), b.reduce("max", x, 1)), ("f4", (2, 100000)))
NODES = {
    "transpose": ([("f4", (70, 90))], dict(axes=(1, 0))),
    "concat": ([("f2", (3, 5)), ("f2", (3, 9))], dict(axis=1)),
    "pad_slice": ([("f8", (3, 5))], dict(starts=(1, 0), stops=(7, 5), steps=(2, 1), shape=(8, 9))),
    "full": ([], dict(shape=(9,), value=-2.5, dtype="float16")),
    "take": ([("f4", (9, 8)), ("i4", (5,))], {}),
    "scatter_add": ([("i8", (5,)), ("f2", (5, 8))], dict(shape=(9, 8))),
    "cumsum": ([("f4", (5, 300))], dict(axis=1, reverse=True)),
    "cumprod": ([("f8", (300, 5))], dict(axis=0)),
    "pool": ([("f4", (2, 3, 9, 9))],
             dict(fn="max", size=(4, 4), kernel=(3, 3), stride=(2, 2), pad=(0, 1), places=True)),
    "unpool": ([("f4", (2, 3, 4, 4)), ("i4", (2, 3, 4, 4))],
               dict(size=(9, 9), kernel=(3, 3), stride=(2, 2), pad=(0, 1))),
    "foreach": ([("f4", ()), *[("f4", (70,)), ("f2", (70,))] * 2],
                dict(exprs=(Call("subtract", (Arg(1), Call("multiply", (Arg(0), Arg(2))))),), shared=1, arity=2)),
}


@dataclass(frozen=True)
class Sample:
    """The kernels of a node, one behind the other, and the types of their operands."""

    name: str
    kernels: Sequence[Kernel]
    operands: Sequence[TensorType]

    def arrays(self) -> list[np.ndarray]:
        """Ones, and memory that kernels leave to each other."""
        found = [np.ones(t.shape, t.dtype) for t in self.operands]
        if any(name in self.name for name in ("take", "scatter_add")):
            found.append(np.zeros(2, np.int64))
        return found


def _of_nest(name: str, graph: Graph) -> Sample:
    return Sample(name, nest_kernels(nest_of(graph)), [v.tensor for v in (*graph.inputs, *graph.outputs)])


def _of_node(name: str) -> Sample:
    types, attrs = NODES[name]
    b = Builder()
    inputs = tuple(Value(tensor_type(*t)) for t in types)
    outputs = b.emit(PRIMITIVES[name], *inputs, **attrs)
    program = generate(plan(Graph(name, inputs, (), (), tuple(b.nodes), outputs)), TARGETS["avx2"], "cuda")
    return Sample(name, program.kernels, [v.tensor for v in program.instructions[0].operands])


def _of_product(name: str, m: int, n: int, k: int, dtype: str, factors: str = "", rounded: Rounding = "") -> Sample:
    spec = GemmSpec(m, n, k, transb=True, dtype=np.dtype(dtype), factors=np.dtype(factors) if factors else None,
                    rounded=rounded)
    kernels = [gemm.gemm_kernel(spec, i) for i in range(gemm.shape_of(spec).kernels)]
    inputs = [tensor_type(factors or dtype, s) for s in ((m, k), (n, k))]
    return Sample(name, kernels, [*inputs, tensor_type(dtype, (m, n))])


def _of_convolution(direction: Direction, factors: str = "") -> Sample:
    spec = spec_of(direction, n=2, c=6, k=4, size=(9, 8), kernel=(3, 3), stride=2, groups=2,
                   factors=np.dtype(factors) if factors else None)
    kernels = [conv.conv_kernel(spec, i) for i in range(conv.shape_of(spec).kernels)]
    x, w, y = (2, 6, 9, 8), (4, 3, 3, 3), (2, 4, *spec.out)
    shapes = {"forward": (x, w, y), "input": (y, w, x), "weight": (x, y, w)}[direction]
    inputs = [tensor_type(factors or "f4", s) for s in shapes[:2]]
    return Sample(direction, kernels, [*inputs, tensor_type("f4", shapes[2])])


DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")
#: A sample of every kind, which is made when it is called.
SAMPLES: dict[str, Callable[[], Sample]] = {
    **{name: partial(_of_nest, name, graph) for name, graph in {**BODIES, "half": HALF, "long": LONG}.items()},
    **{name: partial(_of_node, name) for name in NODES},
    "product": partial(_of_product, "product", 130, 140, 50, "f4"),
    "product in parts": partial(_of_product, "product in parts", 20, 10, 4000, "f8"),
    "product of halves": partial(_of_product, "product of halves", 130, 140, 50, "f4", "f2"),
    "product in bf16": partial(_of_product, "product in bf16", 130, 140, 50, "f4", "", "bf16"),
    "product in tf32": partial(_of_product, "product in tf32", 130, 140, 50, "f4", "", "tf32"),
    "product of bytes": partial(_of_product, "product of bytes", 130, 140, 50, "i1"),
    **{direction: partial(_of_convolution, direction) for direction in DIRECTIONS},
    **{f"{direction} of halves": partial(_of_convolution, direction, "f2") for direction in DIRECTIONS},
}
