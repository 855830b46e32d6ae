"""Recurrent and attention models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import Chain, optimizers
from ... import functions as F
from ... import links as L
from .definition import LABEL_SETS, model, normal
from .dense import gelu


def word_data(random: Any, batch: int, steps: int, vocab: int, tags: int | None = None, **_: Any) -> Any:
    """One array of words per step of time, and the label of each word."""
    def words(count: int) -> Any:
        return tuple(random.randint(0, count, (batch,)).astype(np.int32) for _ in range(steps))

    return words(vocab), [words(tags or vocab) for _ in range(LABEL_SETS)]


class Labelled(Chain):
    """A network with one output per step of time, whose loss is the sum of their softmax cross entropies."""

    forward: Any

    def loss(self, *arrays: Any) -> Any:
        words, labels = arrays[:len(arrays) // 2], arrays[len(arrays) // 2:]
        outputs = self.forward(*words)
        return sum(F.softmax_cross_entropy(outputs[i], labels[i]) for i in range(len(labels)))


@model("ptb_lstm", lambda: optimizers.SGD(0.1), word_data, dict(batch=20, steps=20, vocab=2000, units=200), clip=5.0,
       tiny=dict(batch=3, steps=4, vocab=7, units=5))
class PTB(Labelled):
    """Language model, two LSTM layers of 200 units over 20 words of a vocabulary of 2000, batch 20, clipped SGD."""

    def __init__(self, vocab: int, units: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(vocab, units)
            self.lstm1 = L.LSTM(units, units)
            self.lstm2 = L.LSTM(units, units)
            self.out = L.Linear(units, vocab)

    def forward(self, *words: Any) -> Any:
        self.lstm1.reset_state()
        self.lstm2.reset_state()
        return [self.out(self.lstm2(self.lstm1(self.embed(word)))) for word in words]


@model("gru_tagger", lambda: optimizers.Adam(0.001), word_data,
       dict(batch=32, steps=30, vocab=1000, tags=20, units=128, width=64),
       tiny=dict(batch=3, steps=4, vocab=7, tags=4, units=5, width=6))
class GRUTagger(Labelled):
    """Tagger, a convolution over three words and a GRU of 128 units over 30 words, 20 tags, batch 32, Adam."""

    def __init__(self, vocab: int, tags: int, units: int, width: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(vocab, width)
            self.conv = L.Convolution1D(width, units, 3, pad=1)
            self.gru = L.StatefulGRU(units, units)
            self.out = L.Linear(units, tags)

    def forward(self, *words: Any) -> Any:
        h = F.stack([self.embed(word) for word in words], axis=2)
        h = F.relu(self.conv(h))
        self.gru.reset_state()
        return [self.out(self.gru(h[:, :, i])) for i in range(len(words))]


def block_data(random: Any, batch: int, steps: int, width: int, **_: Any) -> Any:
    """One array and no labels."""
    return (normal(random, batch, steps, width),), [()]


@model("transformer_block", lambda: optimizers.Adam(1e-4), block_data,
       dict(batch=8, steps=128, width=256, heads=4, units=1024),
       tiny=dict(batch=2, steps=5, width=8, heads=2, units=12))
class Block(Chain):
    """Transformer block, 4 heads of 64, feed-forward of 1024, on 8 sequences of 128, Adam."""

    def __init__(self, width: int, heads: int, units: int, **_: Any) -> None:
        super().__init__()
        self.heads = heads
        with self.init_scope():
            self.ln1 = L.LayerNormalization(width, eps=1e-5)
            self.qkv = L.Linear(width, 3 * width)
            self.proj = L.Linear(width, width)
            self.ln2 = L.LayerNormalization(width, eps=1e-5)
            self.fc1 = L.Linear(width, units)
            self.fc2 = L.Linear(units, width)

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        heads, part = self.heads, width // self.heads

        def split(h: Any) -> Any:
            h = F.transpose(F.reshape(h, (batch, steps, heads, part)), (0, 2, 1, 3))
            return F.reshape(h, (batch * heads, steps, part))

        x = F.reshape(x, (batch * steps, width))
        q, k, v = (split(h) for h in F.split_axis(self.qkv(self.ln1(x)), 3, axis=1))
        w = F.softmax(F.matmul(q, k, transb=True) * part**-0.5, axis=2)
        h = F.reshape(F.matmul(w, v), (batch, heads, steps, part))
        h = F.reshape(F.transpose(h, (0, 2, 1, 3)), (batch * steps, width))
        x = x + self.proj(h)
        x = x + self.fc2(gelu(self.fc1(self.ln2(x))))
        return F.reshape(x, (batch, steps, width))

    def loss(self, x: Any) -> Any:
        y = self.forward(x)
        return F.mean(y * y)
