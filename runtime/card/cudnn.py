"""cuDNN through the Python module of its frontend: convolutions as plans, executed in memory that is given.

A graph of one operation becomes a plan of the first engine in cuDNN's heuristic that rounds as is allowed: see
`Convolution`. Names and signatures are those of ``nvidia-cudnn-frontend`` 1.18 to 1.28.
"""
from __future__ import annotations

import functools
import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from kusari.ir import DType, Node, Windows, windows_of

from .launches import Refused

Direction = Literal["conv", "conv_input", "conv_weight"]

TYPES = {"float32": "FLOAT", "float16": "HALF"}
TENSOR_ALIGNMENT_BYTES = 16  # of all tensors, as the frontend assumes
PLAN_WORKSPACE_BYTES = 64 << 20  # that a plan may have beside copies of all arrays, which tensor cores need
#: Axes along which windows slide, at least and at most; one with fewer gets axes of one element.
LEAST_AXES, MOST_AXES = 2, 3


@dataclass(frozen=True)
class Geometry:
    """A convolution: shapes of x, the filter and y, and what happens along the sliding axes.

    ``direction`` is the op: y of x and the filter, the gradient of x of y's and the filter, or that of the filter of x
    and y's. ``tf32`` lets factors in float32 be rounded.
    """

    direction: Direction
    x: tuple[int, ...]
    filter: tuple[int, ...]
    y: tuple[int, ...]
    windows: Windows
    dtype: DType
    tf32: bool = False

    @property
    def flops(self) -> int:
        """Operations by definition, superfluous ones on padding included."""
        return 2 * prod(self.y) * prod(self.filter[1:])

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the result."""
        return {"conv": self.y, "conv_input": self.x, "conv_weight": self.filter}[self.direction]

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return prod(self.result) * self.dtype.itemsize

    @property
    def most_workspace_bytes(self) -> int:
        """Bytes that a plan may have: cuDNN's tensor cores read NHWC, so it copies, with channels in groups."""
        group = TENSOR_ALIGNMENT_BYTES // self.dtype.itemsize
        padded = [(n, -(-channels // group) * group, *sliding)
                  for n, channels, *sliding in (self.x, self.filter, self.y)]
        return PLAN_WORKSPACE_BYTES + sum(map(prod, padded)) * self.dtype.itemsize


def geometry_of(node: Node, tf32: bool) -> Geometry:
    """Return the convolution of a node; raises ``Refused`` where cuDNN has no type, axes or elements for it."""
    a, b, result = node.inputs[0].shape, node.inputs[1].shape, node.output.shape
    dtype = node.output.tensor.dtype
    if dtype.name not in TYPES or any(v.tensor.dtype != dtype for v in node.inputs):
        raise Refused(f"convolutions of {' and '.join(v.tensor.dtype.name for v in node.inputs)}")
    if not all(v.tensor.size for v in (*node.inputs, node.output)):
        raise Refused("it is empty")
    if len(a) - 2 > MOST_AXES:
        raise Refused(f"it has {len(a) - 2} axes")
    windows = windows_of(node.op.name, node.attrs, a, b)
    x, weight, y = {"conv": (a, b, result), "conv_input": (result, b, a), "conv_weight": (a, result, b)}[node.op.name]
    direction: Any = node.op.name
    return Geometry(direction, x, weight, y, windows, dtype, tf32 and dtype.name == "float32")


def paddings(windows: Windows) -> list[tuple[int, int]]:
    """Return the zeros before and behind each axis, as many if that gives as many windows.

    Raises ``Refused`` where windows end before those of any padding would.
    """
    found: list[tuple[int, int]] = []
    for size, out, kernel, stride, pad, dilate in zip(windows.size, windows.out, windows.kernel, windows.stride,
                                                      windows.pad, windows.dilate, strict=True):
        reach = (kernel - 1) * dilate + 1

        def count(behind: int, size: int = size, pad: int = pad, reach: int = reach, stride: int = stride) -> int:
            return (size + pad + behind - reach) // stride + 1
        needed = max(0, (out - 1) * stride + reach - size - pad)
        behind = next((b for b in (pad, needed) if count(b) == out), None)
        if behind is None:
            raise Refused("its windows end before the image does")
        found.append((pad, behind))
    return found


class Library:
    """The module, with a handle for each card, which is used by one thread at a time."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.version: str = module.backend_version_string()
        self.lock = threading.Lock()
        self._handles: dict[int, Any] = {}
        self.convolutions: dict[tuple[int, Geometry], Convolution] = {}

    def handle(self, device: int) -> Any:
        """Return the handle of a card, which is the current one."""
        found = self._handles.get(device)
        if found is None:
            found = self._handles[device] = self.module.create_handle()
        return found

    def convolution(self, device: int, geometry: Geometry) -> Convolution:
        """Return the plan for a convolution, made once; raises ``Refused``."""
        key = device, geometry
        with self.lock:
            found = self.convolutions.get(key)
            if found is None:
                found = self.convolutions[key] = _asked(Convolution, self, device, geometry)
        return found


def _asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function; whatever it raises of cuDNN's is a refusal."""
    try:
        return function(*arguments)
    except Refused:
        raise
    except Exception as error:  # cudnnGraphNotSupportedError is no RuntimeError
        text = str(error).strip().splitlines()
        raise Refused(f"cuDNN: {text[0] if text else type(error).__name__}") from error


@dataclass
class Convolution:
    """A convolution on a card as a plan of cuDNN's.

    Engines that add in an order that changes, or round factors to fewer bits, are left out; of float32 also tensor
    cores, unless it may be TF32. Arrays are in C order; float16 is added up in float32.
    """

    library: Library
    device: int
    work: Geometry
    workspace_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        module, work = self.library.module, self.work
        graph = module.pygraph(io_data_type=getattr(module.data_type, TYPES[work.dtype.name]),
                               intermediate_data_type=module.data_type.FLOAT,
                               compute_data_type=module.data_type.FLOAT, handle=self.library.handle(self.device))
        more = max(0, LEAST_AXES - len(work.windows.size))
        ones = (1,) * more

        def tensor(name: str, shape: tuple[int, ...]) -> Any:
            shape = (*shape[:2], *ones, *shape[2:])
            return graph.tensor(name=name, dim=list(shape), stride=_strides(shape))
        before, behind = zip(*paddings(work.windows), strict=True)
        options: dict[str, Any] = dict(
            pre_padding=[0] * more + list(before), post_padding=[0] * more + list(behind),
            stride=[1] * more + list(work.windows.stride), dilation=[1] * more + list(work.windows.dilate))
        if work.direction == "conv":
            operands = tensor("x", work.x), tensor("filter", work.filter)
            result = graph.conv_fprop(image=operands[0], weight=operands[1], **options)
        elif work.direction == "conv_input":
            operands = tensor("dy", work.y), tensor("filter", work.filter)
            result = graph.conv_dgrad(loss=operands[0], filter=operands[1], **options)
        else:
            operands = tensor("x", work.x), tensor("dy", work.y)
            result = graph.conv_wgrad(image=operands[0], loss=operands[1], **options)
        shape = (*work.result[:2], *ones, *work.result[2:])
        result.set_output(True)
        result.set_dim(list(shape))
        result.set_stride(_strides(shape))  # else it is NHWC
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
        notes = module.numerical_note
        unwanted = [notes.NONDETERMINISTIC, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
        if work.dtype.name == "float32" and not work.tf32:
            unwanted.append(notes.TENSOR_CORE)
        graph.deselect_numeric_notes(unwanted)
        graph.deselect_workspace_greater_than(work.most_workspace_bytes)
        graph.check_support()
        graph.build_plans()
        self.workspace_bytes = int(graph.get_workspace_size())
        if self.workspace_bytes > work.most_workspace_bytes:
            raise Refused(f"its workspace has {self.workspace_bytes:,} bytes")
        self._graph, self._uids = graph, [t.get_uid() for t in (*operands, result)]

    def __call__(self, a: int, b: int, result: int, workspace: int, room: int, stream: int) -> None:
        """Compute on a stream, on addresses of the card, with ``room`` bytes at ``workspace``; raises ``Refused``."""
        if any(address % TENSOR_ALIGNMENT_BYTES for address in (a, b, result)):
            raise Refused(f"an array is not aligned to {TENSOR_ALIGNMENT_BYTES} bytes")
        with self.library.lock:
            _asked(self._execute, dict(zip(self._uids, (a, b, result), strict=True)), workspace, stream)

    def _execute(self, pointers: dict[int, int], workspace: int, stream: int) -> None:
        handle = self.library.handle(self.device)
        self.library.module.set_stream(handle=handle, stream=stream)
        self._graph.execute(pointers, workspace, handle=handle)

    def __str__(self) -> str:
        return f"cudnn_{self.work.direction}"


def _strides(shape: Sequence[int]) -> list[int]:
    """The strides of an array in C order, in elements."""
    found = [1]
    for n in reversed(shape[1:]):
        found.append(found[-1] * n)
    return found[::-1]


def module() -> Any:
    """Return the frontend's module, or None where it is not installed."""
    return importlib.import_module("cudnn") if importlib.util.find_spec("cudnn") is not None else None


@functools.cache
def library(major: int) -> Library | str:
    """Return the library for a version of CUDA, or why there is none."""
    try:
        found = module()
        if found is None:
            extra = "cudnn" if major < 13 else f"cudnn{major}"
            return f"cuDNN's frontend was not found (pip install 'kusari[{extra}]')"
        return Library(found)
    except Exception as error:  # of any kind: the module loads libraries when it is imported
        return f"cuDNN cannot be loaded: {type(error).__name__}: {error}"
