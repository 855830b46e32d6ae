"""Three fully connected layers with ReLU between them."""

from __future__ import annotations

from typing import Any

from .definition import Definition


def definition(units: tuple[int, ...], binary: bool) -> Definition:
    """The MLP with these widths; its loss is sigmoid cross entropy if ``binary``, else softmax cross entropy."""
    return Definition(lambda: chainer_mlp(units, binary), lambda: torch_mlp(units, binary), lambda: jax_mlp(binary),
                      float_labels=binary)


def chainer_mlp(units: tuple[int, ...], binary: bool) -> Any:
    """For Chainer."""
    import chainer
    import chainer.functions as F
    import chainer.links as L

    class MLP(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l1 = L.Linear(units[0], units[1])
                self.l2 = L.Linear(units[1], units[2])
                self.l3 = L.Linear(units[2], units[3])

        def forward(self, x: Any) -> Any:
            return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))

        def loss(self, y: Any, t: Any) -> Any:
            return F.sigmoid_cross_entropy(y, t) if binary else F.softmax_cross_entropy(y, t)

    return MLP()


def torch_mlp(units: tuple[int, ...], binary: bool) -> Any:
    """For PyTorch."""
    import torch
    from torch.nn import functional

    class MLP(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = torch.nn.Linear(units[0], units[1])
            self.l2 = torch.nn.Linear(units[1], units[2])
            self.l3 = torch.nn.Linear(units[2], units[3])

        def forward(self, x: Any) -> Any:
            return self.l3(torch.relu(self.l2(torch.relu(self.l1(x)))))

    return MLP(), functional.binary_cross_entropy_with_logits if binary else functional.cross_entropy


def jax_mlp(binary: bool) -> Any:
    """For JAX."""
    import jax
    import jax.numpy as jnp

    def linear(p: Any, name: str, x: Any) -> Any:
        return x @ p[name + ".W"].T + p[name + ".b"]

    def forward(p: Any, state: Any, x: Any, train: bool) -> Any:
        h = jax.nn.relu(linear(p, "l1", x))
        h = jax.nn.relu(linear(p, "l2", h))
        return linear(p, "l3", h), state

    def loss(y: Any, t: Any) -> Any:
        if binary:
            return jnp.mean(jax.nn.softplus(y) - y * t)
        picked = jnp.take_along_axis(y, t[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(y, axis=1) - picked)

    return forward, loss
