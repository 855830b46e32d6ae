"""The links: shapes seen at the first call, options, and what they compute."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.randn(*shape).astype(dtype)


def test_linear() -> None:
    x = array(4, 3)
    link = L.Linear(3, 2)
    np.testing.assert_allclose(link(x).array, x @ link.W.array.T + link.b.array, rtol=1e-5)
    assert str(link) == "Linear(in_size=3, out_size=2, nobias=False)" and (link.b.array == 0).all()
    lazy = L.Linear(None, 2, nobias=True, initialW=2)
    assert not lazy.W.is_initialized and str(lazy) == "Linear(in_size=None, out_size=2, nobias=True)"
    assert lazy(array(5, 2, 3)).shape == (5, 2) and lazy.W.shape == (2, 6) and lazy.in_size == 6 and lazy.b is None
    assert L.Linear(2)(array(5, 4, 3), n_batch_axes=2).shape == (5, 4, 2)
    assert L.Linear(3, 2, initialW=np.ones((2, 3)), initial_bias=np.arange(2))(x[:1] * 0).array.tolist() == [[0, 1]]
    with pytest.raises(kusari.errors.InvalidType, match="Expect"):
        link(array(4, 4))


def test_a_lazy_parameters_cleared_gradient_stays_cleared() -> None:
    link = L.Linear(2)
    link.cleargrads()
    loss = F.sum(link(array(4, 3)))
    loss.backward()
    assert np.isfinite(link.W.grad).all()


def test_embed_id() -> None:
    link = L.EmbedID(5, 3, ignore_label=-1)
    x = np.array([[0, 4], [-1, 1]], "int32")
    y = link(x).array
    assert y.shape == (2, 2, 3) and (y[1, 0] == 0).all() and (y[0, 1] == link.W.array[4]).all()


def test_bias_and_scale() -> None:
    x, w = array(2, 3, 4), array(3)
    assert (L.Bias(1, (3,))(x).array == x).all()
    np.testing.assert_array_equal(L.Bias(1)(x, w).array, x + w[:, None])
    np.testing.assert_array_equal(L.Scale(1)(x, w).array, x * w[:, None])
    link = L.Scale(1, (3,), bias_term=True)
    link.W.array[...], link.bias.b.array[...] = 2, 1
    np.testing.assert_array_equal(link(x).array, x * 2 + 1)
    assert [path for path, _ in link.namedparams()] == ["/W", "/bias/b"]
    assert L.Scale(1, None, True, (3,))(x, w).shape == x.shape
    for wrong in (lambda: L.Bias(1)(x), lambda: L.Scale(1, (3,))(x, w), lambda: L.Scale(1, bias_term=True)):
        with pytest.raises(ValueError, match=r"expects|bias_shape"):
            wrong()


def test_layer_normalization() -> None:
    x = array(4, 5)
    link = L.LayerNormalization()
    y = link(x).array
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert link.gamma.shape == (5,) and L.LayerNormalization(3, initial_gamma=2).gamma.array.tolist() == [2, 2, 2]


def normalized(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 2e-5)


@pytest.mark.parametrize(
    ("arguments", "shape", "axis", "size"),
    [
        (dict(size=3), (6, 3), (0,), (3,)), (dict(size=3), (6, 3, 4, 4), (0, 2, 3), (3,)),
        (dict(size=(3, 4)), (6, 3, 4), (0,), (3, 4)), (dict(axis=0), (6, 3, 4), (0,), (3, 4)),
        (dict(axis=(0, 2)), (6, 3, 4), (0, 2), (3,)), (dict(size=4, axis=(0, 1)), (6, 3, 4), (0, 1), (4,)),
    ],
)  # fmt: skip
def test_batch_normalization_axes(arguments, shape, axis, size) -> None:
    x = array(*shape)
    link = L.BatchNormalization(**arguments)
    np.testing.assert_allclose(link(x).array, normalized(x, axis), rtol=1e-3, atol=1e-4)
    assert link.gamma.shape == link.avg_var.shape == size
    np.testing.assert_allclose(link.avg_mean, 0.1 * x.mean(axis), rtol=1e-4, atol=1e-6)
    n = x.size // link.avg_mean.size
    np.testing.assert_allclose(link.avg_var, 0.9 + 0.1 * x.var(axis) * n / (n - 1), rtol=1e-4)
    with kusari.using_config("train", False):
        mean, var = (a.copy() for a in (link.avg_mean, link.avg_var))
        keep = tuple(1 if i in axis else n for i, n in enumerate(shape))
        expected = (x - mean.reshape(keep)) / np.sqrt(var.reshape(keep) + 2e-5)
        np.testing.assert_allclose(link(x).array, expected, rtol=1e-3, atol=1e-5)
    assert (link.avg_mean == mean).all()


@pytest.mark.parametrize("link", [L.LayerNormalization(), L.SimplifiedDropconnect(None, 2)], ids=["layer", "connect"])
def test_sizes_are_seen_in_batches_of_none(link) -> None:
    link(np.zeros((0, 3), "f"))
    assert link(np.ones((2, 3), "f")).shape[0] == 2


def test_biases_of_convolutions_take_their_inputs_dtype() -> None:
    link, x = L.ConvolutionND(1, 2, 3, 2, initial_bias=0.5), np.ones((1, 2, 4))
    link.cleargrads()
    y = link(x)
    y.grad = np.ones_like(y.array)
    y.backward()
    assert (y.dtype, link.W.grad.dtype, link.b.grad.dtype) == ("d", "f", "f")
    np.testing.assert_array_equal(link.b.grad, 3)


def test_batch_normalization_fine_tuning() -> None:
    x = array(8, 3)
    link = L.BatchNormalization(3)
    link(x, finetune=True)
    link(2 * x, finetune=True)
    assert link.N == 2
    np.testing.assert_allclose(link.avg_mean, 1.5 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(link.avg_var, 2.5 * x.var(0, ddof=1), rtol=1e-5)
    link.start_finetuning()
    assert link.N == 0


def test_batch_normalization_options() -> None:
    link = L.BatchNormalization(2, use_gamma=False, use_beta=False, dtype="float64", initial_avg_var=4)
    assert link.gamma is None and link.beta is None and not list(link.params())
    assert link.avg_mean.dtype == np.float64 and link.avg_var.tolist() == [4, 4]
    assert L.BatchNormalization(2, use_beta=False, initial_gamma=3)(array(4, 2)).shape == (4, 2)
    with kusari.using_config("dtype", kusari.mixed16):
        link = L.BatchNormalization(2)
        assert link.gamma.dtype == link.avg_mean.dtype == np.float32 and L.Linear(2, 2).W.dtype == np.float16
        for group in (L.GroupNormalization(1), L.GroupNormalization(1, 2, initial_gamma=2, initial_beta=1)):
            assert group(array(3, 2, dtype="float16")).dtype == np.float16
            assert group.gamma.dtype == group.beta.dtype == np.float32
    drawn = kusari.initializers.Uniform(1)
    np.random.seed(0)
    link = L.BatchNormalization(2, initial_gamma=drawn, initial_beta=drawn, initial_avg_mean=drawn)
    np.random.seed(0)
    draws = np.random.uniform(-1, 1, 6).astype("f").reshape(3, 2)
    assert (np.stack([link.avg_mean, link.gamma.array, link.beta.array]) == draws).all()
    assert str(L.BatchNormalization(axis=0)).startswith("BatchNormalization(size=None, decay=0.9")
    for wrong, error in (
        (lambda: L.BatchNormalization(), RuntimeError),
        (lambda: L.BatchNormalization(2)(array(3, 2), test=1), ValueError),
        (lambda: L.BatchNormalization(2)(array(3, 2), foo=1), TypeError),
        (lambda: L.BatchNormalization(2)(array(3, 4)), kusari.errors.InvalidType),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()


def test_batch_normalization_saves_and_copies() -> None:
    link, lazy = L.BatchNormalization(3), L.BatchNormalization(axis=0)
    link(array(4, 3))
    serializer = kusari.serializers.DictionarySerializer()
    serializer.save(link)
    assert sorted(serializer.target) == ["N", "avg_mean", "avg_var", "beta", "gamma"]
    kusari.serializers.NpzDeserializer(serializer.target).load(lazy)
    assert (lazy.avg_mean == link.avg_mean).all() and lazy.gamma.shape == (3,)
    before = link.avg_mean.copy()
    lazy(array(4, 3))
    assert (lazy.avg_mean != before).any() and (link.avg_mean == before).all()
    for other in (copy.deepcopy(link), pickle.loads(pickle.dumps(link)), link.copy("copy")):
        other(array(4, 3))
        assert (other.avg_mean != link.avg_mean).any()


def test_classifier() -> None:
    x, t = array(6, 3), np.array([0, 1, 2, 0, 1, 2], "int32")
    model = L.Classifier(L.Linear(3, 3))
    reporter = kusari.Reporter()
    reporter.add_observer("model", model)
    with reporter.scope(observation := {}):
        loss = model(x, t)
    np.testing.assert_allclose(loss.array, F.softmax_cross_entropy(model.predictor(x), t).array)
    assert set(observation) == {"model/loss", "model/accuracy"} and model.loss is loss and model.y.shape == (6, 3)
    model.compute_accuracy = False
    model(x, t)
    assert model.accuracy is None
    named = L.Classifier(L.Linear(3, 3), label_key="t")
    assert named(x, t=t).shape == () and L.Classifier(L.Linear(3, 3), label_key=0)(t, x).shape == ()
    for wrong, error in (
        (lambda: L.Classifier(L.Linear(3), label_key=1.5), TypeError), (lambda: named(x), ValueError),
        (lambda: model(), ValueError), (lambda: L.Classifier(L.Linear(3), label_key=3)(x, t), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()


def test_timer_hook(capsys) -> None:
    with kusari.link_hooks.TimerHook() as hook:
        kusari.Sequential(L.Linear(2, 2), L.Linear(2, 2))(array(1, 2))
    assert [name for name, _ in hook.call_history] == ["Linear", "Linear", "Sequential"]
    assert hook.summary()["Linear"]["occurrence"] == 2 and hook.total_time() > 0
    hook.print_report(unit="ms")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["LinkName", "ElapsedTime", "Occurrence"] and lines[1].endswith("ms           2")
    with pytest.raises(ValueError, match="unit should be one of"):
        hook.print_report(unit="h")


W = np.arange(24, dtype="f").reshape(2, 3, 2, 2)


@pytest.mark.parametrize(("made", "like", "x"), [
    (lambda: L.Linear.from_params(W[0, 0], kusari.Parameter(W[0, 0, 0])),
     lambda: L.Linear(2, initialW=W[0, 0], initial_bias=W[0, 0, 0]), W[0, 0]),
    (lambda: L.Linear.from_params(kusari.Variable(W[0, 0]), W[0, 0, 0], True),
     lambda: L.Linear(2, nobias=True, initialW=W[0, 0]), W[0, 0]),
    (lambda: L.EmbedID.from_params(W[0, 0], ignore_label=1),
     lambda: L.EmbedID(2, 2, W[0, 0], 1), np.array([1, 0])),
    (lambda: L.Convolution2D.from_params(W, stride=2, pad=1, groups=2),
     lambda: L.Convolution2D(6, 2, 2, 2, 1, initialW=W, groups=2), W.reshape(1, 6, 2, 2)),
    (lambda: L.ConvolutionND.from_params(W[..., 0], W[0, 0, 0], cover_all=True, stride=3),
     lambda: L.Convolution1D(3, 2, 2, 3, initialW=W[..., 0], initial_bias=W[0, 0, 0], cover_all=True),
     W.reshape(2, 3, 4)),
])
def test_made_of_given_parameters(made, like, x) -> None:
    link, other = made(), like()
    np.testing.assert_array_equal(link(x).array, other(x).array)
    assert not any(np.shares_memory(p.array, W) for p in link.params())
    assert [n for n, _ in link.namedparams()] == [n for n, _ in other.namedparams()]


def test_made_of_given_parameters_by_none_else() -> None:
    with pytest.raises(NotImplementedError, match="LSTM does not implement from_params"):
        L.LSTM.from_params(W)
