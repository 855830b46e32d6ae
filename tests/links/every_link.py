"""One case of every link: how it is made, and arrays for it."""
from __future__ import annotations

from typing import Any

from functions import table

import kusari
import kusari.links as L

X, IMAGES, LABELS = table.draw(3, 4), table.draw(2, 4, 5, 6), table.ints(4, 3)
LINE, CUBES = table.draw(2, 4, 7), table.draw(2, 4, 3, 4, 3)
H, C, TAGS = table.draw(3, 5), table.draw(3, 5, seed=1), table.ints(5, 3)
STEPS = table.draw(2, 3, 4)  # two sequences of three


def sequences(kind: Any) -> Any:
    def make() -> Any:
        link = kind(2, 4, 3, 0.5)
        nothing = [None] * link.n_cells
        return kusari.Sequential(lambda x: link(*nothing, [x[0], x[1]])[-1][1]), link
    return make


def tagger() -> Any:
    link = L.CRF1d(5)
    return (lambda a, b, s, t: link([a, b], [s, t])), link


# Name of the link -> how it is made (with what uses it, where that is not a call with the arrays), arrays.
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "BatchNormalization": (lambda: L.BatchNormalization(4), (X,)),
    "BatchRenormalization": (lambda: L.BatchRenormalization(4), (X,)), "CRF1d": (tagger, (H, C, TAGS, TAGS)),
    "DecorrelatedBatchNormalization": (lambda: L.DecorrelatedBatchNormalization(4, 2), (X,)),
    "Bias": (lambda: L.Bias(1, (4,)), (X,)),
    "Bilinear": (lambda: L.Bilinear(4, 4, 3), (X, X * 2)),
    "BinaryHierarchicalSoftmax": (lambda: L.BinaryHierarchicalSoftmax(4, ((0, (1, 2)), 3)), (X, LABELS)),
    "ChildSumTreeLSTM": (lambda: L.ChildSumTreeLSTM(4, 5), (C, H, C * 2, H * 2, X)),
    "Classifier": (lambda: L.Classifier(L.Linear(4, 4)), (X, LABELS)),
    "Convolution1D": (lambda: L.Convolution1D(4, 3, 3), (LINE,)),
    "Convolution2D": (lambda: L.Convolution2D(4, 3, 3), (IMAGES,)),
    "Convolution3D": (lambda: L.Convolution3D(4, 3, 2), (CUBES,)),
    "ConvolutionND": (lambda: L.ConvolutionND(2, 4, 3, 3), (IMAGES,)),
    "Deconvolution1D": (lambda: L.Deconvolution1D(4, 3, 3), (LINE,)),
    "Deconvolution2D": (lambda: L.Deconvolution2D(4, 3, 3, 2), (IMAGES,)),
    "Deconvolution3D": (lambda: L.Deconvolution3D(4, 3, 2), (CUBES,)),
    "DeconvolutionND": (lambda: L.DeconvolutionND(2, 4, 3, 3), (IMAGES,)),
    "DeformableConvolution2D": (lambda: L.DeformableConvolution2D(4, 3, 3, 1, 1), (IMAGES,)),
    "DepthwiseConvolution2D": (lambda: L.DepthwiseConvolution2D(4, 2, 3), (IMAGES,)),
    "DilatedConvolution2D": (lambda: L.DilatedConvolution2D(4, 3, 2, dilate=2), (IMAGES,)),
    "EmbedID": (lambda: L.EmbedID(4, 3), (LABELS,)), "GRU": (lambda: L.GRU(4, 5), (X,)),
    "GroupNormalization": (lambda: L.GroupNormalization(2), (IMAGES,)), "Highway": (lambda: L.Highway(4), (X,)),
    "Inception": (lambda: L.Inception(4, 2, 2, 2, 2, 2, 2), (IMAGES,)),
    "InceptionBN": (lambda: L.InceptionBN(4, 2, 2, 2, 2, 2, "max", 2), (IMAGES,)), "LSTM": (lambda: L.LSTM(4, 5), (X,)),
    "LayerNormalization": (lambda: L.LayerNormalization(4), (X,)), "Linear": (lambda: L.Linear(4, 3), (X,)),
    "LocalConvolution2D": (lambda: L.LocalConvolution2D(4, 3, (5, 6), 3), (IMAGES,)),
    "MLPConvolution2D": (lambda: L.MLPConvolution2D(4, (3, 2), 3), (IMAGES,)),
    "Maxout": (lambda: L.Maxout(4, 3, 2), (X,)),
    **{f"NStep{name}": (sequences(getattr(L, f"NStep{name}")), (STEPS,)) for name in (
        "GRU", "BiGRU", "LSTM", "BiLSTM", "RNNReLU", "BiRNNReLU", "RNNTanh", "BiRNNTanh")},
    "NaryTreeLSTM": (lambda: L.NaryTreeLSTM(4, 5), (C, C * 2, H, H * 2, X)), "PReLU": (lambda: L.PReLU((4,)), (X,)),
    "Parameter": (lambda: (lambda x: link() + x, link := L.Parameter(X)), (X,)),
    "Scale": (lambda: L.Scale(1, (4,), bias_term=True), (X,)),
    "SimplifiedDropconnect": (lambda: L.SimplifiedDropconnect(4, 3), (X,)),
    "StatefulGRU": (lambda: L.StatefulGRU(4, 5), (X,)), "StatefulMGU": (lambda: L.StatefulMGU(4, 5), (X,)),
    "StatefulPeepholeLSTM": (lambda: L.StatefulPeepholeLSTM(4, 5), (X,)),
    "StatefulZoneoutLSTM": (lambda: L.StatefulZoneoutLSTM(4, 5), (X,)),
    "StatelessGRU": (lambda: L.StatelessGRU(4, 5), (H, X)), "StatelessLSTM": (lambda: L.StatelessLSTM(4, 5), (C, H, X)),
    "StatelessMGU": (lambda: L.StatelessMGU(4, 5), (H, X)), "Swish": (lambda: L.Swish((4,)), (X,)),
}
