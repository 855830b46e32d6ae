"""The schedules whose kernels ``kernels.py`` measures: for each a function that compiles it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kusari
import kusari.functions as F

Case = Callable[[Any], "list[Any]"]
"""Takes a ``RandomState``; returns what must stay alive."""


def differentiated(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Run a static function forward and backward until it is compiled; arrays of integers are labels."""
    static = kusari.static_graph(strict=True)(function)
    variables = [x if x.dtype.kind == "i" else kusari.Variable(x) for x in arrays]
    keep: list[Any] = [static, *variables]
    for _ in range(3):
        for variable in variables:
            if isinstance(variable, kusari.Variable):
                variable.cleargrad()
        y = static(*variables)
        y.grad = y.array if y.size > 1 else None
        y.backward()
        keep.append(y)
    return keep


def of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """A case with arrays of these shapes."""
    return lambda random: differentiated(function, *(random.randn(*shape).astype("f") for shape in shapes))


def convolution(n: int, c: int, side: int, out: int, size: int, stride: int = 1, pad: int = 0) -> Case:
    """A convolution of ``n`` pictures and both its gradients."""
    return of(lambda x, w: F.convolution_2d(x, w, stride=stride, pad=pad), (n, c, side, side), (out, c, size, size))


def softmax_cross_entropy(random: Any) -> list[Any]:
    """Softmax cross entropy of 1,000 rows of 1,000 classes, and its gradient."""
    labels = random.randint(0, 1000, 1000).astype("int32")
    return differentiated(lambda x, t: F.softmax_cross_entropy(x, t), random.rand(1000, 1000).astype("f"), labels)


def elementwise(random: Any) -> list[Any]:
    """The network of the model ``elementwise`` and its gradients, on a million numbers."""
    from kusari.commands.models import MODELS
    chain = MODELS["elementwise"].build()
    return [chain, *differentiated(lambda x: chain.forward(x), random.randn(1000, 1000).astype("f"))]


def adam(random: Any) -> list[Any]:
    """Adam on the 1.8 million parameters of mnist_mlp, in one foreach."""
    from kusari.commands.models import MODELS, compiled
    model = MODELS["mnist_mlp"]
    chain = model.build(compiled(model.chain))
    optimizer = model.updater(chain)
    x, labels = model.arrays()
    for t in labels[:3]:
        chain.cleargrads()
        chain.loss(*x, *t).backward()
        optimizer.update()
    return [chain, optimizer, x, labels]


def arithmetic(n: int, c: int, side: int, out: int, size: int, stride: int = 1, pad: int = 0) -> float:
    """Operations of such a convolution as its definition has them; each of both gradients needs as many."""
    width = (side + 2 * pad - size) // stride + 1
    return 2.0 * n * out * width * width * c * size * size


CONVOLUTIONS: dict[str, tuple[int, ...]] = {
    "convolution 3×3": (32, 64, 32, 64, 3, 1, 1), "convolution 3×3, stride 2": (8, 64, 16, 128, 3, 2, 1),
    "convolution 5×5": (64, 20, 12, 50, 5), "convolution 1×1": (8, 64, 28, 128, 1),
}
CASES: dict[str, tuple[Case, str | None]] = {
    **{name: (convolution(*sizes), None) for name, sizes in CONVOLUTIONS.items()},
    "elementwise": (elementwise, None),
    "softmax": (of(lambda x: F.softmax(x, axis=2), (32, 128, 128)), None),
    "softmax cross entropy": (softmax_cross_entropy, None),
    "layer norm": (of(lambda x, g, b: F.layer_normalization(x, g, b), (1024, 256), (256,), (256,)), None),
    "batch norm": (of(lambda x, g, b: F.relu(F.batch_normalization(x, g, b)), (32, 64, 32, 32), (64,), (64,)), None),
    "adam": (adam, "update"),
}
"""How to get schedules compiled, and the name of the only graph that counts (else all)."""
