"""What the survey's models are to PyTorch: :data:`SURVEY`. Names are those of Chainer's links."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .torch_models import MLP, Entry, Normalized, cell_blocks


class BatchNormMLP(nn.Module):
    """Fully connected layers with batch normalization."""

    def __init__(self, n_in: int, units: int, n_out: int, **_: Any) -> None:
        super().__init__()
        self.l1, self.bn1 = nn.Linear(n_in, units), nn.BatchNorm1d(units, eps=2e-5)
        self.l2, self.bn2 = nn.Linear(units, units), nn.BatchNorm1d(units, eps=2e-5)
        self.l3 = nn.Linear(units, n_out)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn1(self.l1(x)))
        return self.l3(F.relu(self.bn2(self.l2(h))))


class Autoencoder(nn.Module):
    """Four layers with sigmoid."""

    def __init__(self, n_in: int, units: int, code: int, **_: Any) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(n_in, units), nn.Linear(units, code)
        self.l3, self.l4 = nn.Linear(code, units), nn.Linear(units, n_in)

    def forward(self, x: Any) -> Any:
        h = torch.sigmoid(self.l2(torch.sigmoid(self.l1(x))))
        return self.l4(torch.sigmoid(self.l3(h)))


class ActorCritic(nn.Module):
    """A policy and a value on one perceptron."""

    def __init__(self, n_in: int, units: int, actions: int, **_: Any) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(n_in, units), nn.Linear(units, units)
        self.policy, self.value = nn.Linear(units, actions), nn.Linear(units, 1)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.l2(torch.tanh(self.l1(x))))
        return self.policy(h), self.value(h)


def actor_critic_loss(outputs: Any, action: Any, gain: Any) -> Any:
    """What was done, weighted by its gain; the value's error; an entropy bonus."""
    policy, value = outputs
    chances = F.log_softmax(policy, 1)
    entropy = -(chances.exp() * chances).sum(1).mean()
    return (-(chances.gather(1, action[:, None])[:, 0] * gain).mean() + 0.5 * F.mse_loss(value.flatten(), gain)
            - 0.01 * entropy)


class DQN(nn.Module):
    """Two convolutions with strides and two layers."""

    def __init__(self, side: int, units: int, actions: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 4 - 2) // 2
        self.conv1, self.conv2 = nn.Conv2d(4, 16, 8, 4), nn.Conv2d(16, 32, 4, 2)
        self.l1, self.l2 = nn.Linear(32 * last * last, units), nn.Linear(units, actions)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.l2(F.relu(self.l1(h.flatten(1))))


def dqn_loss(y: Any, action: Any, worth: Any) -> Any:
    """Huber's, of the actions taken."""
    return F.smooth_l1_loss(y.gather(1, action[:, None])[:, 0], worth)


