"""Links on random arguments: results, gradients, parameters and what is saved."""
from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import TIMES, R, outputs

# Makers, and then calls: of `x` (N, 4), `h` (N, 3), `i` images, `s` signals, `v` volumes, labels `t`, sequences `xs`,
# and words `w`; `k` is 1, 2 or 3, `l` is 1 or 2.
LINKS = """
Bias(1, (4,)) | f(x)
Bias(0) | f(x, x[:, 0])
Bilinear(4, 3, k, nobias=flag) | f(x, h)
BinaryHierarchicalSoftmax(4, tree) | f(x, t)
BlackOut(4, [1, 2, 3, 4], 2) | f(x, t)
CRF1d(4) | f([x, x], [t, t])
ChildSumTreeLSTM(4, 3) | f(h, h, h, h, x)
Classifier(l_.Linear(4, 3)) | f(x, t)
Convolution1D(3, k, l) | f(s)
Convolution2D(3, k, l, stride=l, pad=k) | f(i)
Convolution2D(None, 4, k, nobias=flag, dilate=l) | f(i)
Convolution2D(4, 4, k, groups=2) | f(j)
Convolution3D(2, k, l) | f(v)
ConvolutionND(2, 3, 2, k, stride=l) | f(i)
CRF1d(4, initial_cost=l_.Linear(4, 4).W.array) | f.argmax([x, x])
Deconvolution1D(3, k, l) | f(s)
Deconvolution2D(3, 2, k, stride=l, outsize=None) | f(i)
Deconvolution2D(None, 4, k, pad=k // 2) | f(i)
Deconvolution3D(2, k, l) | f(v)
DeconvolutionND(2, 3, 2, k, stride=l) | f(i)
DeformableConvolution2D(3, 2, ksize=k, stride=1, pad=1) | f(i)
DepthwiseConvolution2D(3, 2, k, stride=l) | f(i)
DilatedConvolution2D(3, 2, k, dilate=l) | f(i)
EmbedID(5, k) | f(t)
EmbedID(5, k, ignore_label=-1) | f(t - 1)
GRU(4, 3) | f(x)
GRU(4, 3) | [f(x), f(x)]
Highway(4, nobias=flag) | f(x)
Inception(3, 2, 3, 4, 1, 2, 2) | f(i)
InceptionBN(3, 2, 3, 4, 1, 2, "max", 2) | f(i)
LSTM(4, 3) | [f(x), f(x[:1])]
LSTM(None, k) | [f(x), f(x)]
Linear(4, k) | f(x)
Linear(None, k, nobias=flag) | f(i)
Linear(k) | f(i, n_batch_axes=l)
LocalConvolution2D(3, 2, (5, 4), ksize=k) | f(i)
MLPConvolution2D(3, (4, 2), k) | f(i)
Maxout(4, k, l + 1) | f(x)
NaryTreeLSTM(4, 3, 2) | f(h, h, h, h, x)
NegativeSampling(4, [1, 2, 3, 4], 2) | f(x, t)
NegativeSampling(4, [1, 2, 3, 4], 2) | f(x, t, reduce="no")
NStepBiGRU(l, 4, 3, 0.) | f(None, xs)
NStepBiLSTM(l, 4, 3, 0.) | f(None, None, xs)
NStepBiRNNReLU(l, 4, 3, 0.) | f(None, xs)
NStepBiRNNTanh(l, 4, 3, 0.) | f(None, xs)
NStepGRU(l, 4, 3, 0.) | f(None, xs)
NStepLSTM(l, 4, 3, 0.) | f(None, None, xs)
NStepRNNReLU(l, 4, 3, 0.) | f(None, xs)
NStepRNNTanh(l, 4, 3, 0.) | f(np.zeros((l, len(xs), 3), "f"), xs)
NStepLSTM(l, 4, 3, 0.5) | f(None, None, xs)
PReLU() | f(x)
PReLU((4,)) | f(x)
Parameter(x) | f()
Scale(1, (4,), bias_term=flag) | f(x)
Scale(0, bias_term=flag, bias_shape=()) | f(x, x[:, 0])
SimplifiedDropconnect(4, 3, ratio=0.3, nobias=flag) | f(x)
StatefulGRU(4, 3) | [f(x), f(x)]
StatefulMGU(4, 3) | [f(x), f(x)]
StatefulPeepholeLSTM(4, 3) | [f(x), f(x)]
StatefulZoneoutLSTM(4, 3, c_ratio=0.4, h_ratio=0.6) | [f(x), f(x)]
StatelessGRU(4, 3) | f(h, x)
StatelessLSTM(4, 3) | f(h, h, x)
StatelessLSTM(None, 3) | f(None, None, x)
StatelessMGU(4, 3) | f(h, x)
Swish((4,)) | f(x)
Swish(None, 1.5) | f(x)
BatchNormalization(4, decay=0.7) | [f(x), f(x)]
BatchNormalization(3, use_gamma=flag) | f(i)
BatchNormalization(axis=(0, 2, 3)) | f(i)
BatchNormalization(3, initial_avg_mean=0.5, use_beta=flag) | f(i, finetune=True)
BatchRenormalization(4, rmax=k, dmax=l) | [f(x), f(x)]
DecorrelatedBatchNormalization(4, groups=2) | f(x)
GroupNormalization(3) | f(i)
GroupNormalization(1, 3, eps=1e-3) | f(i)
LayerNormalization(4, eps=1e-3) | f(x)
LayerNormalization() | f(x)
Sequential(l_.Linear(4, 3), c.functions.relu) | f(x)
Sequential(l_.Linear(k), l_.Linear(l)).repeat(2) | f(x)
ChainList(l_.Linear(4, k), l_.Linear(4, l)) | f[1](x)
Chain(a=l_.Linear(4, k)) | f.a(x)
Linear(4, k).copy("init") | f(x)
Linear(k).copy("share") | f(x)
Linear(None, 4).repeat(l, "share") | f(i)
Linear(4, 4).repeat(l, "copy") | f(x)
Sequential(l_.Linear(4, 3), l_.Linear(k)).flatten() | f(x)
Linear(4, k, initialW=0.5, initial_bias=l) | f(x)
Linear(4, k, initialW=np.cos(np.arange(4 * k)).reshape(k, 4)) | f(x)
Linear(4, k, initialW=c.initializers.Orthogonal()) | f(x[:, :4])
Convolution2D(3, k, (1, 2), (l, 1), (0, l), initialW=c.initializers.HeNormal(dtype="f")) | f(i)
Linear(4, k).add_hook(h_.SpectralNormalization(n_power_iteration=l)) | f(x)
Linear(4, k).add_hook(h_.SpectralNormalization(use_gamma=True)) | [f(x), f(x)]
Convolution2D(3, k, 2).add_hook(h_.SpectralNormalization(l, factor=0.5)) | f(i)
Convolution2D(3, k, 2).add_hook(h_.WeightStandardization()) | f(i)
Linear(4, k).add_hook(h_.WeightStandardization(eps=1e-2)) | f(x)
Convolution2D(3, k, 2).add_hook(h_.TimerHook()) | f(i)
model.vision.resnet.BuildingBlock(l, 3, 2, 4, l) | f(i)
model.vision.resnet.BuildingBlock(n_layer=l, in_channels=3, mid_channels=2, out_channels=4, stride=1) | f(i)
model.vision.resnet.BottleneckA(3, 2, 4, l, downsample_fb=flag) | f(i)
model.vision.resnet.BottleneckB(3, 2) | f(i)
Classifier(l_.Linear(4, 3), lossfun=c.functions.softmax_cross_entropy) | [f(x, t), f.loss, f.accuracy]
Classifier(l_.Linear(4, 3), label_key="t") | [f(x, t=t), f.y]
Classifier(l_.Linear(4, 3), label_key=0) | f(t, x)
NStepRNNTanh(l, 4, 3, 0.) | f(None, xs[::-1])
EmbedID(5, k, initialW=c.initializers.Normal(0.1)) | f(t[::-1])
""".split("\n")[1:-1]


