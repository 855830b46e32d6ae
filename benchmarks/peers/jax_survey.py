"""The survey's models in JAX: :data:`SURVEY`. Names are Chainer's paths with dots, layouts those of ``jax_models``."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from .jax_models import (
    Entry,
    batch_norm,
    convolution,
    cross_entropy,
    gates_as_blocks,
    gelu,
    layer_norm,
    linear,
    max_pooling,
    mlp,
    normalized,
)


def batch_norm_mlp(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Fully connected layers with batch normalization."""
    state = dict(state)
    for i in "12":
        x = nn.relu(batch_norm(p, state, train, "bn" + i, linear(p, "l" + i, x)))
    return linear(p, "l3", x), state


def autoencoder(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Four layers with sigmoid."""
    for i in "123":
        x = nn.sigmoid(linear(p, "l" + i, x))
    return linear(p, "l4", x), state


def binary(y: Any, t: Any) -> Any:
    """Sigmoid cross entropy."""
    return jnp.mean(nn.softplus(y) - y * t)


def actor_critic(p: Any, state: Any, train: bool, x: Any) -> Any:
    """A policy and a value on one perceptron."""
    h = jnp.tanh(linear(p, "l2", jnp.tanh(linear(p, "l1", x))))
    return (linear(p, "policy", h), linear(p, "value", h)), state


def chosen(y: Any, places: Any) -> Any:
    """The element of each row at its place."""
    return jnp.take_along_axis(y, places[:, None], axis=1)[:, 0]


def actor_critic_loss(outputs: Any, action: Any, gain: Any) -> Any:
    """Actions taken, weighted by their gain; the value's error; an entropy bonus."""
    policy, value = outputs
    chances = nn.log_softmax(policy)
    entropy = -(jnp.exp(chances) * chances).sum(1).mean()
    return -(chosen(chances, action) * gain).mean() + 0.5 * ((gain - value.ravel()) ** 2).mean() - 0.01 * entropy


def dqn(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Two convolutions with strides and two layers."""
    h = nn.relu(convolution(p, "conv2", nn.relu(convolution(p, "conv1", x, 4)), 2))
    return linear(p, "l2", nn.relu(linear(p, "l1", h.reshape(len(x), -1)))), state


def dqn_loss(y: Any, action: Any, worth: Any) -> Any:
    """Huber's, of the actions taken."""
    d = jnp.abs(chosen(y, action) - worth)
    return jnp.mean(jnp.where(d < 1, 0.5 * d * d, d - 0.5))


def siamese(p: Any, state: Any, train: bool, x: Any, y: Any) -> Any:
    """The same network for two pictures."""
    def one(h: Any) -> Any:
        for name in ("conv1", "conv2"):
            h = max_pooling(nn.relu(convolution(p, name, h)), 2, 2)
        return linear(p, "l2", nn.relu(linear(p, "l1", h.reshape(len(h), -1))))

    return (one(x), one(y)), state


def contrastive(outputs: Any, same: Any) -> Any:
    """Squared distances of pairs that are the same, squared margins of the others."""
    squares = ((outputs[0] - outputs[1]) ** 2).sum(1)
    margins = nn.relu(1 - jnp.sqrt(squares)) ** 2
    return (same * squares + (1 - same) * margins).sum() / (2 * len(same))


def conv3d(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Two 3-D convolutions and two layers."""
    h = x.transpose(0, 2, 3, 4, 1)
    for name in ("conv1", "conv2"):
        h = lax.conv_general_dilated(h, p[name + ".W"], (1, 1, 1), ((1, 1),) * 3,
                                     dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
        h = lax.reduce_window(nn.relu(h + p[name + ".b"]), -jnp.inf, lax.max, (1, 2, 2, 2, 1), (1, 2, 2, 2, 1), "VALID")
    return linear(p, "l2", nn.relu(linear(p, "l1", h.reshape(len(x), -1)))), state


def channels_last(weights: Any, sizes: Any) -> Any:
    """Kernels with channels last; the first fully connected layer behind convolutions sees flattened pictures so."""
    found = {}
    for name, w in weights.items():
        if w.ndim > 2 and name.startswith("up"):  # of deconvolutions: (in, out, …), and turned
            w = w.transpose(2, 3, 0, 1)[::-1, ::-1]
        elif w.ndim > 2 and name.endswith(".W"):
            w = w.transpose(*range(2, w.ndim), 1, 0)
        found[name] = w
    if "conv2.W" in found and "l1.W" in found:
        *kernel, _, channels = found["conv2.W"].shape
        w = found["l1.W"]
        size = w.shape[1] // channels
        side = round((2 * size if len(kernel) == 3 else size) ** (1 / len(kernel)))  # volumes have half the depth
        space = (side // 2, side, side) if len(kernel) == 3 else (side, side)
        found["l1.W"] = np.moveaxis(w.reshape(len(w), channels, *space), 1, -1).reshape(w.shape)
    return found


def mobilenet(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Five inverted blocks."""
    state = dict(state)
    h = nn.relu(normalized(p, state, train, "stem", x, 1, 1))
    for i, stride in enumerate((2, 1, 2, 1, 2)):
        name = f"body.{i}"
        g = nn.relu6(normalized(p, state, train, name + ".wider", h))
        g = nn.relu6(normalized(p, state, train, name, g, stride, 1))
        g = normalized(p, state, train, name + ".narrower", g)
        h = h + g if h.shape == g.shape else g
    return linear(p, "fc", h.mean((1, 2))), state


def densenet(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Two blocks of layers that add channels."""
    state = dict(state)

    def block(name: str, h: Any) -> Any:
        for i in range(sum(each.startswith(name) and each.endswith("conv.W") for each in p)):
            g = nn.relu(batch_norm(p, state, train, f"{name}.{i}.bn", h))
            h = jnp.concatenate([h, convolution(p, f"{name}.{i}.conv", g, 1, 1)], 3)
        return h

    h = nn.relu(batch_norm(p, state, train, "bn1", block("block1", convolution(p, "conv", x, 1, 1))))
    h = lax.reduce_window(convolution(p, "between", h), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    h = nn.relu(batch_norm(p, state, train, "bn2", block("block2", h)))
    return linear(p, "fc", h.mean((1, 2))), state


def unet(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Three levels down and up."""
    state = dict(state)

    def twice(name: str, h: Any) -> Any:
        for each in (".first", ".second"):
            h = nn.relu(normalized(p, state, train, name + each, h, 1, 1))
        return h

    def larger(name: str, h: Any) -> Any:
        return lax.conv_transpose(h, p[name + ".W"], (2, 2), "VALID",
                                  dimension_numbers=("NHWC", "HWIO", "NHWC")) + p[name + ".b"]

    first = twice("down1", x)
    second = twice("down2", max_pooling(first, 2, 2))
    h = larger("up2", twice("middle", max_pooling(second, 2, 2)))
    h = larger("up1", twice("join2", jnp.concatenate([h, second], 3)))
    return convolution(p, "out", twice("join1", jnp.concatenate([h, first], 3))), state


def wavenet(p: Any, state: Any, train: bool, x: Any) -> Any:
    """Gated convolutions with dilations."""
    def conv(name: str, h: Any, past: int = 0) -> Any:
        return lax.conv_general_dilated(h, p[name + ".W"], (1,), ((past, 0),), rhs_dilation=(past or 1,),
                                        dimension_numbers=("NWC", "WIO", "NWC")) + p[name + ".b"]

    h, total = conv("stem", x.transpose(0, 2, 1)), 0
    for i in range(sum(name.startswith("gates") for name in p) // 2):
        a, b = jnp.split(conv(f"gates.{i}", h, 2**i), 2, 2)
        part = conv(f"skips.{i}", jnp.tanh(a) * nn.sigmoid(b))
        h, total = h + part, total + part
    return conv("out", nn.relu(total)), state


def gpt(heads: int) -> Any:
    """Language model, one embedding in and out."""
    def forward(p: Any, state: Any, train: bool, words: Any) -> Any:
        batch, steps = words.shape
        x = p["embed.W"][words] + p["place"][:, :steps]
        width = x.shape[2]
        seen = jnp.tril(jnp.ones((steps, steps), bool))
        for i in range(sum(name.endswith("qkv.W") for name in p)):
            name = f"blocks.{i}."
            parts = jnp.split(linear(p, name + "qkv", layer_norm(p, name + "ln1", x)), 3, 2)
            q, k, v = (h.reshape(batch, steps, heads, width // heads) for h in parts)
            scores = jnp.where(seen, jnp.einsum("bthe,bshe->bhts", q, k) * (width // heads) ** -0.5, -1e9)
            h = jnp.einsum("bhts,bshe->bthe", nn.softmax(scores), v).reshape(batch, steps, width)
            x = x + linear(p, name + "proj", h)
            x = x + linear(p, name + "fc2", gelu(linear(p, name + "fc1", layer_norm(p, name + "ln2", x))))
        return layer_norm(p, "ln", x) @ p["embed.W"].T, state

    return forward


def lstm(p: Any, name: str, x: Any, reverse: bool = False) -> Any:
    """A layer of ``NStepLSTM`` on ``(batch, steps, …)``, gates as blocks; last state, and all outputs, time first."""
    upward = x.swapaxes(0, 1) @ p[name + ".upward"].T + p[name + ".upward_bias"] + p[name + ".lateral_bias"]

    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, a, o = jnp.split(x + h @ p[name + ".lateral"].T, 4, 1)
        c = jnp.tanh(a) * nn.sigmoid(i) + c * nn.sigmoid(f)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((len(x), p[name + ".lateral"].shape[1]))
    return lax.scan(cell, (zero, zero), upward, reverse=reverse)


def together(weights: Any, sizes: Any) -> Any:
    """The arrays of the gates of ``NStepLSTM`` as blocks; those of a cell, too."""
    found = gates_as_blocks(weights, sizes)
    for first in [name for name in found if name.endswith(".w0")]:
        link = first[:-3]
        kinds = {kind: [found.pop(f"{link}.{kind}{i}") for i in range(8)] for kind in "wb"}
        found[link + ".upward"], found[link + ".lateral"] = (np.concatenate(kinds["w"][i:i + 4]) for i in (0, 4))
        for i, name in ((0, ".upward_bias"), (4, ".lateral_bias")):
            found[link + name] = np.concatenate(kinds["b"][i:i + 4])
    return found


def bilstm(p: Any, state: Any, train: bool, words: Any) -> Any:
    """An LSTM in both directions and the classes of its last states."""
    x = p["embed.W"][words]
    (forth, _), _ = lstm(p, "lstm.0", x)
    (back, _), _ = lstm(p, "lstm.1", x, reverse=True)
    return linear(p, "out", jnp.concatenate([forth, back], 1)), state


def seq2seq(p: Any, state: Any, train: bool, words: Any, other: Any) -> Any:
    """An LSTM, and a cell with attention to it."""
    last, seen = lstm(p, "encoder.0", p["embed1.W"][words])
    lateral = p["cell.lateral.W"].T

    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        a, i, f, o = jnp.split(x + h @ lateral, 4, 1)
        c = jnp.tanh(a) * nn.sigmoid(i) + c * nn.sigmoid(f)
        h = nn.sigmoid(o) * jnp.tanh(c)
        weights = nn.softmax(jnp.einsum("tbu,bu->tb", seen, h), axis=0)
        found = jnp.einsum("tbu,tb->bu", seen, weights)
        return (h, c), jnp.tanh(linear(p, "mix", jnp.concatenate([h, found], 1)))

    _, h = lax.scan(cell, last, linear(p, "cell.upward", p["embed2.W"][other].swapaxes(0, 1)))
    return linear(p, "out", h), state


def speech(p: Any, state: Any, train: bool, x: Any) -> Any:
    """A perceptron on each step."""
    return linear(p, "l2", nn.relu(linear(p, "l1", x))), state


def ctc_loss(y: Any, t: Any) -> Any:
    """Connectionist temporal classification, the mean of a batch; 0 is the blank."""
    batch, length = t.shape
    chances = nn.log_softmax(y).swapaxes(0, 1)
    path = jnp.zeros((batch, 2 * length + 1), t.dtype).at[:, 1::2].set(t)
    emitted = jnp.take_along_axis(chances, path[None].repeat(len(chances), 0), axis=2)
    never = -1e30
    skips = jnp.pad((path[:, 2:] != path[:, :-2]) & (path[:, 2:] != 0), ((0, 0), (2, 0)))

    def step(a: Any, e: Any) -> Any:
        one = jnp.pad(a[:, :-1], ((0, 0), (1, 0)), constant_values=never)
        two = jnp.where(skips, jnp.pad(a[:, :-2], ((0, 0), (2, 0)), constant_values=never), never)
        return jnp.logaddexp(jnp.logaddexp(a, one), two) + e, None

    first = jnp.where(jnp.arange(path.shape[1]) < 2, emitted[0], never)
    a, _ = lax.scan(step, first, emitted[1:])
    return -jnp.logaddexp(a[:, -1], a[:, -2]).mean()


def dlrm(p: Any, state: Any, train: bool, x: Any, fields: Any) -> Any:
    """Embeddings and their products."""
    h = nn.relu(linear(p, "below2", nn.relu(linear(p, "below1", x))))
    rows = jnp.stack([h] + [p[f"embeds.{i}.W"][fields[:, i]] for i in range(fields.shape[1])], 1)
    products = jnp.einsum("bie,bje->bij", rows, rows).reshape(len(x), -1)
    return linear(p, "above2", nn.relu(linear(p, "above1", jnp.concatenate([h, products], 1)))), state


SURVEY = {
    "wide_mlp": Entry(mlp, cross_entropy),
    "batch_norm_mlp": Entry(batch_norm_mlp, cross_entropy),
    "autoencoder": Entry(autoencoder, binary),
    "actor_critic": Entry(actor_critic, actor_critic_loss),
    "dqn": Entry(dqn, dqn_loss, channels_last, pictures=True),
    "siamese": Entry(siamese, contrastive, channels_last, pictures=True),
    "conv3d": Entry(conv3d, cross_entropy, channels_last),
    "mobilenet": Entry(mobilenet, cross_entropy, channels_last, pictures=True),
    "densenet": Entry(densenet, cross_entropy, channels_last, pictures=True),
    "unet": Entry(unet, cross_entropy, channels_last, pictures=True),
    "wavenet": Entry(wavenet, cross_entropy, channels_last),
    "gpt": Entry(gpt, cross_entropy, heads=True),
    "bilstm": Entry(bilstm, cross_entropy, together),
    "seq2seq": Entry(seq2seq, cross_entropy, together),
    "ctc": Entry(speech, ctc_loss),
    "dlrm": Entry(dlrm, binary),
}
