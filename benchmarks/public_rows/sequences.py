"""Models of sequences: text, speech."""

from __future__ import annotations

from typing import Any

import numpy as np

from .rows import Case, images, itself, mean_square, row, words


@row("hitachi-speech/EEND", "self-attentive diarization, permutation-free loss")
def eend() -> Case:
    from eend.chainer_backend.models import TransformerDiarization
    return Case(TransformerDiarization(2, 20, 32, 4, 2, 0.1), itself, lambda r: (
        [r.randn(30, 20).astype("f") for _ in range(4)], [r.randint(0, 2, (30, 2)).astype("i") for _ in range(4)]))


@row("hitachi-speech/EEND", "the same with attractors of an encoder and decoder")
def eend_attractors() -> Case:
    from eend.chainer_backend.models import TransformerEDADiarization
    return Case(TransformerEDADiarization(20, 32, 4, 2, 0.1), itself, lambda r: (
        [r.randn(30, 20).astype("f") for _ in range(4)], [r.randint(0, 2, (30, 2)).astype("i") for _ in range(4)]))


@row("soskek/attention_is_all_you_need", "Transformer for translation")
def transformer() -> Case:
    from net import Transformer
    return Case(Transformer(2, 50, 50, 32, h=4), itself, lambda r: (
        words(r, 50, 4, 12), words(r, 50, 4, 10), words(r, 50, 4, 10)))


@row("soskek/bert-chainer", "BERT with a classifier")
def bert() -> Case:
    import modeling
    config = modeling.BertConfig(100, 32, 2, 4, 64)
    return Case(modeling.BertClassifier(modeling.BertModel(config), 3), itself, lambda r: (
        words(r, 100, 4, 16), np.ones((4, 16), "i"), np.zeros((4, 16), "i"), words(r, 3, 4)))


@row("soskek/captioning_chainer", "LSTM that writes captions")
def captions() -> Case:
    from nets import RNNDecoder
    return Case(RNNDecoder(1, 50, 32), lambda m, xs, ys: m(xs, ys, None), lambda r: (
        [r.randn(20).astype("f") for _ in range(4)], [words(r, 50, n) for n in (9, 8, 7, 6)]))


@row("musyoku/chainer-qrnn", "quasi-recurrent network, an encoder of its own zoneout")
def qrnn() -> Case:
    from qrnn import QRNN

    def loss(m: Any, x: Any) -> Any:
        m.reset_state()
        return mean_square(m(x))
    return Case(QRNN(8, 8, kernel_size=2, pooling="fo", zoneout=0.2), loss, images(4, 8, 12))


@row("cemoody/lda2vec", "mixtures of topics with a Dirichlet prior", "lda2vec")
def lda2vec() -> Case:
    import dirichlet_likelihood
    import embed_mixture

    def loss(m: Any, ids: Any) -> Any:
        return mean_square(m(ids)) - 1e-3 * dirichlet_likelihood.dirichlet_likelihood(m.weights)
    return Case(embed_mixture.EmbedMixture(40, 8, 16), loss, lambda r: (words(r, 40, 16),))


@row("pfnet-research/contextual_augmentation", "language model in both directions")
def augmentation() -> Case:
    from nets import BiLanguageModel
    return Case(BiLanguageModel(50, 32, 1), lambda m, *xs: m.calculate_loss([[x] for x in xs]), lambda r: tuple(
        words(r, 50, n) for n in (12, 10, 9)))


@row("chainer/chainer", "recursive network of trees, thin stack", "examples/sentiment")
def thin_stack() -> Case:
    from train_recursive_minibatch import ThinStackRecursiveNet

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        nodes = [np.array(places, "i") for places in ([0, 2, 4], [1, 3, 5], [4, 5, 6])]  # left, right, where
        drawn = [[words(r, n, k) for _ in range(2)] for n, k in ((5, 3), (30, 4), (5, 4))]  # labels, words, theirs
        return tuple(x for part in (*[[x, x] for x in nodes], *drawn) for x in part)
    return Case(ThinStackRecursiveNet(30, 16, 5), itself, arguments)


@row("mits58/Pointer-Networks", "pointer network: attention is the answer")
def pointers() -> Case:
    from ptrnet import PointerNetworks
    return Case(PointerNetworks(2, 16, 0.0), itself, lambda r: (
        [r.rand(5, 2).astype("f") for _ in range(3)], [r.permutation(5)[:4] + 1 for _ in range(3)]))


@row("hkiyomaru/chainer-attention-nmt", "translation with attention, sentences padded")
def attention_nmt() -> Case:
    from net import Seq2seq

    def padded(r: np.random.RandomState, n: int) -> Any:
        block = words(r, 20, 3, n)
        block[1, n - 1:] = block[2, n - 2:] = -1
        return block
    return Case(Seq2seq(20, 20, 1, 8, 0.1, 8, 8, 8), itself, lambda r: (padded(r, 6), padded(r, 5)))


@row("svoss/vdcnn-chainer", "very deep convolutions of letters, k-max pooling", "vdccnn")
def letters() -> Case:
    import chainer.functions as F
    from model import VDCNN
    return Case(VDCNN(), lambda m, x, t: F.softmax_cross_entropy(m(x), t), lambda r: (
        words(r, 69, 2, 80), r.randint(0, 2, 2).astype("i")))


@row("atsukoba/CNN-for-Sentence-Classification-in-Chainer", "sentences classified by convolutions")
def sentences() -> Case:
    from types import SimpleNamespace

    import chainer.functions as F
    from models import CNN_static
    data = SimpleNamespace(n_vocab=30, n_labels=2, w2v_vectorize_dim=16,
                           embed_weights=np.random.randn(30, 16).astype("f"))
    return Case(CNN_static(data, embed_dim=16, n_filters=8), lambda m, x, t: F.softmax_cross_entropy(m(x), t),
                lambda r: (words(r, 30, 4, 1, 12), r.randint(0, 2, 4).astype("i")))


