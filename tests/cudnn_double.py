"""A stand-in for the module of cuDNN's frontend: graphs of one convolution, computed with NumPy.

It refuses what the frontend refuses: calls out of order, names of arguments that are others, shapes that do not go
together, addresses that are not aligned; and results whose strides nobody has set are NHWC. What no program may do
(results on operands, memory of another card, a handle whose stream is another one than the one that captures) fails
as an assertion that a test ends with.
"""
from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import cupy_kernels
import cupy_libraries
import cupy_memory
import cupy_streams
import numpy as np
from cublaslt_double import _at
from cupy_streams import state

KINDS = {"FLOAT": "float32", "HALF": "float16"}
CHANNELS_BYTES = 16  # of which NHWC copies have a multiple


class NotSupported(Exception):
    """``cudnn.cudnnGraphNotSupportedError``."""


class Tensor:
    """``cudnn.tensor``."""

    def __init__(self, name: str, uid: int, dim: Sequence[int] | None = None, stride: Sequence[int] | None = None,
                 ) -> None:
        self.name, self.uid, self.dim, self.stride, self.virtual = name, uid, dim, stride, dim is None

    def get_uid(self) -> int:
        """Its number."""
        return self.uid

    def set_output(self, is_output: bool) -> Tensor:
        """Whether the result is written to memory."""
        self.virtual = not is_output
        return self

    def set_dim(self, dim: Sequence[int]) -> Tensor:
        """Set the shape."""
        self.dim = list(dim)
        return self

    def set_stride(self, stride: Sequence[int]) -> Tensor:
        """Set the strides, in elements."""
        self.stride = list(stride)
        return self


