"""Kernels of every family for another processor: their texts become object code where nothing can run them."""
from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from kernels import module_of

from kusari.codegen import generate
from kusari.codegen.target import NEON
from kusari.ir import PRIMITIVES, Arg, Builder, Call, Graph, Kernel, Lit, Value, tensor_type
from kusari.passes import plan

AARCH64 = 183  # as the header of an object file in ELF spells it


def kernels() -> list[Kernel]:
    b = Builder()

    def value(*shape: int, dtype: str = "float32") -> Value:
        inputs.append(Value(tensor_type(dtype, shape)))
        return inputs[-1]

    inputs: list[Value] = []
    image, small = value(2, 32, 14, 14), value(2, 3, 9, 9)
    window = {"stride": (1, 1), "pad": (1, 1), "dilate": (1, 1), "groups": 1}
    maps = b.one("conv", image, value(32, 32, 3, 3), **window, size=(14, 14))
    plain = {"stride": (2, 2), "pad": (0, 0), "dilate": (1, 1), "groups": 1}
    results = [
        b.matmul(value(40, 30), value(50, 30), transb=True), b.matmul(value(9, 64, dtype="float64"),
                                                                       value(64, 8, dtype="float64")),
        maps, b.one("conv_weight", image, maps, **window, size=(3, 3)),
        b.one("conv", small, value(5, 3, 3, 3), **plain, size=(4, 4)),
        *b.emit(PRIMITIVES["pool"], small, kernel=(3, 3), stride=(2, 2), pad=(0, 0), fn="max", size=(4, 4),
                places=True),
        b.reduce("sum", b.call("tanh", value(7, 33)), 1), b.call("exp", value(5, 9, dtype="float16")),
        b.cumsum(value(7, 33), 1), b.cumprod(value(7, 33), 1), b.cumsum(value(9, 5), 0, True),
        b.reduce("sum", value(1 << 20), 0),
        b.call("power", value(5, 9), value(5, 9)), b.matmul(value(2, 300), value(300, 1031)),
        b.transpose(value(17, 20), (1, 0)), b.one("take", value(6, 4), value(3, dtype="int32"), axis=0),
        b.one("random", dist="random_sample", args=(), shape=(5,), dtype="float32"),
    ]
    state = value(5, 4)
    results += b.emit(PRIMITIVES["foreach"], state, shared=0, arity=1, exprs=(Call("multiply", (Arg(0), Lit(0.5))),))
    program = generate(plan(Graph("g", tuple(inputs), (), (), tuple(b.nodes), tuple(results))), NEON)
    assert all(r.kernel for r in program.instructions), [r.node.op.name for r in program.instructions if not r.kernel]
    return list(program.kernels)


def test_every_family_compiles() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM has no such target")
    machine = target.create_target_machine(cpu="generic", features="+neon", opt=2)
    for kernel in kernels():
        module = module_of(kernel.text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        code = machine.emit_object(module)
        assert int(np.frombuffer(code[18:20], "<u2")[0]) == AARCH64, kernel.symbol
        assert kernel.symbol.encode() in code
