"""Deformable convolutions, conditional random fields, and normalizations beyond the common ones."""

from __future__ import annotations

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L


def test_deformable_convolution() -> None:
    x = np.random.RandomState(0).randn(2, 3, 5, 6).astype("f")
    link = L.DeformableConvolution2D(None, 4, (3, 2), stride=(1, 2), pad=1)
    assert link(x).shape == (2, 4, 5, 4)
    assert {n: p.shape for n, p in link.namedparams()} == {
        "/offset_conv/W": (12, 3, 3, 2), "/offset_conv/b": (12,), "/deform_conv/W": (4, 3, 3, 2),
        "/deform_conv/b": (4,)}
    assert (link.deform_conv.W.array == 0).all() and (link.offset_conv.W.array != 0).any()
    straight = L.DeformableConvolution2D(3, 4, 3, offset_initialW=0, deform_initialW=np.ones((4, 3, 3, 3)))
    np.testing.assert_allclose(straight(x).array, L.Convolution2D(3, 4, 3, initialW=1)(x).array, rtol=1e-4, atol=1e-5)
    assert len(list(L.DeformableConvolution2D(3, 4, 3, offset_nobias=True, deform_nobias=True).params())) == 2


def test_crf1d() -> None:
    cost = np.array([[0, 2], [1, 0]], "f")
    link = L.CRF1d(2, initial_cost=cost)
    assert (L.CRF1d(3).cost.array == np.zeros((3, 3))).all()
    sequences = [np.array(v, "f") for v in ([[1, 0]], [[3, 0], [0, 0], [0, 4]], [[0, 0], [1, 0]])]
    labels = [np.zeros(1, "i"), np.array([0, 0, 1], "i"), np.array([1, 0], "i")]
    score, path = link.argmax(sequences, transpose=True)
    assert [p.tolist() for p in path] == [[0], [0, 0, 1], [1, 0]]
    assert score.array.tolist() == [9, 2, 1]
    steps = [np.stack([sequences[i][t] for i in (1, 2, 0) if t < len(sequences[i])]) for t in range(3)]
    loss = link(sequences, labels, "no", transpose=True)
    arranged = [np.array([labels[i][t] for i in (1, 2, 0) if t < len(labels[i])], "i") for t in range(3)]
    np.testing.assert_array_equal(link(steps, arranged, reduce="no").array, loss.array)
    np.testing.assert_allclose(link(steps, arranged).array, loss.array.mean(), rtol=1e-6)
    assert link.argmax(steps)[0].array.tolist() == score.array.tolist() and loss.array[2] < 0.32


