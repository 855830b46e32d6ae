"""What the models are to PyTorch: :data:`MODELS`, a module and a loss for each. Names are those of Chainer's links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Entry:
    """A module made from sizes and its ``loss(output, *labels)``.

    ``compiled``: another module for ``torch.compile``. ``stacked``: the arrays of the steps of time come as one,
    batch first, and so do the labels.
    """

    def __init__(self, module: Callable[..., Any], loss: Callable[..., Any], compiled: Callable[..., Any] | None = None,
                 stacked: bool = False) -> None:
        self.module, self.loss, self.compiled, self.stacked = module, loss, compiled or module, stacked


class MLP(nn.Module):
    """Fully connected layers with ReLU between them."""

    def __init__(self, n_in: int, units: int, n_out: int, depth: int = 3, **_: Any) -> None:
        super().__init__()
        self.depth = depth
        widths = [n_in, *[units] * (depth - 1), n_out]
        for i in range(depth):
            self.add_module(f"l{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x: Any) -> Any:
        for i in range(1, self.depth):
            x = F.relu(getattr(self, f"l{i}")(x))
        return getattr(self, f"l{self.depth}")(x)


class Elementwise(nn.Module):
    """Nothing but elementwise functions."""

    def __init__(self, width: int, **_: Any) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x: Any) -> Any:
        a = F.gelu(x, approximate="tanh") * self.gamma + self.beta
        s = a * torch.sigmoid(1.7 * a)
        return torch.exp(-(s * s)) + x


class VAE(nn.Module):
    """Variational autoencoder."""

    def __init__(self, n_in: int, units: int, latent: int, **_: Any) -> None:
        super().__init__()
        self.encode, self.mean, self.ln_var = nn.Linear(n_in, units), nn.Linear(units, latent), nn.Linear(units, latent)
        self.decode, self.picture = nn.Linear(latent, units), nn.Linear(units, n_in)

    def forward(self, x: Any, noise: Any) -> Any:
        h = torch.tanh(self.encode(x))
        mean, ln_var = self.mean(h), self.ln_var(h)
        z = mean + torch.exp(0.5 * ln_var) * noise
        return self.picture(torch.tanh(self.decode(z))), mean, ln_var


def vae_loss(outputs: Any, t: Any) -> Any:
    """Reconstruction and divergence."""
    y, mean, ln_var = outputs
    divergence = 0.5 * (mean * mean + ln_var.exp() - ln_var - 1).sum()
    return (F.binary_cross_entropy_with_logits(y, t, reduction="sum") + divergence) / len(t)


class LeNet(nn.Module):
    """Two 5 by 5 convolutions and two fully connected layers."""

    def __init__(self, channels: int, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, widths[0], 5)
        self.conv2 = nn.Conv2d(widths[0], widths[1], 5)
        self.fc1 = nn.Linear(widths[1] * last * last, units)
        self.fc2 = nn.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pool2d(self.conv1(x), 2, ceil_mode=True)
        h = F.max_pool2d(self.conv2(h), 2, ceil_mode=True)
        return self.fc2(F.relu(self.fc1(h.flatten(1))))


class Normalized(nn.Module):
    """A convolution without bias, and batch normalization."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, pad: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, size, stride, pad, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=2e-5)

    def forward(self, x: Any) -> Any:
        return self.bn(self.conv(x))


