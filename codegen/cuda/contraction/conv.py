"""Kernels of convolutions and their gradients: products of which one factor is looked up in the image.

The rows are channels of the result, the columns all positions of all samples (for gradients of weights: channels and
taps), and groups are the batch. Images are padded with zeros where a factor is looked up.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kusari.ir import Kernel, expr_dtype

from ...contractions import ConvSpec
from ..text.kernel import int_type
from .blocks import kernel_of, text_of
from .epilogue import Epilogue
from .tiles import Factor, Shape, shape_for


def conv_kernel(spec: ConvSpec, number: int = 0) -> Kernel:
    """Kernel ``number`` of a convolution.

    Slots are the two arrays, the epilogue's operands, the outputs, and memory for parts of sums.
    """
    writer = _Writer(spec, f"conv_{spec.direction}{'_parts' * bool(number)}")
    return kernel_of(writer.text, shape_of(spec), spec.dtype, writer.factors(), writer.store, number, spec.flops,
                     spec.bytes)


def shape_of(spec: ConvSpec) -> Shape:
    """The convolution as tiles see it."""
    positions, size = spec.positions, prod(spec.size)
    if spec.direction == "forward":
        m, n, k = spec.features, spec.n * positions, spec.channels * spec.taps
    elif spec.direction == "input":
        m, n, k = spec.channels, spec.n * size, spec.features * spec.taps
    else:
        m, n, k = spec.features, spec.channels * spec.taps, spec.n * positions
    return shape_for(m, n, k, spec.groups, spec.factor_dtype, spec.rounded)


class _Writer:
    """Elements of both factors, and places of results."""

    def __init__(self, spec: ConvSpec, symbol: str) -> None:
        self.spec = spec
        outputs = [expr_dtype(e, (spec.dtype, *(o.dtype for o in spec.operands))) for e in spec.exprs]
        shape = shape_of(spec)
        sizes = (spec.n * spec.c * prod(spec.size), spec.n * spec.k * spec.positions,
                 spec.k * spec.channels * spec.taps, shape.results * shape.parts)
        factors = [spec.factor_dtype] * 2
        self.text = text_of(symbol, spec.dtype, [*factors, *(o.dtype for o in spec.operands), *outputs],
                            int_type(max(sizes)), spec.rounded)
        self.epilogue = Epilogue(self.text, spec.exprs, spec.operands, spec.dtype, 2)

    def _split(self, name: str, number: str, extents: Sequence[int]) -> str:
        """Declare ``<name>0`` … of a number in C order, and the rest of it; returns the name of the rest."""
        inner = 1
        for d in range(len(extents) - 1, -1, -1):
            text = number if inner == 1 else f"{number} / {inner}"
            self.text.line(f"const int {name}{d} = (int)({text} % {extents[d]});")
            inner *= extents[d]
        return f"({number} / {inner})"

    def _joined(self, lead: str, names: str, extents: Sequence[int]) -> str:
        """The number, in C order, of the element ``<names>0`` … behind ``lead``."""
        found = lead
        for d, n in enumerate(extents):
            found = f"({found}) * {n} + {names}{d}"
        return found

    def factors(self) -> tuple[Factor, Factor]:
        """Weights, or the gradient of y, and the image."""
        spec, dtype = self.spec, self.spec.factor_dtype
        width = {"forward": spec.channels * spec.taps, "input": 1, "weight": spec.positions}[spec.direction]
        along = spec.direction != "input" or spec.taps > 1
        if not along:  # neighbours are channels
            width = spec.channels
        own = Factor(1, dtype, along, lambda row, k: f"p1[{self.place(row, k)}]", self.place, width,
                     spec.rounded)
        if not spec.is_plain:
            return own, Factor(0, dtype, spec.direction == "weight", lambda column, k: self.b(k, column),
                               rounded=spec.rounded)
        image = Factor(0, dtype, spec.direction == "weight", lambda column, k: f"p0[{self.plain(k, column)}]",
                       lambda column, k: self.plain(k, column), spec.positions, spec.rounded)
        return own, image

    def place(self, row: str, k: str) -> str:
        """The place of an element of the weights, or of the gradient of y."""
        spec = self.spec
        if spec.direction == "forward":
            return f"(batch * {spec.features} + {row}) * {spec.channels * spec.taps} + {k}"
        if spec.direction == "input":
            own = f"batch * {spec.features} + {k} / {spec.taps}"
            return f"(({own}) * {spec.channels} + {row}) * {spec.taps} + {k} % {spec.taps}"
        own = f"{k} / {spec.positions} * {spec.k} + batch * {spec.features} + {row}"
        return f"({own}) * {spec.positions} + {k} % {spec.positions}"

    def plain(self, k: str, column: str) -> str:
        """The place of an element of an image that is its own only window."""
        spec, positions = self.spec, self.spec.positions
        channel, position = (column, k) if spec.direction == "weight" else (k, column)
        channels, group = ((spec.k, spec.features) if spec.direction == "input" else (spec.c, spec.channels))
        return (f"({position} / {positions} * {channels} + batch * {group} + {channel}) * {positions} + "
                f"{position} % {positions}")

    def b(self, k: str, column: str) -> str:
        """An element of an image, or zero."""
        spec, rank = self.spec, len(self.spec.kernel)
        tap, position = (column, k) if spec.direction == "weight" else (k, column)
        channel = self._split("t", tap, spec.kernel)
        if spec.direction == "input":
            sample = self._split("q", position, spec.size)
            for d in range(rank):
                self.text.line(f"const int v{d} = q{d} + {spec.pad[d]} - t{d} * {spec.dilate[d]};")
                self.text.line(f"const int o{d} = v{d} / {spec.stride[d]};")
            tests = [f"v{d} >= 0 && o{d} < {spec.out[d]}{f' && v{d} % {s} == 0' if s > 1 else ''}"
                     for d, s in enumerate(spec.stride)]
            at = self._joined(f"{sample} * {spec.k} + batch * {spec.features} + {channel}", "o", spec.out)
        else:
            sample = self._split("o", position, spec.out)
            for d in range(rank):
                self.text.line(f"const int x{d} = o{d} * {spec.stride[d]} - {spec.pad[d]} + t{d} * {spec.dilate[d]};")
            tests = [f"x{d} >= 0 && x{d} < {n}" for d, n in enumerate(spec.size)]
            at = self._joined(f"{sample} * {spec.c} + batch * {spec.channels} + {channel}", "x", spec.size)
        return f"{' && '.join(tests)} ? p0[{at}] : 0"

    def store(self, row: str, column: str, total: str) -> None:
        """Finish a result."""
        spec, text = self.spec, self.text
        if spec.direction == "weight":
            place = f"(batch * {spec.features} + {row}) * {spec.channels * spec.taps} + {column}"
            self.epilogue.store(total, row, column, "batch", place)
            return
        positions, rows, group = ((spec.positions, spec.k, spec.features) if spec.direction == "forward"
                                  else (prod(spec.size), spec.c, spec.channels))
        text.line(f"const {text.index} sample = {column} / {positions}, position = {column} % {positions}, "
                  f"channel = batch * {group} + {row};")
        self.epilogue.store(total, "channel", "position", "sample",
                            f"(sample * {rows} + channel) * {positions} + position")
