"""The messages of Caffe's files, as far as they are read and written, for the package ``protobuf``.

A row is a field: its name, its number on the wire, its type, and a default.  ``*`` repeats it, ``**`` in packed form; a
type in capitals is a message of this table, ``a|b|c`` an enumeration whose members are counted from 0.
"""
from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["LAYER_TYPES", "fill", "messages"]

# The layers of files of before 2014 (V1), by their numbers.
LAYER_TYPES = dict(enumerate((
    "NONE ACCURACY BNLL CONCAT CONVOLUTION DATA DROPOUT EUCLIDEAN_LOSS FLATTEN HDF5_DATA HDF5_OUTPUT IM2COL IMAGE_DATA "
    "INFOGAIN_LOSS INNER_PRODUCT LRN MULTINOMIAL_LOGISTIC_LOSS POOLING RELU SIGMOID SOFTMAX SOFTMAX_LOSS SPLIT TANH "
    "WINDOW_DATA ELTWISE POWER SIGMOID_CROSS_ENTROPY_LOSS HINGE_LOSS MEMORY_DATA ARGMAX THRESHOLD DUMMY_DATA SLICE MVN "
    "ABSVAL SILENCE CONTRASTIVE_LOSS EXP DECONVOLUTION").split()))
_ENGINE = "DEFAULT|CAFFE|CUDNN"
_TABLE = f"""
BlobShape: dim 1 int64**
BlobProto: num 1 int32 0; channels 2 int32 0; height 3 int32 0; width 4 int32 0; data 5 float**; diff 6 float**;
  shape 7 BlobShape; double_data 8 double**; double_diff 9 double**
NetParameter: name 1 string; layers 2 V1LayerParameter*; input 3 string*; input_dim 4 int32*; input_shape 8 BlobShape*;
  layer 100 LayerParameter*
LayerParameter: name 1 string; type 2 string; bottom 3 string*; top 4 string*; blobs 7 BlobProto*;
  concat_param 104 ConcatParameter; convolution_param 106 ConvolutionParameter; dropout_param 108 DropoutParameter;
  eltwise_param 110 EltwiseParameter; inner_product_param 117 InnerProductParameter; lrn_param 118 LRNParameter;
  pooling_param 121 PoolingParameter; relu_param 123 ReLUParameter; sigmoid_param 124 SigmoidParameter;
  softmax_param 125 SoftmaxParameter; slice_param 126 SliceParameter; reshape_param 133 ReshapeParameter;
  batch_norm_param 139 BatchNormParameter; scale_param 142 ScaleParameter; input_param 143 InputParameter
V1LayerParameter: bottom 2 string*; top 3 string*; name 4 string; type 5 {"|".join(LAYER_TYPES.values())};
  blobs 6 BlobProto*; concat_param 9 ConcatParameter; convolution_param 10 ConvolutionParameter;
  dropout_param 12 DropoutParameter; inner_product_param 17 InnerProductParameter; lrn_param 18 LRNParameter;
  pooling_param 19 PoolingParameter; eltwise_param 24 EltwiseParameter; relu_param 30 ReLUParameter;
  slice_param 31 SliceParameter; sigmoid_param 38 SigmoidParameter; softmax_param 39 SoftmaxParameter
InputParameter: shape 1 BlobShape*
ConcatParameter: concat_dim 1 uint32 1; axis 2 int32 1
ConvolutionParameter: num_output 1 uint32; bias_term 2 bool true; pad 3 uint32*; kernel_size 4 uint32*;
  group 5 uint32 1; stride 6 uint32*; pad_h 9 uint32 0; pad_w 10 uint32 0; kernel_h 11 uint32; kernel_w 12 uint32;
  stride_h 13 uint32; stride_w 14 uint32; engine 15 {_ENGINE}; axis 16 int32 1; dilation 18 uint32*
DropoutParameter: dropout_ratio 1 float 0.5
EltwiseParameter: operation 1 PROD|SUM|MAX SUM; coeff 2 float*
InnerProductParameter: num_output 1 uint32; bias_term 2 bool true; axis 5 int32 1
LRNParameter: local_size 1 uint32 5; alpha 2 float 1; beta 3 float 0.75; norm_region 4 ACROSS_CHANNELS|WITHIN_CHANNEL;
  k 5 float 1; engine 6 {_ENGINE}
PoolingParameter: pool 1 MAX|AVE|STOCHASTIC; kernel_size 2 uint32; stride 3 uint32 1; pad 4 uint32 0; kernel_h 5 uint32;
  kernel_w 6 uint32; stride_h 7 uint32; stride_w 8 uint32; pad_h 9 uint32 0; pad_w 10 uint32 0; engine 11 {_ENGINE};
  global_pooling 12 bool false
ReLUParameter: negative_slope 1 float 0; engine 2 {_ENGINE}
SigmoidParameter: engine 1 {_ENGINE}
SoftmaxParameter: engine 1 {_ENGINE}; axis 2 int32 1
SliceParameter: slice_dim 1 uint32 1; slice_point 2 uint32*; axis 3 int32 1
ReshapeParameter: shape 1 BlobShape; axis 2 int32 0; num_axes 3 int32 -1
BatchNormParameter: use_global_stats 1 bool; moving_average_fraction 2 float 0.999; eps 3 float 1e-5
ScaleParameter: axis 1 int32 1; num_axes 2 int32 1; bias_term 4 bool false
"""


def _add_field(message: Any, name: str, number: str, kind: str, default: str) -> None:
    """Add a field to the descriptor of a message, with the enumeration that its type may be."""
    field = message.field.add(name=name, number=int(number))
    repeated = kind.rstrip("*") != kind
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind.endswith("**"):
        field.options.packed = True
    kind = kind.rstrip("*")
    if "|" in kind:
        members = message.enum_type.add(name=f"Of_{name}")
        for value, member in enumerate(kind.split("|")):
            members.value.add(name=member, number=value)
        field.type, field.type_name = field.TYPE_ENUM, f".kusari.caffe.{message.name}.{members.name}"
    elif kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, f".kusari.caffe.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if default:
        field.default_value = default


@functools.cache
def messages() -> SimpleNamespace:
    """Return the classes of the messages, by their names.

    Raises:
        ImportError: The package ``protobuf`` is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ImportError('Caffe\'s files are read and written with the package protobuf, of the extra "caffe": '
                          'pip install "kusari[caffe]"') from error
    # A pool of our own: another package in the process may have messages of Caffe's under their names.
    file = descriptor_pb2.FileDescriptorProto(name="kusari/caffe.proto", package="kusari.caffe", syntax="proto2")
    for entry in _TABLE.strip().replace("\n  ", " ").splitlines():
        name, _, fields = entry.partition(": ")
        message = file.message_type.add(name=name)
        for row in fields.split(";"):
            words = row.split()
            _add_field(message, *words[:3], *(words[3:] or [""]))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return SimpleNamespace(**{message.name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"kusari.caffe.{message.name}")) for message in file.message_type})


def fill(blob: Any, array: np.ndarray) -> None:
    """Give a blob an array's numbers and its shape."""
    packed = np.ascontiguousarray(array, "<f4").tobytes()
    # As the field `data` lies in a file: protobuf would take each number by itself, a microsecond each.
    key, length = 5 << 3 | 2, len(packed)
    digits = [key]
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    blob.MergeFromString(bytes([*digits, length]) + packed)
    blob.shape.dim.extend(array.shape)