class VGG(nn.Module):
    """Pairs of 3 by 3 convolutions with batch normalization."""

    def __init__(self, channels: int, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        last = side // 2 ** len(widths)
        self.body = nn.ModuleList()
        for width in widths:
            self.body += [Normalized(channels, width, 3, pad=1), Normalized(width, width, 3, pad=1)]
            channels = width
        self.fc1 = nn.Linear(channels * last * last, units)
        self.fc2 = nn.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        for i, layer in enumerate(self.body):
            x = F.relu(layer(x))
            if i % 2:
                x = F.max_pool2d(x, 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first = Normalized(n_in, n_out, 3, stride, 1)
        self.second = Normalized(n_out, n_out, 3, 1, 1)
        self.short = Normalized(n_in, n_out, 1, stride) if stride != 1 or n_in != n_out else nn.Identity()

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


class ResNet18(nn.Module):
    """Eight basic blocks."""

    def __init__(self, channels: int, classes: int, widths: Any, **_: Any) -> None:
        super().__init__()
        self.stem = Normalized(channels, widths[0], 7, 2, 3)
        self.body = nn.Sequential()
        n_in = widths[0]
        for i, width in enumerate(widths):
            self.body.append(BasicBlock(n_in, width, 1 if i == 0 else 2))
            self.body.append(BasicBlock(width, width, 1))
            n_in = width
        self.fc = nn.Linear(n_in, classes)

    def forward(self, x: Any) -> Any:
        h = self.body(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return self.fc(F.adaptive_avg_pool2d(h, 1).flatten(1))


def cell_blocks(weights: dict[str, Any], link: str, to: str) -> dict[str, Any]:
    """Take the arrays of a cell out of ``weights``: Chainer keeps the gates a, i, f, o of a unit side by side, torch
    has blocks i, f, a, o."""
    found: dict[str, Any] = {}
    for theirs, ours in (("upward/W", "weight_ih"), ("upward/b", "bias_ih"), ("lateral/W", "weight_hh")):
        array = weights.pop(f"{link}/{theirs}")
        blocks = array.reshape(-1, 4, *array.shape[1:])[:, [1, 2, 0, 3]].swapaxes(0, 1)
        found[to.format(ours)] = blocks.reshape(array.shape).copy()
    return found


class PTB(nn.Module):
    """Language model; ``nn.LSTM`` takes all steps of a layer in one call."""

    def __init__(self, vocab: int, units: int, **_: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, units)
        self.lstm = nn.LSTM(units, units, 2, batch_first=True)
        self.out = nn.Linear(units, vocab)
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):  # Chainer has one bias
            nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, words: Any) -> Any:
        return self.out(self.lstm(self.embed(words))[0])

    def renamed(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Gates as blocks."""
        found = dict(weights)
        for layer in (1, 2):
            found.update(cell_blocks(found, f"lstm{layer}", f"lstm/{{}}_l{layer - 1}"))
        return found


class PTBCells(nn.Module):
    """The same from cells, for ``torch.compile`` leaves ``nn.LSTM`` out of its graphs; each with its input's part."""

    def __init__(self, vocab: int, units: int, **_: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, units)
        for name in ("lstm1", "lstm2"):
            self.add_module(name, nn.ModuleDict({"upward": nn.Linear(units, 4 * units),
                                                 "lateral": nn.Linear(units, 4 * units, bias=False)}))
        self.out = nn.Linear(units, vocab)

    def forward(self, words: Any) -> Any:
        h = self.embed(words)
        for layer in (self.lstm1, self.lstm2):
            upward, outputs, c = layer["upward"](h), [], None
            for i in range(upward.shape[1]):
                x = upward[:, i] if c is None else upward[:, i] + layer["lateral"](outputs[-1])
                a, i_, f, o = x.chunk(4, 1)
                new = torch.tanh(a) * torch.sigmoid(i_)
                c = new if c is None else new + c * torch.sigmoid(f)
                outputs.append(torch.tanh(c) * torch.sigmoid(o))
            h = torch.stack(outputs, 1)
        return self.out(h)

    def renamed(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Gates as blocks."""
        return {path: array.reshape(-1, 4, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape).copy()
                if path.startswith("lstm") else array for path, array in weights.items()}


class GRUTagger(nn.Module):
    """A convolution over three words and a GRU that resets before it multiplies, unlike ``nn.GRU``."""

    def __init__(self, vocab: int, tags: int, units: int, width: int, **_: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.conv = nn.Conv1d(width, units, 3, padding=1)
        self.gru = nn.ModuleDict({name: nn.Linear(units, units) for name in ("W", "W_r", "W_z", "U", "U_r", "U_z")})
        self.out = nn.Linear(units, tags)

    def forward(self, words: Any) -> Any:
        x = F.relu(self.conv(self.embed(words).transpose(1, 2))).transpose(1, 2)
        gru, h, outputs = self.gru, None, []
        xr, xz, xh = gru["W_r"](x), gru["W_z"](x), gru["W"](x)
        for i in range(x.shape[1]):
            if h is None:
                h = torch.sigmoid(xz[:, i]) * torch.tanh(xh[:, i])
            else:
                r, z = torch.sigmoid(xr[:, i] + gru["U_r"](h)), torch.sigmoid(xz[:, i] + gru["U_z"](h))
                h = torch.lerp(h, torch.tanh(xh[:, i] + gru["U"](r * h)), z)
            outputs.append(h)
        return self.out(torch.stack(outputs, 1))


class Block(nn.Module):
    """Transformer block."""

    def __init__(self, width: int, heads: int, units: int, **_: Any) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, units), nn.Linear(units, width)

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        q, k, v = (h.view(batch, steps, self.heads, -1).transpose(1, 2) for h in self.qkv(self.ln1(x)).chunk(3, 2))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.proj(h)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


def per_step(y: Any, t: Any) -> Any:
    """The sum over time of the mean cross entropies of a batch."""
    return t.shape[1] * F.cross_entropy(y.flatten(0, 1), t.flatten())


MODELS = {
    "mushroom_mlp": Entry(MLP, lambda y, t: F.binary_cross_entropy_with_logits(y, t.to(y.dtype))),
    "mnist_mlp": Entry(MLP, F.cross_entropy),
    "elementwise": Entry(Elementwise, lambda y: (y * y).sum()),
    "vae": Entry(VAE, vae_loss),
    "lenet_cnn": Entry(LeNet, F.cross_entropy),
    "vgg_cifar": Entry(VGG, F.cross_entropy),
    "resnet18": Entry(ResNet18, F.cross_entropy),
    "ptb_lstm": Entry(PTB, per_step, PTBCells, stacked=True),
    "gru_tagger": Entry(GRUTagger, per_step, stacked=True),
    "transformer_block": Entry(Block, lambda y: (y * y).mean()),
}
