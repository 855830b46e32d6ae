"""Whole plans of the benchmark models: all launches in order in one arena, against the CPU's schedule."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from card import examples, run_program, the_card
from graphs import arrays_for as random_arrays
from graphs import graphs
from hypothesis import given, settings
from nvrtc import nvrtc

from kusari import Variable, config
from kusari.codegen import TARGETS, generate
from kusari.commands.models import MODELS, compiled
from kusari.commands.worker import inference_step, training_step, whole_step
from kusari.ir import Call, Graph, Node, Plan, Value, interpret, used_args, verify, walk
from kusari.passes import plain_factors, plan
from kusari.passes.foreach import foreach
from kusari.passes.fuse import fuse
from kusari.runtime import Executable
from kusari.static.compile import compile as compiling

QUICK = ("mushroom_mlp", "elementwise")


def plans_of(name: str, kind: str, monkeypatch: pytest.MonkeyPatch, **sizes: Any) -> list[Plan]:
    """The plans of three steps of a model, tiny but for ``sizes``: in parts, as one schedule, or inference."""
    found: list[Plan] = []

    class Noting(Executable):
        def __init__(self, plan: Plan, *args: Any, **options: Any) -> None:
            found.append(plan)
            super().__init__(plan, *args, **options)

    monkeypatch.setattr(compiling, "Executable", Noting)
    config.winograd = 0
    model = MODELS[name]
    model = model.at(**(sizes or model.tiny))
    chain = model.build(compiled(model.chain))
    inputs, labels = model.arrays()
    inputs = tuple(x.astype(config.dtype) if x.dtype.kind == "f" else x for x in inputs)
    if kind == "infer":
        step = inference_step(chain, inputs)
    else:
        given = [Variable(x) for x in inputs] if model.input_gradient else inputs
        make = whole_step if kind == "whole" else training_step
        step = make(chain, model.updater(chain), given, labels)
    for i in range(3):
        step(i)
    return found


def arrays_for(graph: Graph, values: tuple[Value, ...], seed: int) -> list[np.ndarray]:
    """Weights and data around zero, labels of two classes, and positive numbers for all that may have to be."""
    r = np.random.RandomState(seed)
    roots = {v for n in graph.nodes if n.op.name == "foreach" for v in under_roots(n)}
    found: list[np.ndarray] = []
    for v in values:
        if v.tensor.dtype.kind in "iub":
            x = r.randint(0, 2, v.shape)
        elif len(v.shape) < 2 or v in roots:
            x = r.uniform(0.05, 0.6, v.shape)
        else:
            x = r.normal(0, 0.1, v.shape)
        found.append(np.asarray(x).astype(v.tensor.dtype))
    return found


def under_roots(node: Node) -> Iterator[Value]:
    """The operands of an update of which it takes square roots."""
    shared, arity = node.attrs["shared"], node.attrs["arity"]
    calls = [e for expr in node.attrs["exprs"] for e in walk(expr) if isinstance(e, Call) and e.fn == "sqrt"]
    for k in {k for c in calls for k in used_args(c) if k >= shared}:
        yield from node.inputs[k::arity]


def on_the_cpu(plan: Plan, inputs: list[np.ndarray], params: list[np.ndarray]) -> list[np.ndarray]:
    frame = Executable(plan, generate(plan, TARGETS["avx2"]), threads=1).acquire()
    frame.bind_all([*inputs, *params])
    frame.fresh_outputs()
    frame.run()
    return [np.array(y) for y in frame.outputs()]


@settings(max_examples=examples())
@given(graph=graphs(dtype="float32") | graphs(dtype="float16"))
def test_random_graphs_in_planned_memory(graph: Graph) -> None:
    made = plan(verify(foreach(fuse(plain_factors(graph)))), copy_in_below=64, copy_out_below=64)
    program = generate(made, TARGETS["avx2"], "cuda")
    assert [r.node for r in program.instructions if r.kernel is None] == []
    tolerance = 4e-3 if graph.inputs[0].tensor.dtype == np.float16 else 1e-4
    inputs, params, same = (random_arrays(vs, seed) for vs, seed in (
        (graph.inputs, 0), (graph.params, 1), (graph.params, 1)))
    want = [np.array(y) for y in interpret(graph, inputs, params)]
    got = run_program(made, program, inputs, same)
    for x, y in zip([*got, *same], [*want, *params], strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def check(plans: list[Plan], tolerance: float = 2e-4) -> None:
    """Every launch has a kernel, and all of them give the CPU's results."""
    for made in plans:
        program = generate(made, TARGETS["avx2"], "cuda")
        assert [r.node.op.name for r in program.instructions if r.kernel is None] == []
        graph = made.graph
        inputs = arrays_for(graph, graph.inputs, 0)
        states, same = (arrays_for(graph, graph.params, 1) for _ in range(2))
        want = on_the_cpu(made, inputs, states)
        got = run_program(made, program, inputs, same)
        for x, y in zip([*got, *same], [*want, *states], strict=True):
            assert x.dtype == y.dtype and np.isfinite(y).all()
            scale = float(np.abs(y).max()) if y.size else 0.0
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


TINY = [*((name, kind) for name in QUICK for kind in ("whole", "parts", "infer")), *(
    pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("lenet_cnn", "parts"), ("ptb_lstm", "parts"), ("vgg_cifar", "infer"), ("resnet18", "infer"),
        ("transformer_block", "infer")))]


@pytest.mark.parametrize("name, kind", TINY)
def test_steps_of_models(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(plans_of(name, kind, monkeypatch))


def test_parts_of_a_step_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    config.dtype = np.dtype("float16")
    check(plans_of("mnist_mlp", "parts", monkeypatch), 5e-3)


# Larger ones: packs, rows and sums that several blocks share. With the launches of a step and its kernels.
SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "mushroom_mlp": (dict(batch=100), 13, 12), "mnist_mlp": (dict(batch=100), 20, 19),
    "elementwise": (dict(batch=1000), 3, 3), "lenet_cnn": (dict(batch=8), 32, 32), "ptb_lstm": (dict(steps=3), 96, 42),
    "transformer_block": (dict(batch=2), 59, 46), "vgg_cifar": (dict(batch=4, widths=(16, 32, 64)), 71, 68),
    "resnet18": (dict(batch=2, widths=(16, 32, 48, 64), classes=100), 139, 92)}

LONG = ("mnist_mlp",)  # whose kernels run for longer than it takes to optimise them


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_whole_steps_of_larger_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_card(), "optimizes", name in LONG)
    sizes, launches, kernels = SIZES[name]
    made = plans_of(name, "whole", monkeypatch, **sizes)[-1]  # the last one has room for scratch, too
    program = generate(made, TARGETS["avx2"], "cuda")
    assert (len(program.instructions), len(program.kernels)) == (launches, kernels)
    check([made])
    for kernel in program.kernels:
        nvrtc().compile(kernel.text, "compute_90")
