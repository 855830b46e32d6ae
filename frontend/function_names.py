"""The names of Chainer's classes of functions, which hooks, converters and code written for Chainer know them by."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# Functions whose labels are not the names of Chainer's classes.
_OTHERS = {
    "|_|": "Absolute", "__neg__": "Neg", "Rsqrt": "RsqrtGPU", "PReLU": "PReLUFunction", "Bilinear": "ResizeImages",
    "ErfCx": "Erfcx", "GetItemAdvanced": "GetItem", "MaxPooling2D": "MaxPoolingND", "PadIndexed": "Pad",
    "R2Score": "R2_score", "DivideByNorm": "NormalizeL2",
}
# Functions that are drawn under the names they are called by.
_SHOWN = {name.replace("_", ""): name for name in (
    "arccos arcsin arctan arctan2 cos cosh digamma erf erfc erfcinv erfcx erfinv exp expm1 fmod lgamma log log10 log1p "
    "log2 log_ndtr ndtr ndtri polygamma rsqrt sin sinh sqrt square tan zeta").split()}
# Functions with several results; what others have besides the first serves gradients here.
SEVERAL = frozenset(("ClassificationSummary", "FFT", "LSTM", "SLSTM", "Separate", "SplitAxis", "TreeLSTM"))
# Functions of images, and what they are called for arrays with another number of axes.
OF_OTHER_RANKS = {
    "AveragePooling2D": "AveragePoolingND", "Convolution2DFunction": "ConvolutionND",
    "Deconvolution2DFunction": "DeconvolutionND",
}


class Operator(NamedTuple):
    """The classes of an operator: of two arrays; with a number on the right, and how it has that; one on the left."""

    both: str
    right: str
    value_of: Callable[[Any], Any]
    left: str


OPERATORS = {
    "_ + _": Operator("Add", "AddConstant", lambda v: v, "AddConstant"),
    "_ - _": Operator("Sub", "AddConstant", lambda v: -v, "SubFromConstant"),
    "_ * _": Operator("Mul", "MulConstant", lambda v: v, "MulConstant"),
    "_ / _": Operator("Div", "MulConstant", lambda v: 1 / v, "DivFromConstant"),
    "_ ** _": Operator("PowVarVar", "PowVarConst", lambda v: v, "PowConstVar"),
}


def class_name(label: str, literals: Sequence[Any] = ()) -> str:
    """Return what Chainer calls the class of a function; ``literals`` are numbers in the place of inputs, or None."""
    if label not in OPERATORS:
        return _OTHERS.get(label, label)
    operator = OPERATORS[label]
    places = [i for i, v in enumerate(literals) if v is not None]
    return operator.both if not places else operator.left if places == [0] else operator.right


def shown_label(label: str, literals: Sequence[Any]) -> str:
    """Return the label that Chainer shows: of an operator with numbers in their places, negative ones in parentheses.

    >>> shown_label("_ ** _", (None, -2)), shown_label("Sin", (None,)), shown_label("ReLU", (None,))
    ('_ ** (-2)', 'sin', 'ReLU')
    """
    parts = label.split("_")
    if len(parts) != len(literals) + 1:
        return _SHOWN.get(label.lower(), label)
    texts = ["_" if v is None else number_text(v) for v in literals]
    return "".join([part + text for part, text in zip(parts, [*texts, ""], strict=True)])


def number_text(value: Any) -> str:
    """Return a number as part of a label."""
    return f"({value})" if value < 0 else str(value)
