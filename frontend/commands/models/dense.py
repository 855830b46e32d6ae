"""Models without convolutions and without time: fully connected layers and elementwise functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import Chain, Parameter, as_variable, optimizers
from ... import functions as F
from ... import links as L
from .definition import LABEL_SETS, label_sets, model, normal, uniform


class MLP(Chain):
    """Fully connected layers with ReLU between them."""

    def __init__(self, n_in: int, units: int, n_out: int, depth: int = 3, **_: Any) -> None:
        super().__init__()
        self.depth = depth
        widths = [n_in, *[units] * (depth - 1), n_out]
        with self.init_scope():
            for i in range(depth):
                setattr(self, f"l{i + 1}", L.Linear(widths[i], widths[i + 1]))

    def forward(self, x: Any) -> Any:
        for i in range(1, self.depth):
            x = F.relu(self[f"l{i}"](x))
        return self[f"l{self.depth}"](x)


def mushroom_data(random: Any, batch: int, n_in: int, **_: Any) -> Any:
    """Features, and labels of two classes."""
    return (normal(random, batch, n_in),), label_sets(random, 2, batch, 1)


def mnist_data(random: Any, batch: int, n_in: int, n_out: int, **_: Any) -> Any:
    """Pictures as vectors, and labels."""
    return (uniform(random, batch, n_in),), label_sets(random, n_out, batch)


@model("mushroom_mlp", lambda: optimizers.SGD(0.01), mushroom_data, dict(batch=100, n_in=22, units=44, n_out=1),
       tiny=dict(batch=5, n_in=4, units=3))
class MushroomMLP(MLP):
    """MLP 22-44-44-1, batch 100, SGD: all overhead, hardly any arithmetic."""

    def loss(self, x: Any, t: Any) -> Any:
        return F.sigmoid_cross_entropy(self.forward(x), t)


@model("mnist_mlp", lambda: optimizers.Adam(0.001), mnist_data, dict(batch=100, n_in=784, units=1000, n_out=10),
       tiny=dict(batch=5, n_in=7, units=6, n_out=3))
class MnistMLP(MLP):
    """MLP 784-1000-1000-10, batch 100, Adam: matrix products and 1.8 million parameters."""

    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)


def gelu(x: Any) -> Any:
    """The approximation of GELU by tanh."""
    return 0.5 * x * (1 + F.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def elementwise_data(random: Any, batch: int, width: int, **_: Any) -> Any:
    """One array and no labels."""
    return (normal(random, batch, width),), [()]


# The rate is tiny, so that thousands of steps do not drive exp(-s²) into denormal numbers.
@model("elementwise", lambda: optimizers.SGD(1e-7), elementwise_data, dict(batch=1000, width=1000),
       tiny=dict(batch=5, width=7), input_gradient=True)
class Elementwise(Chain):
    """GELU, scale and shift, swish, exp(-s²) on 1000 by 1000: nothing but elementwise functions."""

    def __init__(self, width: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.gamma = Parameter(1.0, (width,))
            self.beta = Parameter(0.0, (width,))

    def forward(self, x: Any) -> Any:
        x = as_variable(x)
        a = gelu(x) * self.gamma + self.beta
        s = a * F.sigmoid(1.7 * a)
        return F.exp(-(s * s)) + x

    def loss(self, x: Any) -> Any:
        y = self.forward(x)
        return F.sum(y * y)


def vae_data(random: Any, batch: int, n_in: int, latent: int, **_: Any) -> Any:
    """Pictures and the noise that is scaled, and pictures of zeros and ones to be reconstructed."""
    x, noise = uniform(random, batch, n_in), normal(random, batch, latent)
    return (x, noise), [((random.rand(batch, n_in) < 0.5).astype(np.float32),) for _ in range(LABEL_SETS)]


@model("vae", lambda: optimizers.Adam(0.001), vae_data, dict(batch=100, n_in=784, units=400, latent=20),
       tiny=dict(batch=3, n_in=6, units=5, latent=2))
class VAE(Chain):
    """Variational autoencoder 784-400-20-400-784, batch 100, Adam: narrow products, losses over many elements."""

    def __init__(self, n_in: int, units: int, latent: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.encode = L.Linear(n_in, units)
            self.mean = L.Linear(units, latent)
            self.ln_var = L.Linear(units, latent)
            self.decode = L.Linear(latent, units)
            self.picture = L.Linear(units, n_in)

    def forward(self, x: Any, noise: Any) -> Any:
        h = F.tanh(self.encode(x))
        mean, ln_var = self.mean(h), self.ln_var(h)
        z = mean + F.exp(0.5 * ln_var) * noise
        return self.picture(F.tanh(self.decode(z))), mean, ln_var

    def loss(self, x: Any, noise: Any, t: Any) -> Any:
        y, mean, ln_var = self.forward(x, noise)
        return (F.bernoulli_nll(t, y) + F.gaussian_kl_divergence(mean, ln_var)) / len(t)
