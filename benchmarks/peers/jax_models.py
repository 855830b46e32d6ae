"""What the models are to JAX: :data:`MODELS`. Parameters and state are dicts keyed by Chainer's paths with dots.

Pictures are NHWC and their weights HWIO, as is usual in JAX and quicker there; ``arrange`` turns Chainer's once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax, nn


class Entry:
    """``forward(parameters, state, train, *inputs) -> (output, state)`` and ``loss(output, *labels)``.

    ``arrange(weights, sizes)`` returns the weights in another layout, ``pictures``: inputs become NHWC, ``stacked``:
    the arrays of the steps of time come as one, time first, and so do the labels. ``heads``: ``forward`` is
    ``forward(heads)``.
    """

    def __init__(self, forward: Callable[..., Any], loss: Callable[..., Any],
                 arrange: Callable[[Any, Any], Any] | None = None, pictures: bool = False, stacked: bool = False,
                 heads: bool = False) -> None:
        self.forward, self.loss, self.arrange, self.heads = forward, loss, arrange, heads
        self.pictures, self.stacked = pictures, stacked


def linear(p: Any, name: str, x: Any) -> Any:
    """A fully connected layer."""
    y = x @ p[name + ".W"].T
    return y + p[name + ".b"] if name + ".b" in p else y


def mlp(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Fully connected layers with ReLU between them."""
    depth = len(p) // 2
    for i in range(1, depth):
        x = nn.relu(linear(p, f"l{i}", x))
    return linear(p, f"l{depth}", x), state


def gelu(x: Any) -> Any:
    """The approximation by tanh."""
    return nn.gelu(x, approximate=True)


def elementwise(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Nothing but elementwise functions."""
    a = gelu(x) * p["gamma"] + p["beta"]
    s = a * nn.sigmoid(1.7 * a)
    return jnp.exp(-(s * s)) + x, state


def vae(p: Any, state: Any, train: bool, x: Any, noise: Any) -> Any:
    """Variational autoencoder."""
    h = jnp.tanh(linear(p, "encode", x))
    mean, ln_var = linear(p, "mean", h), linear(p, "ln_var", h)
    z = mean + jnp.exp(0.5 * ln_var) * noise
    return (linear(p, "picture", jnp.tanh(linear(p, "decode", z))), mean, ln_var), state


def vae_loss(outputs: Any, t: Any) -> Any:
    """Reconstruction and divergence."""
    y, mean, ln_var = outputs
    divergence = 0.5 * (mean * mean + jnp.exp(ln_var) - ln_var - 1).sum()
    return ((nn.softplus(y) - y * t).sum() + divergence) / len(t)


def convolution(p: Any, name: str, x: Any, stride: int = 1, pad: int = 0) -> Any:
    """A convolution of NHWC with HWIO, in as many groups as the weights are for."""
    w = p[name + ".W"]
    y = lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)),
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                 feature_group_count=x.shape[-1] // w.shape[2])
    return y + p[name + ".b"] if name + ".b" in p else y


def max_pooling(x: Any, size: int, stride: int, pad: int = 0) -> Any:
    """The largest of each window."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1),
                             ((0, 0), (pad, pad), (pad, pad), (0, 0)))


def batch_norm(p: Any, state: Any, train: bool, name: str, x: Any) -> Any:
    """Batch normalization of the last axis; new statistics go into ``state``."""
    mean_name, var_name = name + ".avg_mean", name + ".avg_var"
    if train:
        count, axes = x.size // x.shape[-1], tuple(range(x.ndim - 1))
        mean, var = x.mean(axes), x.var(axes)
        state[mean_name] = 0.9 * state[mean_name] + 0.1 * mean
        state[var_name] = 0.9 * state[var_name] + 0.1 * var * (count / max(count - 1, 1))
    else:
        mean, var = state[mean_name], state[var_name]
    return (x - mean) * (lax.rsqrt(var + 2e-5) * p[name + ".gamma"]) + p[name + ".beta"]


def normalized(p: Any, state: Any, train: bool, name: str, x: Any, stride: int = 1, pad: int = 0) -> Any:
    """A convolution and batch normalization."""
    return batch_norm(p, state, train, name + ".bn", convolution(p, name + ".conv", x, stride, pad))