def test_batch_renormalization() -> None:
    x = np.random.RandomState(0).randn(6, 4, 3).astype("f")
    same, plain = L.BatchRenormalization(4), L.BatchNormalization(4)
    np.testing.assert_allclose(same(x).array, plain(x).array, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same.avg_var, plain.avg_var, rtol=1e-6)
    np.testing.assert_allclose(same.avg_mean, plain.avg_mean, rtol=1e-5)
    link = L.BatchRenormalization(4, rmax=1e9, dmax=1e9)
    link.avg_mean[...], link.avg_var[...] = 0.5, 4
    mean, var = np.full(4, 0.5, "f"), np.full(4, 4, "f")
    expected = F.fixed_batch_normalization(x, link.gamma, link.beta, mean, var)
    np.testing.assert_allclose(link(x).array, expected.array, rtol=1e-4, atol=1e-5)  # corrected all the way
    with kusari.using_config("train", False):
        expected = F.fixed_batch_normalization(x, link.gamma, link.beta, link.avg_mean, link.avg_var)
        np.testing.assert_array_equal(link(x).array, expected.array)
    link(x, finetune=True)
    np.testing.assert_allclose(link.avg_mean, x.mean((0, 2)), rtol=1e-4, atol=1e-6)
    static = kusari.static_graph(L.BatchRenormalization(4, 2, 1))
    eager = L.BatchRenormalization(4, 2, 1)
    for i in range(4):
        np.testing.assert_allclose(static(x + i).array, eager(x + i).array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rmax", [1.1, 100])  # limited or not
def test_the_gradient_of_batch_renormalization_takes_corrections_for_constants(rmax: float) -> None:
    x = np.random.RandomState(0).randn(6, 4).astype("f")
    link, plain = L.BatchRenormalization(4, rmax=rmax, dmax=0), L.BatchNormalization(4)
    link.avg_var[...] = 1e-3
    correction = np.minimum(np.sqrt((x.var(0) + 2e-5) / (1e-3 + 2e-5)), rmax).astype("f")
    v, w = kusari.Variable(x), kusari.Variable(x)
    F.sum(link(v) ** 3).backward()
    F.sum((plain(w) * correction) ** 3).backward()
    np.testing.assert_allclose(v.grad, w.grad, rtol=1e-4, atol=1e-4)


def test_decorrelated_batch_normalization() -> None:
    x = np.random.RandomState(0).randn(40, 4, 3).astype("f")
    x[:, 1] += x[:, 0]
    link = L.DecorrelatedBatchNormalization(4, groups=2)
    y = link(x).array.transpose(1, 0, 2).reshape(2, 2, -1)
    for group in y:
        np.testing.assert_allclose(group @ group.T / 120, np.eye(2), atol=1e-3)
    np.testing.assert_allclose(link.avg_mean.ravel(), 0.1 * x.mean((0, 2)), rtol=1e-4, atol=1e-6)
    link(x, finetune=True)
    with kusari.using_config("train", False):
        factor = 120 / 119  # of the running projection
        np.testing.assert_allclose(link(x).array, link_of(link, x) * factor, rtol=1e-3, atol=1e-3)
    link.start_finetuning()
    assert link.N == 0 and set(link._persistent) == {"avg_mean", "avg_projection", "N"}
    static, eager = kusari.static_graph(L.DecorrelatedBatchNormalization(4, 2)), L.DecorrelatedBatchNormalization(4, 2)
    for i in range(4):
        np.testing.assert_allclose(static(x * (i + 1)).array, eager(x * (i + 1)).array, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="4 for 6"):
        L.DecorrelatedBatchNormalization(6, 4)


def link_of(link: L.DecorrelatedBatchNormalization, x: np.ndarray) -> np.ndarray:
    with kusari.using_config("train", True):
        return F.decorrelated_batch_normalization(x, groups=link.groups, eps=link.eps).array


def test_spectral_normalization() -> None:
    x = np.eye(3, dtype="f")
    for kw, factor in (({}, 1), ({"factor": 2.0}, 2), ({"use_gamma": True}, None)):
        link = L.Linear(3, 4, nobias=True)
        w = link.W.array.copy()
        hook = kusari.link_hooks.SpectralNormalization(n_power_iteration=2, **kw)
        link.add_hook(hook)
        u = link.W_u.copy()
        for _ in range(2):
            v = w.T @ u / np.linalg.norm(w.T @ u)
            u = w @ v / np.linalg.norm(w @ v)
        scale = np.linalg.svd(w)[1][0] if factor is None else factor
        np.testing.assert_allclose(link(x).array, (w * scale / (u @ w @ v)).T, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(link.W_u, u, rtol=1e-4)
        assert (link.W.array == w).all() and "W_u" in link._persistent
        with kusari.using_config("train", False):
            link(x)
        np.testing.assert_allclose(link.W_u, u, rtol=1e-4)
        F.sum(link(x) ** 2).backward()
        assert link.W.grad is not None
        link.delete_hook("SpectralNormalization")
        assert not link._persistent and {n for n, _ in link.namedparams()} == {"/W"}
    lazy = L.Convolution2D(None, 2, 3)
    lazy.add_hook(kusari.link_hooks.SpectralNormalization())
    assert lazy(np.ones((1, 3, 4, 4), "f")).shape == (1, 2, 2, 2) and lazy.W_u.shape == (2,)
    turned = L.Deconvolution2D(2, 3, 2)
    turned.add_hook(kusari.link_hooks.SpectralNormalization())
    assert turned.W_u.shape == (3,) and turned(np.ones((1, 2, 3, 3), "f")).shape == (1, 3, 4, 4)
    with pytest.raises(ValueError, match="no parameter 'V'"):
        L.Linear(2, 2).add_hook(kusari.link_hooks.SpectralNormalization(weight_name="V"))


def test_weight_standardization() -> None:
    x = np.random.RandomState(0).randn(2, 3, 4, 4).astype("f")
    link = L.Convolution2D(3, 4, 3)
    link.add_hook(kusari.link_hooks.WeightStandardization())
    w = link.W.array
    standard = (w - w.mean((1, 2, 3), keepdims=True)) / np.sqrt(w.var((1, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(link(x).array, F.convolution_2d(x, standard, link.b).array, rtol=1e-4, atol=1e-5)
    assert link.W.array is w
    with pytest.raises(ZeroDivisionError):
        link.forward = lambda x: 1 / 0
        link(x)
    assert isinstance(link.W, kusari.Parameter)


def test_spectral_normalization_in_a_recomputation_is_that_of_the_computation() -> None:
    link = L.Linear(4, 3).add_hook(kusari.link_hooks.SpectralNormalization())
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f")
    y = link(x).array
    with kusari.using_config("in_recomputing", True):
        np.testing.assert_array_equal(link(x).array, y)
    assert (link(x).array != y).any()


@pytest.mark.parametrize(("x_type", "w_type"), [("e", "f"), ("f", "e"), ("d", "f")])
def test_local_convolution_gives_the_dtype_of_its_input(x_type: str, w_type: str) -> None:
    link = L.LocalConvolution2D(2, 3, 4, 3, initialW=kusari.initializers.Normal(dtype=w_type),
                                initial_bias=kusari.initializers.Zero(dtype=x_type))
    y = link(kusari.Variable(np.ones((1, 2, 4, 4), x_type)))
    F.sum(y).backward()
    assert (y.dtype, link.W.grad.dtype, link.b.grad.dtype) == (x_type, w_type, x_type)
