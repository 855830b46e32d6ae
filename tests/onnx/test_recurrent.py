"""Recurrent networks over sequences become ONNX's own operators where all sequences are as long."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx


class Net(kusari.Chain):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.rnn = kind(2, 3, 4, 0.5, initial_bias=kusari.initializers.Normal(0.3))

    def forward(self, *xs: Any) -> Any:
        *last, ys = self.rnn(*[None] * self.rnn.n_cells, list(xs))
        return (*last, *ys)


KINDS = [(L.NStepLSTM, "LSTM"), (L.NStepBiLSTM, "LSTM"), (L.NStepGRU, "GRU"), (L.NStepBiGRU, "GRU"),
         (L.NStepRNNTanh, "RNN"), (L.NStepBiRNNReLU, "RNN")]


@pytest.mark.parametrize(("kind", "operator"), KINDS, ids=lambda k: getattr(k, "__name__", None))
def test_layers_are_operators(kind: Any, operator: str) -> None:
    xs = [np.random.RandomState(i).randn(5, 3).astype("f") for i in range(2)]
    made: Any = kusari.onnx.export(Net(kind), tuple(xs))
    assert [n.op_type for n in made.graph.node].count(operator) == 2  # compared with define-by-run by ``export``


def test_sequences_of_different_lengths() -> None:
    xs = [np.random.RandomState(n).randn(n, 3).astype("f") for n in (2, 4)]
    made: Any = kusari.onnx.export(Net(L.NStepLSTM), tuple(xs))
    assert "LSTM" not in [n.op_type for n in made.graph.node]


class Model(kusari.Chain):
    """Words in, something for each word out."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(9, 3)
            self.rnn = kind(2, 3, 4, 0.5)

    def forward(self, words: Any) -> Any:
        *_, ys = self.rnn(*[None] * self.rnn.n_cells, F.separate(self.embed(words), axis=0))
        return F.stack(ys)


@pytest.mark.parametrize(("kind", "operator"), KINDS, ids=lambda k: getattr(k, "__name__", None))
def test_any_number_of_sequences_of_any_length(kind: Any, operator: str) -> None:
    words = np.arange(10, dtype=np.int32).reshape(2, 5) % 9
    made: Any = kusari.onnx.export(Model(kind), words, dynamic_shapes={"Input_0": {0: "batch", 1: "time"}})
    assert [n.op_type for n in made.graph.node].count(operator) == 2
    dims = made.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims][:2] == ["batch", "time"]