def arguments(seed: int) -> dict[str, Any]:
    """Draw what links may be made with and called on."""
    r = R(seed)

    def uniform(*shape: int) -> Any:
        return r.uniform(-1, 1, shape).astype("f")
    n = int(r.randint(1, 4))
    return {"x": uniform(n, 4), "h": uniform(n, 3), "i": uniform(n, 3, 5, 4), "j": uniform(n, 4, 5, 4),
            "s": uniform(n, 3, 7), "v": uniform(n, 2, 4, 5, 3), "t": r.randint(0, 3, n).astype("i"),
            "xs": [uniform(m, 4) for m in sorted(r.randint(1, 5, n).tolist(), reverse=True)], "k": int(r.randint(1, 4)),
            "l": int(r.randint(1, 3)), "flag": bool(r.randint(2)), "train": bool(r.randint(3))}


def link(lib: types.SimpleNamespace, make: str, call: str, seed: int) -> Any:
    """What a link gives, what it has then, and what a copy of it gives that has been saved and loaded."""
    drawn = arguments(seed)
    scope = {**drawn, "l_": lib.L, "h_": lib.link_hooks, "model": lib.L.model, "c": lib.chainer, "np": np,
             "tree": lib.L.BinaryHierarchicalSoftmax.create_huffman_tree({0: 3, 1: 2, 2: 2})}
    names = {**{name: getattr(lib.L, name) for name in dir(lib.L) if name[0].isupper()}, "Chain": lib.chainer.Chain,
             "Sequential": lib.chainer.Sequential, "ChainList": lib.chainer.ChainList}
    f = eval(make, {**names, **scope})
    with lib.chainer.using_config("train", drawn["train"]):
        y = eval(call, {**scope, "f": f})
    f.cleargrads()
    losses = [lib.F.sum(v * np.cos(np.arange(v.size)).reshape(v.shape).astype("f")) for v in outputs(y)]
    if losses:
        sum(losses).backward()
    state: dict[str, Any] = {}
    lib.serializers.DictionarySerializer(state).save(f)
    other = eval(make, {**names, **scope})
    lib.serializers.NpzDeserializer(state).load(other)
    np.random.seed(1)
    with lib.chainer.using_config("train", False):
        again = eval(call, {**scope, "f": other})
    parameters = [(name, p.array, p.grad) for name, p in sorted(f.namedparams())]
    return [y, parameters, state, again, f.count_params(), sorted(name for name, _ in f.namedlinks())]


def links(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Links, their parameters and gradients."""
    for text in LINKS:
        make, call = text.split(" | ")
        for seed in range(TIMES // 2):
            yield f"{text} {seed}", lambda make=make, call=call, seed=seed: link(lib, make, call, seed * 3 + len(make))
