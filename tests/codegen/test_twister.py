"""Draws by kernels are NumPy's, number by number, and leave NumPy's generator where NumPy would."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kusari.codegen.llvm.data.twister import uniform_kernel
from kusari.codegen.native import is_uniform_draw
from kusari.codegen.target import TARGETS
from kusari.ir import PRIMITIVES, Arg, Builder, Call, Lit, Node, Value, evaluate, expr_dtype, tensor_type

COUNTS = (0, 1, 9, 312, 625, 5000)


def node(count: int, dtype: str = "float64", dist: str = "random_sample", args: Any = ()) -> Node:
    b = Builder()
    b.random(dist, args, (count,), dtype)
    return b.nodes[0]


def state_of(random: np.random.RandomState) -> np.ndarray:
    _, key, used, *_ = random.get_state()
    return np.append(key, np.uint32(used)).astype(np.uint32)


@pytest.mark.parametrize("target", ("avx512", "avx2", "sse", "generic"))
@pytest.mark.parametrize("dtype", ("float64", "float32"))
def test_numbers_are_numpys(jit: Any, target: str, dtype: str) -> None:
    for count in COUNTS if dtype == "float64" and target == "avx512" else (9, 625):
        kernel = uniform_kernel(node(count, dtype), TARGETS[target])
        assert kernel.serial
        run = jit.compile(kernel.text, kernel.symbol, target)
        for used in (0, 1, 3, 621, 622, 623, 624):
            random = np.random.RandomState(count)
            random.bytes(4 * used)
            state = state_of(random)
            out = np.full(count + 2, 7, dtype)
            run(out, state, nth=2)
            np.testing.assert_array_equal(out[:count], random.random_sample(count).astype(dtype))
            assert (out[count:] == 7).all()
            np.testing.assert_array_equal(state, state_of(random))


@pytest.mark.parametrize("target", ("avx512", "sse"))
def test_masks(jit: Any, target: str) -> None:
    keep = Call("greater_equal", (Arg(0), Lit(0.3)))
    for expr in (keep, Call("where", (keep, Lit(7), Lit(3)))):
        drawing = Node(PRIMITIVES["random"], (), (Value(tensor_type(expr_dtype(expr, (np.dtype("f8"),)), (700,))),),
                       {**node(700).attrs, "expr": expr})
        kernel = uniform_kernel(drawing, TARGETS[target])
        random = np.random.RandomState(0)
        state = state_of(random)
        out = np.zeros(700, drawing.output.tensor.dtype)
        jit.compile(kernel.text, kernel.symbol, target)(out, state)
        np.testing.assert_array_equal(out, evaluate(expr, (random.random_sample(700),)))
        np.testing.assert_array_equal(state, state_of(random))


def test_other_draws_have_no_kernel() -> None:
    for other in (node(3, dist="standard_normal"), node(3, dist="uniform", args=(0.0, 2.0)), node(3, "float16")):
        assert not is_uniform_draw(other)