def lenet(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Two 5 by 5 convolutions and two fully connected layers."""
    h = max_pooling(convolution(p, "conv1", x), 2, 2)
    h = max_pooling(convolution(p, "conv2", h), 2, 2).reshape(len(x), -1)
    return linear(p, "fc2", nn.relu(linear(p, "fc1", h))), state


def vgg(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Pairs of 3 by 3 convolutions with batch normalization."""
    state = dict(state)
    for i in range(sum(name.endswith("conv.W") for name in p)):
        x = nn.relu(normalized(p, state, train, f"body.{i}", x, pad=1))
        if i % 2:
            x = max_pooling(x, 2, 2)
    return linear(p, "fc2", nn.relu(linear(p, "fc1", x.reshape(len(x), -1)))), state


def resnet18(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Eight basic blocks."""
    state = dict(state)
    h = max_pooling(nn.relu(normalized(p, state, train, "stem", x, 2, 3)), 3, 2, 1)
    for i in range(8):
        name, stride = f"body.{i}", 2 if i in (2, 4, 6) else 1
        g = nn.relu(normalized(p, state, train, name + ".first", h, stride, 1))
        g = normalized(p, state, train, name + ".second", g, 1, 1)
        if name + ".short.conv.W" in p:
            h = normalized(p, state, train, name + ".short", h, stride)
        h = nn.relu(g + h)
    return linear(p, "fc", h.mean((1, 2))), state


def pictures(weights: Any, sizes: Any) -> Any:
    """HWIO, and the first fully connected layer sees flattened HWC instead of CHW."""
    found = {name: w.transpose(2, 3, 1, 0) if w.ndim == 4 else w for name, w in weights.items()}
    if "fc1.W" in found:
        w = found["fc1.W"]
        channels = sizes["widths"][-1]
        side = round((w.shape[1] // channels) ** 0.5)
        found["fc1.W"] = w.reshape(len(w), channels, side, side).transpose(0, 2, 3, 1).reshape(w.shape)
    return found


def ptb(p: Any, state: Any, train: bool, words: Any) -> Any:
    """Two LSTM layers, each a scan over the input's part."""
    h = p["embed.W"][words]
    for layer in ("lstm1", "lstm2"):
        upward, lateral = linear(p, layer + ".upward", h), p[layer + ".lateral.W"].T

        def cell(carry: Any, x: Any, lateral: Any = lateral) -> Any:
            h, c = carry
            a, i, f, o = jnp.split(x + h @ lateral, 4, 1)
            c = jnp.tanh(a) * nn.sigmoid(i) + c * nn.sigmoid(f)
            h = jnp.tanh(c) * nn.sigmoid(o)
            return (h, c), h

        zero = jnp.zeros(h.shape[1:])
        _, h = lax.scan(cell, (zero, zero), upward)
    return linear(p, "out", h), state


def gates_as_blocks(weights: Any, sizes: Any) -> Any:
    """Chainer keeps the gates a, i, f, o of a unit side by side."""
    return {name: w.reshape(-1, 4, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
            if ".upward." in name or ".lateral." in name else w for name, w in weights.items()}


def gru_tagger(p: Any, state: Any, train: bool, words: Any) -> Any:
    """A convolution over three words and a GRU."""
    x = p["embed.W"][words]
    x = lax.conv_general_dilated(x, p["conv.W"], (1,), ((1, 1),), dimension_numbers=("WNC", "WIO", "WNC"))
    x = nn.relu(x + p["conv.b"])

    def cell(h: Any, parts: Any) -> Any:
        xr, xz, xh = parts
        r, z = nn.sigmoid(xr + linear(p, "gru.U_r", h)), nn.sigmoid(xz + linear(p, "gru.U_z", h))
        h = (1 - z) * h + z * jnp.tanh(xh + linear(p, "gru.U", r * h))
        return h, h

    first = nn.sigmoid(linear(p, "gru.W_z", x[0])) * jnp.tanh(linear(p, "gru.W", x[0]))  # no biases of a state: U.b
    rest = tuple(linear(p, "gru." + name, x[1:]) for name in ("W_r", "W_z", "W"))
    _, h = lax.scan(cell, first, rest)
    return linear(p, "out", jnp.concatenate([first[None], h])), state


def tagger_weights(weights: Any, sizes: Any) -> Any:
    """The convolution's as WIO."""
    return {name: w.transpose(2, 1, 0) if name == "conv.W" else w for name, w in weights.items()}


def layer_norm(p: Any, name: str, x: Any) -> Any:
    """Normalization of rows."""
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p[name + ".gamma"] + p[name + ".beta"]


def block(heads: int) -> Callable[..., Any]:
    """Transformer block."""
    def forward(p: Any, state: Any, train: bool, x: Any) -> Any:
        batch, steps, width = x.shape
        parts = jnp.split(linear(p, "qkv", layer_norm(p, "ln1", x)), 3, 2)
        q, k, v = (h.reshape(batch, steps, heads, width // heads) for h in parts)
        w = nn.softmax(jnp.einsum("bthe,bshe->bhts", q, k) * (width // heads) ** -0.5)
        h = jnp.einsum("bhts,bshe->bthe", w, v).reshape(batch, steps, width)
        x = x + linear(p, "proj", h)
        return x + linear(p, "fc2", gelu(linear(p, "fc1", layer_norm(p, "ln2", x)))), state

    return forward


def cross_entropy(y: Any, t: Any) -> Any:
    """The mean over all but the last axis."""
    return jnp.mean(nn.logsumexp(y, axis=-1) - jnp.take_along_axis(y, t[..., None], axis=-1)[..., 0])


def per_step(y: Any, t: Any) -> Any:
    """The sum over time of the mean cross entropies of a batch."""
    return len(t) * cross_entropy(y, t)


MODELS = {
    "mushroom_mlp": Entry(mlp, lambda y, t: jnp.mean(nn.softplus(y) - y * t)),
    "mnist_mlp": Entry(mlp, cross_entropy),
    "elementwise": Entry(elementwise, lambda y: (y * y).sum()),
    "vae": Entry(vae, vae_loss),
    "lenet_cnn": Entry(lenet, cross_entropy, pictures, pictures=True),
    "vgg_cifar": Entry(vgg, cross_entropy, pictures, pictures=True),
    "resnet18": Entry(resnet18, cross_entropy, pictures, pictures=True),
    "ptb_lstm": Entry(ptb, per_step, gates_as_blocks, stacked=True),
    "gru_tagger": Entry(gru_tagger, per_step, tagger_weights, stacked=True),
    "transformer_block": Entry(block, lambda y: (y * y).mean(), heads=True),
}


def arrays(entry: Entry, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs or labels as JAX wants them."""
    if entry.stacked:
        return (jnp.array(np.stack(given)),)
    return tuple(jnp.array(x.transpose(0, 2, 3, 1) if entry.pictures and x.ndim == 4 else x) for x in given)


def forward_of(entry: Entry, sizes: dict[str, Any]) -> Callable[..., Any]:
    """The network in these sizes."""
    return entry.forward(sizes["heads"]) if entry.heads else entry.forward


