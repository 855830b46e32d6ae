"""Recurrent links: Chainer's numbers, state, errors."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from links.recurrent_cases import values

import kusari
import kusari.functions as F
import kusari.links as L

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "chainer_recurrent.npz")


@pytest.fixture(scope="module")
def mine() -> dict[str, list[Any]]:
    return values(kusari)


@pytest.mark.parametrize("name", sorted(GOLDEN.files))
def test_chainer_gives_the_same(name: str, mine: dict[str, list[Any]]) -> None:
    arrays = mine[name]
    expected = np.split(GOLDEN[name], np.cumsum([np.size(a) for a in arrays])[:-1])
    draws = next(i for i, a in enumerate(arrays) if np.ndim(a) == 0)
    for i, (a, e) in enumerate(zip(arrays, expected, strict=True)):
        if i < draws:
            assert a.dtype == np.float32
        if i <= draws:  # first values of parameters, and where the generator stands
            np.testing.assert_array_equal(np.ravel(a).astype("d"), e)
        else:
            np.testing.assert_allclose(np.ravel(a), e, rtol=1e-4, atol=1e-5)


def test_state_goes_with_the_link(tmp_path: Path) -> None:
    link = L.LSTM(3, 2)
    x = np.ones((4, 3), "f")
    assert link.c is None and link.h is None and link(x) is link.h
    shared, own = link.copy(), copy.deepcopy(link)
    assert shared.h is link.h and own.h is not link.h
    np.testing.assert_array_equal(own(x).array, shared(x).array)
    link.to_device("@numpy")
    assert link.h.xp is np
    file = tmp_path / "model.npz"
    kusari.serializers.save_npz(file, link)
    assert sorted(np.load(file).files) == ["lateral/W", "upward/W", "upward/b"]
    link.reset_state()
    assert link.c is None and link.h is None
    kusari.serializers.load_npz(file, link)
    np.testing.assert_array_equal(link.upward.W.array, own.upward.W.array)


def test_saved_before_the_first_input(tmp_path: Path) -> None:
    link, other = L.LSTM(2), L.LSTM(2)
    kusari.serializers.save_npz(tmp_path / "lazy.npz", link)
    link(np.ones((1, 3), "f"))
    kusari.serializers.save_npz(tmp_path / "full.npz", link)
    kusari.serializers.load_npz(tmp_path / "full.npz", other)
    np.testing.assert_array_equal(other.upward.W.array, link.upward.W.array)
    np.testing.assert_array_equal(other(np.ones((1, 3), "f")).array, link.h.array)


def test_ws_are_the_parameters_of_copies_too() -> None:
    for link in (L.NStepLSTM(2, 3, 4, 0.5), copy.deepcopy(L.NStepBiGRU(1, 3, 4, 0)), L.NStepRNNTanh(1, 2, 3, 0).copy()):
        assert len(link.ws) == len(link) == link.n_layers * link.direction
        assert all(w is link[k][f"w{j}"] if hasattr(link[k], "__getitem__") else w is getattr(link[k], f"w{j}")
                   for k, ws in enumerate(link.ws) for j, w in enumerate(ws))
        assert [b.shape for b in link.bs[0]] == [(link.out_size,)] * link.n_weights


X = np.ones((2, 3), "f")


def _grown() -> Any:
    link = L.LSTM(3, 2)
    link(X)
    return link(np.ones((3, 3), "f"))


STATE = np.zeros((1, 2, 2), "f")
WEIGHTS = [[np.zeros((2, 3), "f")] * 4 + [np.zeros((2, 2), "f")] * 4]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: F.lstm(X[:1, :2], np.ones((2, 8), "f")), kusari.errors.InvalidType, r"x.shape\[0\] <= c.shape\[0\]"),
    (lambda: F.lstm(X, X), kusari.errors.InvalidType, r"Expect: x.shape\[1\] == 4 \* c.shape\[1\]\nActual: 3 != 12"),
    (lambda: F.lstm(X.astype("d"), np.ones((2, 12), "f")), kusari.errors.InvalidType, "x.dtype == c.dtype"),
    (lambda: F.slstm(X, X, np.ones((2, 12), "f"), X), kusari.errors.InvalidType, r"x2.shape\[1\] == 4 \* c_prev2"),
    (lambda: F.tree_lstm(X), kusari.errors.InvalidType, "Expect: "),
    (_grown, TypeError, "equal to or less than the size of the previous state h"),
    (lambda: L.LSTM(3, 2).set_state(X, X), TypeError, "must be a Variable"),
    (lambda: L.StatefulZoneoutLSTM(3, 2, train=True), ValueError, "train argument is not supported"),
    (lambda: L.NStepLSTM(1, 3, 2, 0, use_cudnn=True), ValueError, "use_cudnn argument is not supported"),
    (lambda: L.NStepGRU(1, 3, 2, 0)(None, X), TypeError, "a list of sequences"),
    (lambda: L.NStepGRU(1, 3, 2, 0)(None, []), TypeError, "of length 0"),
    (lambda: L.NStepGRU(1, 3, 2, 0)(None, [X, X[:0]]), kusari.errors.InvalidType, "sequences of one step or more"),
    (lambda: L.NStepGRU(1, 3, 2, 0)(STATE, [X, X, X[:1]]), kusari.errors.InvalidType, "the state.s shape"),
    (lambda: L.NStepGRU(1, 3, 2, 0)(None, [np.ones((2, 4), "f")]), kusari.errors.InvalidType, "shape"),
    (lambda: F.n_step_lstm(1, 0, STATE, STATE, WEIGHTS, [[STATE[0, 0]] * 8], X), TypeError, "xs must be list or tuple"),
    (lambda: F.n_step_lstm(1, 0, STATE, STATE, WEIGHTS, [[STATE[0, 0]] * 8], [X[:1], X]), kusari.errors.InvalidType,
     "longest sequence first"),
    (lambda: F.n_step_lstm(1, 0, STATE[:, :1], STATE, WEIGHTS, [[STATE[0, 0]] * 8], [X]), kusari.errors.InvalidType,
     "the state's shape"),
    (lambda: F.n_step_rnn(1, 0, STATE, WEIGHTS, WEIGHTS, [X], activation="gelu"), ValueError, 'Invalid activation: "g'),
    (lambda: L.ChildSumTreeLSTM(3, 2)(X, X), ValueError, "as many cells as outputs"),
    (lambda: L.NaryTreeLSTM(3, 2)(X), ValueError, "expects 2 cells"),
    (lambda: L.NaryTreeLSTM(3, 2)(*[None] * 5), ValueError, "at least one"),
])
def test_errors(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()