class Siamese(nn.Module):
    """The same network for two pictures."""

    def __init__(self, side: int, units: int, **_: Any) -> None:
        super().__init__()
        last = ((side - 4) // 2 - 4) // 2
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.l1, self.l2 = nn.Linear(32 * last * last, units), nn.Linear(units, 2)

    def one(self, x: Any) -> Any:
        h = F.max_pool2d(F.relu(self.conv1(x)), 2)
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        return self.l2(F.relu(self.l1(h.flatten(1))))

    def forward(self, x: Any, y: Any) -> Any:
        return self.one(x), self.one(y)


def contrastive(outputs: Any, same: Any) -> Any:
    """Squared distances of those that are the same, squared margins of the others."""
    squares = ((outputs[0] - outputs[1]) ** 2).sum(1)
    margins = F.relu(1 - squares.sqrt()) ** 2
    return (same * squares + (1 - same) * margins).sum() / (2 * len(same))


class Conv3D(nn.Module):
    """Two 3-D convolutions and two layers."""

    def __init__(self, side: int, classes: int, widths: Any, units: int, **_: Any) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(1, widths[0], 3, padding=1)
        self.conv2 = nn.Conv3d(widths[0], widths[1], 3, padding=1)
        self.l1 = nn.Linear(widths[1] * (side // 8) * (side // 4) ** 2, units)
        self.l2 = nn.Linear(units, classes)

    def forward(self, x: Any) -> Any:
        h = F.max_pool3d(F.relu(self.conv1(x)), 2)
        h = F.max_pool3d(F.relu(self.conv2(h)), 2)
        return self.l2(F.relu(self.l1(h.flatten(1))))


class Inverted(nn.Module):
    """MobileNet's block."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        wide = 6 * n_in
        self.same = stride == 1 and n_in == n_out
        self.wider = Normalized(n_in, wide, 1)
        self.conv = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        self.bn = nn.BatchNorm2d(wide, eps=2e-5)
        self.narrower = Normalized(wide, n_out, 1)

    def forward(self, x: Any) -> Any:
        h = F.relu6(self.bn(self.conv(F.relu6(self.wider(x)))))
        h = self.narrower(h)
        return x + h if self.same else h


class MobileNet(nn.Module):
    """Five inverted blocks."""

    def __init__(self, channels: int, classes: int, widths: Any, **_: Any) -> None:
        super().__init__()
        a, b, c, d = widths
        self.stem = Normalized(channels, a, 3, 1, 1)
        self.body = nn.Sequential(Inverted(a, b, 2), Inverted(b, b, 1), Inverted(b, c, 2), Inverted(c, c, 1),
                                  Inverted(c, d, 2))
        self.fc = nn.Linear(d, classes)

    def forward(self, x: Any) -> Any:
        return self.fc(self.body(F.relu(self.stem(x))).mean((2, 3)))


class Dense(nn.Module):
    """DenseNet's layer."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(n_in, eps=2e-5)
        self.conv = nn.Conv2d(n_in, growth, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.conv(F.relu(self.bn(x)))], 1)


class DenseNet(nn.Module):
    """Two blocks of layers that add channels."""

    def __init__(self, channels: int, classes: int, first: int, growth: int, depth: int, **_: Any) -> None:
        super().__init__()
        middle = first + growth * depth
        last = middle // 2 + growth * depth
        self.conv = nn.Conv2d(channels, first, 3, padding=1, bias=False)
        self.block1 = nn.Sequential(*[Dense(first + growth * i, growth) for i in range(depth)])
        self.bn1 = nn.BatchNorm2d(middle, eps=2e-5)
        self.between = nn.Conv2d(middle, middle // 2, 1, bias=False)
        self.block2 = nn.Sequential(*[Dense(middle // 2 + growth * i, growth) for i in range(depth)])
        self.bn2 = nn.BatchNorm2d(last, eps=2e-5)
        self.fc = nn.Linear(last, classes)

    def forward(self, x: Any) -> Any:
        h = self.between(F.relu(self.bn1(self.block1(self.conv(x)))))
        h = F.relu(self.bn2(self.block2(F.avg_pool2d(h, 2))))
        return self.fc(h.mean((2, 3)))


class Twice(nn.Module):
    """Two convolutions with batch normalization."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.first, self.second = Normalized(n_in, n_out, 3, pad=1), Normalized(n_out, n_out, 3, pad=1)

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))))


class UNet(nn.Module):
    """Three levels down and up."""

    def __init__(self, channels: int, classes: int, width: int, **_: Any) -> None:
        super().__init__()
        a, b, c = width, 2 * width, 4 * width
        self.down1, self.down2, self.middle = Twice(channels, a), Twice(a, b), Twice(b, c)
        self.up2, self.up1 = nn.ConvTranspose2d(c, b, 2, 2), nn.ConvTranspose2d(b, a, 2, 2)
        self.join2, self.join1 = Twice(c, b), Twice(b, a)
        self.out = nn.Conv2d(a, classes, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        h = self.up2(self.middle(F.max_pool2d(second, 2)))
        h = self.up1(self.join2(torch.cat([h, second], 1)))
        return self.out(self.join1(torch.cat([h, first], 1)))


class WaveNet(nn.Module):
    """Gated convolutions with dilations."""

    def __init__(self, channels: int, classes: int, units: int, depth: int, **_: Any) -> None:
        super().__init__()
        self.stem = nn.Conv1d(channels, units, 1)
        self.gates = nn.ModuleList([nn.Conv1d(units, 2 * units, 2, padding=2**i, dilation=2**i) for i in range(depth)])
        self.skips = nn.ModuleList([nn.Conv1d(units, units, 1) for _ in range(depth)])
        self.out = nn.Conv1d(units, classes, 1)

    def forward(self, x: Any) -> Any:
        steps, h, total = x.shape[2], self.stem(x), 0
        for gate, skip in zip(self.gates, self.skips, strict=True):
            a, b = gate(h)[:, :, :steps].chunk(2, 1)
            part = skip(torch.tanh(a) * torch.sigmoid(b))
            h, total = h + part, total + part
        return self.out(F.relu(total))


class Attention(nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        q, k, v = (h.view(batch, steps, self.heads, -1).transpose(1, 2) for h in self.qkv(self.ln1(x)).chunk(3, 2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.proj(h)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Language model, one embedding in and out."""

    def __init__(self, steps: int, vocab: int, width: int, heads: int, depth: int, **_: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(1, steps, width))
        self.blocks = nn.Sequential(*[Attention(width, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(width, eps=1e-5)

    def forward(self, words: Any) -> Any:
        h = self.ln(self.blocks(self.embed(words) + self.place[:, :words.shape[1]]))
        return F.linear(h, self.embed.weight).flatten(0, 1)


def blocks_of(link: str, to: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Chainer's ``NStepLSTM`` has an array per gate, torch has blocks; ``link``: the path of a layer and direction."""
    found = dict(weights)
    for first, theirs in ((0, "ih"), (4, "hh")):
        for kind, name in (("w", "weight"), ("b", "bias")):
            parts = [found.pop(f"{link}/{kind}{first + i}") for i in range(4)]
            found[to.format(f"{name}_{theirs}")] = np.concatenate(parts)
    return found


class BiLSTM(nn.Module):
    """An LSTM in both directions and the classes of its last states."""

    def __init__(self, vocab: int, units: int, classes: int, **_: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, units)
        self.lstm = nn.LSTM(units, units, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * units, classes)

    def forward(self, words: Any) -> Any:
        _, (h, _) = self.lstm(self.embed(words))
        return self.out(torch.cat([h[0], h[1]], 1))

    def renamed(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Gates as blocks."""
        return blocks_of("lstm/1", "lstm/{}_l0_reverse", blocks_of("lstm/0", "lstm/{}_l0", weights))


class Seq2Seq(nn.Module):
    """An LSTM, and a cell with attention to it."""

    def __init__(self, vocab: int, units: int, **_: Any) -> None:
        super().__init__()
        self.embed1, self.embed2 = nn.Embedding(vocab, units), nn.Embedding(vocab, units)
        self.encoder = nn.LSTM(units, units, batch_first=True)
        self.cell = nn.LSTMCell(units, units)
        self.mix, self.out = nn.Linear(2 * units, units), nn.Linear(units, vocab)
        nn.init.zeros_(self.cell.bias_hh).requires_grad_(False)  # Chainer has one bias

    def forward(self, words: Any, other: Any) -> Any:
        seen, (h, c) = self.encoder(self.embed1(words))
        h, c, embedded, outputs = h[0], c[0], self.embed2(other), []
        for i in range(other.shape[1]):
            h, c = self.cell(embedded[:, i], (h, c))
            weights = torch.softmax(torch.bmm(seen, h[:, :, None]), 1)
            found = torch.bmm(seen.transpose(1, 2), weights)[:, :, 0]
            outputs.append(torch.tanh(self.mix(torch.cat([h, found], 1))))
        return self.out(torch.cat(outputs, 0))

    def renamed(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Gates as blocks; a cell's four are side by side for each unit in Chainer."""
        found = blocks_of("encoder/0", "encoder/{}_l0", weights)
        found.update(cell_blocks(found, "cell", "cell/{}"))
        return found


class Speech(nn.Module):
    """A perceptron on each step."""

    def __init__(self, n_in: int, units: int, symbols: int, **_: Any) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(n_in, units), nn.Linear(units, symbols)

    def forward(self, x: Any) -> Any:
        return self.l2(F.relu(self.l1(x)))


def ctc_loss(y: Any, t: Any) -> Any:
    """Connectionist temporal classification, the mean of a batch."""
    batch, steps, _ = y.shape
    lengths = torch.full((batch,), steps), torch.full((batch,), t.shape[1])
    return F.ctc_loss(F.log_softmax(y, 2).transpose(0, 1), t, *lengths, reduction="none").mean()


class Clicks(nn.Module):
    """Embeddings and their products."""

    def __init__(self, n_in: int, fields: int, vocab: int, width: int, units: int, **_: Any) -> None:
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(vocab, width) for _ in range(fields)])
        self.below1, self.below2 = nn.Linear(n_in, units), nn.Linear(units, width)
        self.above1, self.above2 = nn.Linear(width + (fields + 1) ** 2, units), nn.Linear(units, 1)

    def forward(self, x: Any, fields: Any) -> Any:
        h = F.relu(self.below2(F.relu(self.below1(x))))
        rows = torch.stack([h] + [embed(fields[:, i]) for i, embed in enumerate(self.embeds)], 1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        return self.above2(F.relu(self.above1(torch.cat([h, products], 1))))


def binary(y: Any, t: Any) -> Any:
    """Sigmoid cross entropy."""
    return F.binary_cross_entropy_with_logits(y, t.to(y.dtype))


def flat(y: Any, t: Any) -> Any:
    """Softmax cross entropy of rows."""
    return F.cross_entropy(y, t.flatten())


SURVEY = {
    "wide_mlp": Entry(MLP, F.cross_entropy),
    "batch_norm_mlp": Entry(BatchNormMLP, F.cross_entropy),
    "autoencoder": Entry(Autoencoder, binary),
    "actor_critic": Entry(ActorCritic, actor_critic_loss),
    "dqn": Entry(DQN, dqn_loss),
    "siamese": Entry(Siamese, contrastive),
    "conv3d": Entry(Conv3D, F.cross_entropy),
    "mobilenet": Entry(MobileNet, F.cross_entropy),
    "densenet": Entry(DenseNet, F.cross_entropy),
    "unet": Entry(UNet, F.cross_entropy),
    "wavenet": Entry(WaveNet, F.cross_entropy),
    "gpt": Entry(GPT, flat),
    "bilstm": Entry(BiLSTM, F.cross_entropy),
    "seq2seq": Entry(Seq2Seq, flat),
    "ctc": Entry(Speech, ctc_loss),
    "dlrm": Entry(Clicks, binary),
}
