"""Converters of five arguments as converters of one, as ``external_converters`` takes them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..context import ConverterParameter as FunctionConverterParams

__all__ = ["FunctionConverter", "FunctionConverterParams"]


class FunctionConverter:
    """Calls a converter of ``func, opset_version, input_names, output_names, context`` with what a parameter has."""

    def __init__(self, converter: Callable[..., Any]) -> None:
        self.converter = converter

    def __call__(self, params: FunctionConverterParams) -> Any:
        return self.converter(
            params.func, params.opset_version, params.input_names, params.output_names, params.context)