@row("joisino/ConvLSTM", "moving digits: convolutional LSTM, peepholes")
def convolutional_lstm() -> Case:
    from network import MovingMnistNetwork
    return Case(MovingMnistNetwork([4, 4, 4], 8), itself, lambda r: (
        words(r, 8, 2, 3, 8, 8), words(r, 8, 2, 2, 8, 8)))


@row("yuishihara/chainer-ppo", "policies: clipped ratios, entropy, values")
def ppo() -> Case:
    import chainer.functions as F
    from models.ppo_mujoco_model import PPOMujocoModel

    def loss(m: Any, s: Any, a: Any, old: Any, advantage: Any, target: Any) -> Any:
        ratio = F.exp(m.compute_log_likelihood(s, a) - old)
        clipped = F.minimum(ratio * advantage, F.clip(ratio, 0.8, 1.2) * advantage)
        return F.mean_squared_error(m.value(s), target) - F.mean(clipped) - 0.01 * F.mean(m.compute_entropy(s))
    return Case(PPOMujocoModel(3), loss, lambda r: (
        r.randn(16, 8).astype("f"), r.randn(16, 3).astype("f"), *(r.randn(16).astype("f") for _ in range(3))))


@row("shuyo/iir", "memory network: questions about sentences", "dnn")
def memory_network() -> Case:
    from e2emn import E2EMN

    def arguments(r: np.random.RandomState) -> tuple[Any, ...]:
        return (r.randint(0, 2, (6, 30)).astype("f"), r.randint(0, 2, 15).astype("f"), words(r, 5, 1))
    return Case(E2EMN(2, 8, 15, 5, 10), lambda m, *args: m(*args, is_linear=True)[0], arguments, fewer=None)


@row("LanaSina/chainer_prednet", "the next picture of a film, predicted", "PredNet")
def prednet() -> Case:
    from chainer import Variable
    from net import PredNet

    def loss(m: Any, film: Any) -> Any:
        m.reset_state()
        return sum(mean_square(m(x) - y) for x, y in zip(film, film[1:], strict=False))
    return Case(PredNet(16, 16, (3, 4, 8)), loss, lambda r: (
        [*map(Variable, r.uniform(0, 1, (4, 1, 3, 16, 16)).astype("f"))],), fewer=None)


@row("chainer/chainerrl", "distributions of values: projected targets of a categorical DQN")
def categorical_dqn() -> Case:
    import chainer.functions as F
    from chainerrl.agents.categorical_dqn import _apply_categorical_projection
    from chainerrl.q_functions import DistributionalFCStateQFunctionWithDiscreteAction as QFunction
    z = np.linspace(-1, 1, 11, dtype="f")

    def loss(m: Any, s: Any, a: Any, reward: Any, following: Any) -> Any:
        next_y = m(following)
        target = _apply_categorical_projection(
            reward[:, None] + 0.9 * z[None], next_y.max_as_distribution.array, z)
        y = m(s).evaluate_actions_as_distribution(a)
        return F.mean(F.sum(-target * F.log(F.clip(y, 1e-10, 1.0)), axis=1))
    return Case(QFunction(6, 3, 11, -1, 1, 16, 1), loss, lambda r: (
        r.randn(8, 6).astype("f"), r.randint(0, 3, 8).astype("i"), r.randn(8).astype("f"), r.randn(8, 6).astype("f")))


@row("chainer/chainerrl", "distributions of values: drawn quantiles")
def quantiles() -> Case:
    import chainer
    import chainer.functions as F
    import chainer.links as L
    from chainerrl.agents import iqn
    model = iqn.ImplicitQuantileQFunction(
        chainer.Sequential(L.Linear(6, 16), F.relu), chainer.Sequential(iqn.CosineBasisLinear(8, 16), F.relu),
        L.Linear(16, 3))

    def loss(m: Any, s: Any, a: Any, target: Any) -> Any:
        taus = np.random.uniform(size=(len(s), 4)).astype("f")
        y = m(s)(taus).evaluate_actions_as_quantiles(a)
        return iqn.compute_value_loss(iqn.compute_eltwise_huber_quantile_loss(y, target, taus))
    return Case(model, loss, lambda r: (
        r.randn(8, 6).astype("f"), r.randint(0, 3, 8).astype("i"), r.randn(8, 5).astype("f")))


@row("chainer/chainerrl", "soft actor-critic: squashed actions, drawn anew")
def soft_actor_critic() -> Case:
    import chainer
    import chainer.functions as F
    import chainer.links as L
    from chainerrl.distribution import SquashedGaussianDistribution

    def policy(h: Any) -> Any:
        mean, log_scale = F.split_axis(h, 2, axis=1)
        return SquashedGaussianDistribution(mean, F.exp(F.clip(log_scale, -20.0, 2.0) * 2))
    model = chainer.Chain(
        policy=chainer.Sequential(L.Linear(6, 16), F.relu, L.Linear(16, 4), policy),
        value=chainer.Sequential(L.Linear(8, 16), F.relu, L.Linear(16, 1)))

    def loss(m: Any, s: Any) -> Any:
        actions, log_prob = m.policy(s).sample_with_log_prob()
        return F.mean(0.2 * log_prob - F.flatten(m.value(F.concat((s, actions)))))
    return Case(model, loss, lambda r: (r.randn(8, 6).astype("f"),))