class Graph:
    """``cudnn.pygraph``."""

    def __init__(self, owner: Cudnn, *, name: str = "", io_data_type: str, intermediate_data_type: str,
                 compute_data_type: str, handle: int) -> None:
        assert intermediate_data_type == compute_data_type == "FLOAT"
        self._owner, self._kind, self._handle = owner, np.dtype(KINDS[io_data_type]), handle
        self._tensors: list[Tensor] = []
        self._done: list[str] = []
        self._notes: set[str] = set()
        self._most = 1 << 62

    def tensor(self, *, dim: Sequence[int], stride: Sequence[int], name: str = "") -> Tensor:
        """An operand."""
        self._tensors.append(Tensor(name, len(self._tensors) + 11, dim, stride))
        return self._tensors[-1]

    def _operation(self, kind: str, first: Tensor, second: Tensor, options: dict[str, Any]) -> Tensor:
        assert set(options) == {"pre_padding", "post_padding", "stride", "dilation"}
        assert len({len(v) for v in options.values()}) == 1 and len(options["stride"]) in (2, 3)
        self._kind_of_operation, self._operands, self._options = kind, (first, second), options
        self._result = Tensor("result", 99)
        return self._result

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **options: Any) -> Tensor:
        """A convolution."""
        return self._operation("fprop", image, weight, options)

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **options: Any) -> Tensor:
        """The gradient of the image."""
        return self._operation("dgrad", loss, filter, options)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **options: Any) -> Tensor:
        """The gradient of the filter."""
        return self._operation("wgrad", image, loss, options)

    def _next(self, step: str, *before: str) -> None:
        assert self._done == list(before), f"{step} behind {self._done}"
        self._done.append(step)

    def validate(self) -> None:
        """Check the shapes."""
        self._next("validate")
        result, (a, b) = self._result, self._operands
        if result.virtual or not result.dim:
            raise ValueError("the output's dims are not set")
        assert a.dim and b.dim
        if not result.stride:
            result.stride = _nhwc(result.dim)
        x, w, y = {"fprop": (a.dim, b.dim, result.dim), "dgrad": (result.dim, b.dim, a.dim),
                   "wgrad": (a.dim, result.dim, b.dim)}[self._kind_of_operation]
        options = self._options
        out = [1 + (n - d * (k - 1) - 1 + p + q) // s for n, k, d, p, q, s in zip(
            x[2:], w[2:], options["dilation"], options["pre_padding"], options["post_padding"], options["stride"],
            strict=True)]
        if out != list(y[2:]) or x[0] != y[0] or w[0] != y[1] or x[1] % w[1] or y[1] % (x[1] // w[1]):
            raise ValueError(f"shapes {x}, {w} and {y} do not go together")
        self._shapes = x, w, y

    def build_operation_graph(self) -> None:
        """Ready for heuristics."""
        self._next("operation", "validate")
        if self._owner.devices[self._handle] != state.device:
            raise RuntimeError("the handle is of another card")

    def create_execution_plans(self, modes: Sequence[str]) -> None:
        """Ask for engines."""
        assert list(modes) == ["A", "FALLBACK"]
        self._next("plans", "validate", "operation")

    def deselect_numeric_notes(self, notes: Sequence[str]) -> Graph:
        """Leave engines out; there are none before the heuristics were asked."""
        if "plans" in self._done:
            self._notes.update(notes)
        return self

    def deselect_workspace_greater_than(self, most: int) -> Graph:
        """Leave engines out."""
        if "plans" in self._done:
            self._most = most
        return self

    def check_support(self) -> None:
        """Is an engine left?"""
        self._next("support", "validate", "operation", "plans")
        if self._owner.refuses(self._kind_of_operation, self._shapes) or self._most < self.get_workspace_size():
            raise NotSupported("No valid engine configs\nmore of it")

    def build_plans(self) -> None:
        """Build the first."""
        self._next("build", "validate", "operation", "plans", "support")

    def get_workspace_size(self) -> int:
        """Bytes that ``execute`` needs: NHWC copies of all arrays, as with cuDNN's tensor cores."""
        assert "support" in self._done
        group = CHANNELS_BYTES // self._kind.itemsize
        return sum(prod((n, -(-c // group) * group, *sliding)) for n, c, *sliding in self._shapes) * self._kind.itemsize

    def execute(self, pointers: dict[int, int], workspace: int, handle: int) -> None:
        """Compute."""
        assert "build" in self._done
        owner, device = self._owner, state.device
        if owner.fails():
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        try:
            self._start(pointers, workspace, handle, device)
        except BaseException as error:
            owner.errors.append(repr(error))
            raise

    def _start(self, pointers: dict[int, int], workspace: int, handle: int, device: int) -> None:
        owner = self._owner
        assert owner.devices[handle] == device and not workspace % 16
        on = next(s for s in cupy_streams._streams if s.ptr == owner.streams[handle])
        capturing = [s for s in cupy_streams._streams if s.captured is not None]
        assert not capturing or capturing == [on], "another stream captures"
        tensors = (*self._operands, self._result)
        assert set(pointers) == {t.uid for t in tensors}
        spans = []
        for t in tensors:
            assert t.dim and not pointers[t.uid] % 16, "not aligned"
            cupy_memory.pool.expect_on(pointers[t.uid], device)
            spans.append((pointers[t.uid], pointers[t.uid] + prod(t.dim) * self._kind.itemsize))
        cupy_memory.pool.expect_on(workspace, device)
        room = self.get_workspace_size()
        spans.insert(2, (workspace, workspace + room))
        assert all(end <= spans[3][0] or spans[3][1] <= begin for begin, end in spans[:3]), "a result on an operand"
        if not capturing:
            cupy_kernels.launches["kernels"] += 1
        owner.made.append({"kind": self._kind_of_operation, "shapes": self._shapes, "notes": self._notes,
                           "dtype": self._kind.name, **self._options})

        def run() -> None:
            cupy_kernels.launches["calls"] += 1
            _at(workspace, room, np.dtype(np.uint8))[...] = 255
            arrays = [_array(pointers[t.uid], t, self._kind) for t in tensors]
            wide = [x.astype("f") for x in arrays[:2]]
            with np.errstate(all="ignore"):
                arrays[2][...] = convolve(self._kind_of_operation, *wide, self._shapes, self._options)
        cupy_memory.enqueue(on, run)


def _nhwc(dim: Sequence[int]) -> list[int]:
    order = [0, *range(2, len(dim)), 1]
    found, step = [0] * len(dim), 1
    for axis in reversed(order):
        found[axis], step = step, step * dim[axis]
    return found


def _array(address: int, tensor: Tensor, kind: np.dtype[Any]) -> np.ndarray:
    assert tensor.dim and tensor.stride
    flat = _at(address, prod(tensor.dim), kind)
    return np.lib.stride_tricks.as_strided(flat, tensor.dim, [s * kind.itemsize for s in tensor.stride])


def convolve(kind: str, a: np.ndarray, b: np.ndarray, shapes: Any, options: dict[str, Any]) -> np.ndarray:
    """A convolution or a gradient of one, tap by tap."""
    x, w, y = shapes
    pad, behind = options["pre_padding"], options["post_padding"]
    groups, n = x[1] // w[1], x[0]
    whole = np.zeros((n, groups, w[1], *[s + p + q for s, p, q in zip(x[2:], pad, behind, strict=True)]), "f")
    inner = (slice(None), slice(None), slice(None), *[slice(p, p + s) for p, s in zip(pad, x[2:], strict=True)])
    if kind != "dgrad":
        whole[inner] = a.reshape(n, groups, w[1], *x[2:])
    grouped = (n, groups, y[1] // groups, *y[2:])
    result = np.zeros(grouped if kind == "fprop" else (groups, y[1] // groups, *w[1:]), "f")
    for tap in itertools.product(*map(range, w[2:])):
        part = (slice(None), slice(None), slice(None), *[slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(
            tap, options["dilation"], y[2:], options["stride"], strict=True)])
        if kind == "wgrad":
            flat = whole[part].reshape(*whole.shape[:3], -1)
            result[(..., *tap)] = np.einsum("ngcp,ngkp->gkc", flat, b.reshape(*grouped[:3], -1))
            continue
        weight = b.reshape(groups, y[1] // groups, *w[1:])[(..., *tap)]
        if kind == "fprop":
            result += np.einsum("gkc,ngcp->ngkp", weight, whole[part].reshape(*whole.shape[:3], -1)).reshape(grouped)
        else:
            moved = np.einsum("gkc,ngkp->ngcp", weight, a.reshape(*grouped[:3], -1))
            whole[part] += moved.reshape(whole[part].shape)
    return whole[inner].reshape(x) if kind == "dgrad" else result.reshape(y if kind == "fprop" else w)


class Cudnn(types.SimpleNamespace):
    """The module; ``refuses`` and ``fails`` are asked before a plan is built, and run. ``made`` counts what is run."""

    def __init__(self) -> None:
        def enumeration(*names: str) -> Any:
            return types.SimpleNamespace(**{name: name for name in names})
        super().__init__(
            data_type=enumeration("FLOAT", "HALF", "DOUBLE"), heur_mode=enumeration("A", "B", "FALLBACK"),
            numerical_note=enumeration("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT",
                                       "NONDETERMINISTIC", "WINOGRAD"),
            backend_version_string=lambda: "9.24.0")
        self.refuses: Callable[[str, Any], bool] = lambda *_: False
        self.fails: Callable[[], bool] = lambda: False
        self.devices: dict[int, int] = {}
        self.streams: dict[int, int] = {}
        self.errors: list[str] = []
        self.made: list[dict[str, Any]] = []

    def pygraph(self, **options: Any) -> Graph:
        """A new graph."""
        return Graph(self, **options)

    def create_handle(self) -> int:
        """A handle of the current card."""
        number = 0x500 + len(self.devices)
        self.devices[number], self.streams[number] = state.device, 0
        return number

    def set_stream(self, *, handle: int, stream: int) -> None:
        """Where what is executed from now on runs."""
        self.streams[handle] = stream


@contextmanager
def cudnn() -> Iterator[Cudnn]:
    """Context in which the stand-in for CuPy comes with the stand-in for cuDNN."""
    library = Cudnn()
    with cupy_libraries.only(dnn=library):
        yield library
    assert not library.errors, library.errors[0]
