"""Links: layers with parameters, and models made of them."""

import importlib
from typing import TYPE_CHECKING, Any

from ..pytorch_names import LINKS as _LINKS
from ..pytorch_names import hint as _hint
from .activation.maxout import Maxout as Maxout
from .activation.prelu import PReLU as PReLU
from .activation.swish import Swish as Swish
from .connection.bias import Bias as Bias
from .connection.bilinear import Bilinear as Bilinear
from .connection.convolution_nd import Convolution1D as Convolution1D
from .connection.convolution_nd import Convolution2D as Convolution2D
from .connection.convolution_nd import Convolution3D as Convolution3D
from .connection.convolution_nd import ConvolutionND as ConvolutionND
from .connection.convolution_nd import DepthwiseConvolution2D as DepthwiseConvolution2D
from .connection.convolution_nd import DilatedConvolution2D as DilatedConvolution2D
from .connection.deconvolution_nd import Deconvolution1D as Deconvolution1D
from .connection.deconvolution_nd import Deconvolution2D as Deconvolution2D
from .connection.deconvolution_nd import Deconvolution3D as Deconvolution3D
from .connection.deconvolution_nd import DeconvolutionND as DeconvolutionND
from .connection.deformable_convolution_2d import DeformableConvolution2D as DeformableConvolution2D
from .connection.embed_id import EmbedID as EmbedID
from .connection.highway import Highway as Highway
from .connection.inception import Inception as Inception
from .connection.inception import InceptionBN as InceptionBN
from .connection.linear import Linear as Linear
from .connection.local_convolution_2d import LocalConvolution2D as LocalConvolution2D
from .connection.mlp_convolution_2d import MLPConvolution2D as MLPConvolution2D
from .connection.parameter import Parameter as Parameter
from .connection.scale import Scale as Scale
from .connection.simplified_dropconnect import SimplifiedDropconnect as SimplifiedDropconnect
from .loss.crf1d import CRF1d as CRF1d
from .loss.hierarchical_softmax import BinaryHierarchicalSoftmax as BinaryHierarchicalSoftmax
from .loss.negative_sampling import BlackOut as BlackOut
from .loss.negative_sampling import NegativeSampling as NegativeSampling
from .model.classifier import Classifier as Classifier
from .model.vision.googlenet import GoogLeNet as GoogLeNet
from .model.vision.resnet import ResNet50Layers as ResNet50Layers
from .model.vision.resnet import ResNet101Layers as ResNet101Layers
from .model.vision.resnet import ResNet152Layers as ResNet152Layers
from .model.vision.vgg import VGG16Layers as VGG16Layers
from .model.vision.vgg import VGG19Layers as VGG19Layers
from .normalization.batch_normalization import BatchNormalization as BatchNormalization
from .normalization.batch_renormalization import BatchRenormalization as BatchRenormalization
from .normalization.decorrelated_batch_normalization import (
    DecorrelatedBatchNormalization as DecorrelatedBatchNormalization,
)
from .normalization.group_normalization import GroupNormalization as GroupNormalization
from .normalization.layer_normalization import LayerNormalization as LayerNormalization
from .rnn.gru import GRU as GRU
from .rnn.gru import StatefulGRU as StatefulGRU
from .rnn.gru import StatefulMGU as StatefulMGU
from .rnn.gru import StatelessGRU as StatelessGRU
from .rnn.gru import StatelessMGU as StatelessMGU
from .rnn.lstm import LSTM as LSTM
from .rnn.lstm import StatefulPeepholeLSTM as StatefulPeepholeLSTM
from .rnn.lstm import StatefulZoneoutLSTM as StatefulZoneoutLSTM
from .rnn.lstm import StatelessLSTM as StatelessLSTM
from .rnn.n_step import NStepBiGRU as NStepBiGRU
from .rnn.n_step import NStepBiLSTM as NStepBiLSTM
from .rnn.n_step import NStepBiRNNReLU as NStepBiRNNReLU
from .rnn.n_step import NStepBiRNNTanh as NStepBiRNNTanh
from .rnn.n_step import NStepGRU as NStepGRU
from .rnn.n_step import NStepLSTM as NStepLSTM
from .rnn.n_step import NStepRNNReLU as NStepRNNReLU
from .rnn.n_step import NStepRNNTanh as NStepRNNTanh
from .rnn.tree_lstm import ChildSumTreeLSTM as ChildSumTreeLSTM
from .rnn.tree_lstm import NaryTreeLSTM as NaryTreeLSTM
from .theano.theano_function import TheanoFunction as TheanoFunction

if TYPE_CHECKING:
    from . import caffe as caffe

__all__ = [
    "BatchNormalization", "BatchRenormalization", "Bias", "Bilinear", "BinaryHierarchicalSoftmax", "BlackOut",
    "CRF1d", "ChildSumTreeLSTM", "Classifier", "Convolution1D", "Convolution2D", "Convolution3D", "ConvolutionND",
    "Deconvolution1D", "Deconvolution2D", "Deconvolution3D", "DeconvolutionND", "DecorrelatedBatchNormalization",
    "DeformableConvolution2D", "DepthwiseConvolution2D", "DilatedConvolution2D", "EmbedID", "GRU",
    "GroupNormalization", "Highway", "Inception", "InceptionBN", "LSTM", "LayerNormalization", "Linear",
    "LocalConvolution2D", "MLPConvolution2D", "Maxout", "NStepBiGRU", "NStepBiLSTM", "NStepBiRNNReLU",
    "NStepBiRNNTanh", "NStepGRU", "NStepLSTM", "NStepRNNReLU", "NStepRNNTanh", "NaryTreeLSTM", "NegativeSampling",
    "PReLU", "Parameter", "Scale", "SimplifiedDropconnect", "StatefulGRU", "StatefulMGU", "StatefulPeepholeLSTM",
    "StatefulZoneoutLSTM", "StatelessGRU", "StatelessLSTM", "StatelessMGU", "Swish",
]


def __getattr__(name: str) -> Any:
    if name == "caffe":  # few programs use it
        return importlib.import_module(".caffe", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name, _LINKS)}")
