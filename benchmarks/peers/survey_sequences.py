"""The survey's models of sequences and of tables. With those of :mod:`.survey`, which it imports, SURVEY is whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from kusari import Chain, ChainList, Parameter, optimizers
from kusari import functions as F
from kusari import links as L
from kusari.commands.models.definition import LABEL_SETS, label_sets, normal
from kusari.commands.models.dense import gelu
from kusari.commands.models.images import Classifier

from .survey import SURVEY, adam, integers, survey

__all__ = ["SURVEY"]


def wave_data(random: Any, batch: int, channels: int, steps: int, classes: int, **_: Any) -> Any:
    """Sequences of vectors, and a class per step."""
    return (normal(random, batch, channels, steps),), label_sets(random, classes, batch, steps)


@survey("wavenet", adam, wave_data, dict(batch=8, channels=16, steps=256, classes=32, units=32, depth=5),
        tiny=dict(batch=2, channels=3, steps=9, classes=4, units=4, depth=2))
class WaveNet(Classifier):
    """WaveNet, five gated 1-D convolutions with dilations of 1 to 16 on 256 steps, batch 8, Adam."""

    def __init__(self, channels: int, classes: int, units: int, depth: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution1D(channels, units, 1)
            self.gates = ChainList(*[L.Convolution1D(units, 2 * units, 2, pad=2**i, dilate=2**i)
                                     for i in range(depth)])
            self.skips = ChainList(*[L.Convolution1D(units, units, 1) for _ in range(depth)])
            self.out = L.Convolution1D(units, classes, 1)

    def forward(self, x: Any) -> Any:
        steps, h, total = x.shape[2], self.stem(x), 0
        for i in range(len(self.gates)):
            a, b = F.split_axis(self.gates[i](h)[:, :, :steps], 2, axis=1)
            part = self.skips[i](F.tanh(a) * F.sigmoid(b))
            h, total = h + part, total + part
        return self.out(F.relu(total))


def word_data(random: Any, batch: int, steps: int, vocab: int, **_: Any) -> Any:
    """Words, and the words that follow them."""
    return (integers(random, vocab, batch, steps),), label_sets(random, vocab, batch, steps)


class Attention(Chain):
    """A block of a GPT: attention to what has been, and two layers; both on normalized rows and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        with self.init_scope():
            self.ln1, self.ln2 = L.LayerNormalization(width, eps=1e-5), L.LayerNormalization(width, eps=1e-5)
            self.qkv, self.proj = L.Linear(width, 3 * width), L.Linear(width, width)
            self.fc1, self.fc2 = L.Linear(width, 4 * width), L.Linear(4 * width, width)

    def forward(self, x: Any, batch: int, seen: Any, never: Any) -> Any:
        rows, width = x.shape

        def split(h: Any) -> Any:
            return F.transpose(F.reshape(h, (batch, rows // batch, self.heads, width // self.heads)), (0, 2, 1, 3))

        q, k, v = (split(h) for h in F.split_axis(self.qkv(self.ln1(x)), 3, axis=1))
        scores = F.matmul(q, k, transb=True) * (width // self.heads)**-0.5
        scores = F.where(F.broadcast_to(seen, scores.shape), scores, F.broadcast_to(never, scores.shape))
        h = F.transpose(F.matmul(F.softmax(scores, axis=3), v), (0, 2, 1, 3))
        x = x + self.proj(F.reshape(h, (rows, width)))
        return x + self.fc2(gelu(self.fc1(self.ln2(x))))


@survey("gpt", adam, word_data, dict(batch=8, steps=64, vocab=512, width=128, heads=4, depth=2),
        tiny=dict(batch=2, steps=5, vocab=7, width=8, heads=2))
class GPT(Chain):
    """Language model, two blocks of causal attention of 4 heads of 32 on 64 words, one embedding in and out, Adam."""

    def __init__(self, steps: int, vocab: int, width: int, heads: int, depth: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(vocab, width)
            self.place = Parameter(0, (1, steps, width))
            self.blocks = ChainList(*[Attention(width, heads) for _ in range(depth)])
            self.ln = L.LayerNormalization(width, eps=1e-5)
        self.seen = np.tril(np.ones((steps, steps), dtype=bool))  # as people have it: an array in an attribute
        self.never = np.full(1, -1e9, dtype=np.float32)

    def forward(self, words: Any) -> Any:
        batch, steps = words.shape
        h = self.embed(words)
        h = F.reshape(h + F.broadcast_to(self.place[:, :steps], h.shape), (batch * steps, -1))
        for block in self.blocks:
            h = block(h, batch, self.seen[:steps, :steps], self.never)
        return F.linear(self.ln(h), self.embed.W)

    def loss(self, words: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(words), F.reshape(t, (-1,)))


def sentence_data(random: Any, batch: int, steps: int, vocab: int, classes: int, **_: Any) -> Any:
    """Sentences, and their classes."""
    return (integers(random, vocab, batch, steps),), label_sets(random, classes, batch)


@survey("bilstm", adam, sentence_data, dict(batch=32, steps=30, vocab=5000, units=64, classes=5),
        tiny=dict(batch=3, steps=4, vocab=7, units=4, classes=3))
class BiLSTM(Classifier):
    """Classifier of sentences, an LSTM of 64 units in both directions (`NStepBiLSTM`) on 30 words, batch 32, Adam."""

    def __init__(self, vocab: int, units: int, classes: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(vocab, units)
            self.lstm = L.NStepBiLSTM(1, units, units, 0)
            self.out = L.Linear(2 * units, classes)

    def forward(self, words: Any) -> Any:
        h, _, _ = self.lstm(None, None, list(F.separate(self.embed(words), axis=0)))
        return self.out(F.concat([h[0], h[1]], axis=1))


def translation_data(random: Any, batch: int, steps: int, other: int, vocab: int, **_: Any) -> Any:
    """Sentences in two languages, and the second ones' next words."""
    inputs = integers(random, vocab, batch, steps), integers(random, vocab, batch, other)
    return inputs, label_sets(random, vocab, other, batch)


@survey("seq2seq", adam, translation_data, dict(batch=32, steps=20, other=15, vocab=1000, units=64), clip=5.0,
        tiny=dict(batch=2, steps=4, other=3, vocab=7, units=4))
class Seq2Seq(Chain):
    """Translation, an LSTM of 64 units on 20 words, and one with attention to it on 15, batch 32, clipped Adam."""

    def __init__(self, vocab: int, units: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed1, self.embed2 = L.EmbedID(vocab, units), L.EmbedID(vocab, units)
            self.encoder = L.NStepLSTM(1, units, units, 0)
            self.cell = L.StatelessLSTM(units, units)
            self.mix, self.out = L.Linear(2 * units, units), L.Linear(units, vocab)

    def forward(self, words: Any, other: Any) -> Any:
        h, c, seen = self.encoder(None, None, list(F.separate(self.embed1(words), axis=0)))
        h, c, seen, outputs = h[0], c[0], F.stack(seen), []
        embedded = self.embed2(other)
        for i in range(other.shape[1]):
            c, h = self.cell(c, h, embedded[:, i])
            weights = F.softmax(F.matmul(seen, F.expand_dims(h, 2)), axis=1)
            found = F.matmul(seen, weights, transa=True)[:, :, 0]
            outputs.append(F.tanh(self.mix(F.concat([h, found], axis=1))))
        return self.out(F.concat(outputs, axis=0))

    def loss(self, words: Any, other: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(words, other), F.reshape(t, (-1,)))


def speech_data(random: Any, batch: int, steps: int, n_in: int, symbols: int, length: int, **_: Any) -> Any:
    """Sequences of vectors, and shorter ones of symbols; 0 is the blank."""
    labels = [(1 + integers(random, symbols - 1, batch, length),) for _ in range(LABEL_SETS)]
    return (normal(random, batch, steps, n_in),), labels


@survey("ctc", adam, speech_data, dict(batch=16, steps=50, n_in=40, units=64, symbols=20, length=10),
        tiny=dict(batch=2, steps=6, n_in=3, units=4, symbols=4, length=2))
class Speech(Chain):
    """Recognizer, a perceptron on each of 50 steps, connectionist temporal classification, batch 16, Adam."""

    def __init__(self, n_in: int, units: int, symbols: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(n_in, units), L.Linear(units, symbols)

    def forward(self, x: Any) -> Any:
        return self.l2(F.relu(self.l1(x, n_batch_axes=2)), n_batch_axes=2)

    def loss(self, x: Any, t: Any) -> Any:
        return F.connectionist_temporal_classification(list(F.separate(self.forward(x), axis=1)), t, 0)


def click_data(random: Any, batch: int, n_in: int, fields: int, vocab: int, **_: Any) -> Any:
    """Numbers and categories, and whether it was clicked."""
    return (normal(random, batch, n_in), integers(random, vocab, batch, fields)), label_sets(random, 2, batch, 1)


@survey("dlrm", lambda: optimizers.AdaGrad(0.01), click_data,
        dict(batch=128, n_in=13, fields=26, vocab=1000, width=16, units=64),
        tiny=dict(batch=3, n_in=4, fields=3, vocab=5, width=2, units=4))
class Clicks(Chain):
    """Recommender, 26 embeddings and their products with each other, two small perceptrons, batch 128, AdaGrad."""

    def __init__(self, n_in: int, fields: int, vocab: int, width: int, units: int, **_: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embeds = ChainList(*[L.EmbedID(vocab, width) for _ in range(fields)])
            self.below1, self.below2 = L.Linear(n_in, units), L.Linear(units, width)
            self.above1, self.above2 = L.Linear(width + (fields + 1)**2, units), L.Linear(units, 1)

    def forward(self, x: Any, fields: Any) -> Any:
        h = F.relu(self.below2(F.relu(self.below1(x))))
        rows = F.stack([h] + [self.embeds[i](fields[:, i]) for i in range(len(self.embeds))], axis=1)
        products = F.reshape(F.matmul(rows, rows, transb=True), (len(x), -1))
        return self.above2(F.relu(self.above1(F.concat([h, products], axis=1))))

    def loss(self, x: Any, fields: Any, t: Any) -> Any:
        return F.sigmoid_cross_entropy(self.forward(x, fields), t)
