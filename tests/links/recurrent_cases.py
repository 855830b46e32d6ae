"""What recurrent links compute, with any library of Chainer's API: first values, outputs, states, gradients, draws."""
from __future__ import annotations

from typing import Any

import numpy as np

STATEFUL = [("LSTM", (3, 2), False), ("LSTM", (None, 2), True), ("GRU", (3, 2), False),
            ("StatefulGRU", (None, 2), True), ("StatefulPeepholeLSTM", (3, 2), False),
            ("StatefulZoneoutLSTM", (3, 2), False), ("StatefulMGU", (3, 2), False)]
STATELESS = [("StatelessLSTM", (None, 2), True), ("StatelessGRU", (3, 2), True), ("StatelessMGU", (3, 2), False)]
TREES = ["ChildSumTreeLSTM", "NaryTreeLSTM"]
STEPS = ["NStepLSTM", "NStepBiLSTM", "NStepGRU", "NStepBiGRU", "NStepRNNTanh", "NStepBiRNNTanh", "NStepRNNReLU",
         "NStepBiRNNReLU"]


def _options(name: str, lib: Any) -> dict[str, Any]:
    draw = lib.initializers.Normal(0.4)
    if "LSTM" in name:
        return {"lateral_init": draw, "upward_init": draw, "bias_init": draw, "forget_bias_init": draw}
    return {"init": draw, "inner_init": draw, "bias_init": draw}


def _made(lib: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    np.random.seed(0)
    return getattr(lib.links, name)(*args, **kwargs)


def _seen(lib: Any, link: Any, ys: Any, xs: Any) -> list[Any]:
    """First values and their draws are exact (they come first); then outputs, and gradients of all."""
    link.cleargrads()
    sum(lib.functions.sum(y * y) for y in ys).backward()
    params = [p for _, p in sorted(link.namedparams())]
    return [*(p.array for p in params), np.array(np.random.rand()), *(y.array for y in ys),
            *(p.grad for p in params if p.grad is not None), *(x.grad for x in xs if x.grad is not None)]


def values(lib: Any) -> dict[str, list[Any]]:
    """Return arrays by case; as many as ``exact`` says of them are equal bit by bit."""
    r = np.random.RandomState(3)

    def variables(*shapes: tuple[int, ...]) -> list[Any]:
        return [lib.Variable(r.randn(*s).astype("f")) for s in shapes]
    found: dict[str, list[Any]] = {}
    for name, sizes, options in STATEFUL:
        link = _made(lib, name, *sizes, **(_options(name, lib) if options else {}))
        ended = name == "LSTM"
        xs = variables(*[(n, 3) for n in ((4, 4, 3, 1) if ended else (4, 4, 4, 4))])
        ys = [link(x) for x in xs]
        if hasattr(link, "set_state"):
            first = variables(*[(4, 2)] * (2 if "LSTM" in name else 1))
            ys.append(link.h)
            link.set_state(*first)
            ys.append(link(xs[0]))
            xs += first
        link.reset_state()
        ys.append(link(xs[1]))
        found[f"{name} {options}"] = _seen(lib, link, ys, xs)
    for name, sizes, options in STATELESS:
        link = _made(lib, name, *sizes, **({"bias_init": lib.initializers.Normal(0.4)} if options else {}))
        states = variables(*[(4, 2)] * (2 if "LSTM" in name else 1))
        x, = variables((4, 3))
        ys = link(*states, x)
        ys = [*ys] if isinstance(ys, tuple) else [ys]
        if len(states) == 2:
            ys += link(None, None, x)
        found[name] = _seen(lib, link, ys, [*states, x])
    for name in TREES:
        link = _made(lib, name, 3, 2)
        n = link.n_ary if name == "NaryTreeLSTM" else 3
        states = variables(*[(4, 2)] * (2 * n))
        x, = variables((4, 3))
        ys = [*link(*states, x), *link(*states, None), *link(None, *states[1:-1], None, x)]
        if name == "ChildSumTreeLSTM":
            ys += link(x)
        found[name] = _seen(lib, link, ys, [*states, x])
    data = [r.randn(n, 3).astype("f") for n in (2, 4, 1, 4)]
    for name in STEPS:
        for given in (False, True):
            link = _made(lib, name, 2, 3, 2, 0.5, initial_bias=lib.initializers.Normal(0.3))
            states = variables(*[(2 * link.direction, 4, 2)] * link.n_cells) if given else [None] * link.n_cells
            xs = [lib.Variable(x) for x in data]
            *last, ys = link(*states, xs)
            found[f"{name} {given}"] = _seen(lib, link, [*last, *ys], [*xs, *(s for s in states if s is not None)])
            with lib.using_config("train", False):
                found[f"{name} {given}"] += [y.array for y in link(*states, data)[-1]]
    return found
