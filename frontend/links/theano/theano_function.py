"""Chainer's link for Theano, of which only the name is here."""

from typing import Any

from ...link import Link

__all__ = ["TheanoFunction"]


class TheanoFunction(Link):
    """A function of Theano's as a link, which Kusari does not have: making one raises.

    Theano is not maintained since 2020 and runs on no NumPy that Kusari runs on. In its place: a model in ONNX
    (:func:`kusari.onnx.load`), or a :class:`~kusari.FunctionNode` around any other library.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError(
            "Theano's functions are no links here: Theano runs on no NumPy that Kusari runs on. Export the model to "
            "ONNX and read it with kusari.onnx.load, or write a kusari.FunctionNode around another library.")
