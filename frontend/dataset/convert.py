"""From a batch, a list of examples, to the arrays that a model takes."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import backend
from . import _batch


class Converter:
    """Base class of converters: ``converter(batch, device)`` gives an array, a tuple or a dict of arrays."""

    def __call__(self, batch: Any, device: Any = None) -> Any:
        """Convert ``batch`` and send the result to ``device`` (``None``: leave it where it is)."""
        raise NotImplementedError(f"{type(self).__name__} has to define __call__")


class _FunctionConverter(Converter):
    """A function made into a converter; it always sees a :class:`~kusari.backend.Device` or None."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, batch: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        device = None if device is None else backend.get_device(device)
        return self._function(batch, device, *args, **kwargs)

    def __reduce__(self) -> str:  # the name, as of functions: what it stands for there is the converter
        return self._function.__qualname__


def converter() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that makes a converter of a function ``f(batch, device)``.

    The function gets ``device`` as a device object or ``None``, whatever form the caller gave.

    Example:
        >>> from kusari.dataset import converter
        >>> @converter()
        ... def first_column(batch, device):
        ...     return [row[0] for row in batch]
        >>> first_column([(1, 2), (3, 4)], None)
        [1, 3]
    """
    return _FunctionConverter


def call_converter(function: Callable[..., Any], batch: Any, device: Any) -> Any:
    """Call a converter; a plain function gets the old form of a device: an id, -1 for the CPU, or None."""
    if isinstance(function, Converter) or device is None:
        return function(batch, device)
    device = backend.get_device(device)
    if device.xp is np:
        return function(batch, -1)
    return function(batch, getattr(getattr(device, "device", None), "id", device))


def to_device(device: Any, x: Any) -> Any:
    """Send an array, or a tree of tuples, lists and dicts of arrays, to ``device``; ``None`` leaves it alone."""
    if device is None:
        return x
    return backend.get_device(device).send(x)


@converter()
def concat_examples(batch: Any, device: Any = None, padding: Any = None) -> Any:
    """Put the examples of a batch together into arrays with one more dimension in front.

    Args:
        batch: list of examples: arrays or scalars (gives one array), tuples (gives a tuple of arrays), or
            dicts (gives a dict of arrays).
        device: where the arrays are sent, in any form that ``get_device`` takes; ``None`` leaves them.
        padding: ``None``: all shapes must agree. A number: smaller arrays are filled up to the largest
            with it. A tuple or a dict of such: one per element of the example.

    Raises:
        ValueError: the batch is empty, or shapes differ and no padding was given.

    Example:
        >>> import numpy as np
        >>> from kusari.dataset import concat_examples
        >>> x, t = concat_examples([(np.array([1, 2]), 0), (np.array([3]), 1)], padding=(-1, None))
        >>> x.tolist(), t.tolist()
        ([[1, 2], [3, -1]], [0, 1])
    """
    if len(batch) == 0:
        raise ValueError("batch is empty: there is no example to concatenate")
    columns = _batch.columns_of_batch(batch)
    if columns is not None and (padding is None or not isinstance(columns, tuple)):
        return to_device(device, columns)
    first = batch[0]
    if isinstance(first, tuple):
        size = len(first)
        for i, example in enumerate(batch):
            if len(example) != size:
                raise ValueError(
                    f"examples of one batch must have the same number of elements: "
                    f"the first has {size}, the one at {i} has {len(example)}"
                )
        paddings = padding if isinstance(padding, tuple) else (padding,) * size
        if len(paddings) != size:
            raise ValueError(f"padding has {len(paddings)} elements for examples of {size} elements")
        return tuple(_stack([e[i] for e in batch], device, paddings[i], f"element {i}") for i in range(size))
    if isinstance(first, Mapping):
        pads = padding if isinstance(padding, Mapping) else dict.fromkeys(first, padding)
        return {key: _stack([e[key] for e in batch], device, pads[key], f"key {key!r}") for key in first}
    return _stack(batch, device, padding, "the examples")


def _stack(values: Sequence[Any], device: Any, padding: Any, what: str) -> Any:
    """One array from equally shaped (or padded) values, on ``device``."""
    kinds = set(map(type, values))
    if padding is None and len(kinds) == 1 and (joined := _joined(values, *kinds)) is not None:
        return to_device(device, joined)
    # Python numbers and lists have no array module of their own: NumPy decides their dtype.
    if not hasattr(values[0], "shape") or isinstance(values[0], np.generic):
        values = [np.asarray(v) for v in values]
    if device is not None:
        # Copying many small arrays to a GPU one by one is slow: stack on the host when they are there.
        if all(isinstance(v, np.ndarray) for v in values):
            return device.send(_join(values, padding, what))
        values = [device.send(v) for v in values]
    return _join(values, padding, what)


def _joined(values: Sequence[Any], kind: type) -> Any:
    """Return the stack of values of one type, in a fraction of the time; None if another way is needed."""
    if kind is np.ndarray:
        shape = values[0].shape
        if not shape or any([v.shape != shape for v in values]):
            return None
        return np.concatenate(values).reshape(len(values), *shape)
    expected = _NUMBERS.get(kind) or (np.dtype(kind) if issubclass(kind, (np.number, np.bool_)) else None)
    if expected is None:
        return None
    found = np.array(values)
    return found if found.dtype == expected else None  # integers may be too large


_NUMBERS: dict[type, Any] = {bool: np.dtype(bool), int: np.asarray(0).dtype, float: np.dtype(float)}


def _join(arrays: Sequence[Any], padding: Any, what: str) -> Any:
    """Stack arrays of one array module, filling up with ``padding`` unless it is None."""
    xp = backend.get_array_module(arrays[0])
    if padding is None:
        shapes = {a.shape: i for i, a in reversed(list(enumerate(arrays)))}
        if len(shapes) > 1:
            first = arrays[0].shape
            other, where = next((s, i) for s, i in shapes.items() if s != first)
            raise ValueError(
                f"{what} of a batch must have equal shapes: the first has {first}, the one at {where} has {other}; "
                f"give concat_examples a padding value to fill the smaller ones up"
            )
        return xp.stack(arrays)
    ndim = arrays[0].ndim
    if any(a.ndim != ndim for a in arrays):
        raise ValueError(f"{what}: padding needs arrays of equal ndim, got {sorted({a.ndim for a in arrays})}")
    shape = tuple(max(a.shape[axis] for a in arrays) for axis in range(ndim))
    result = xp.full((len(arrays), *shape), padding, dtype=arrays[0].dtype)
    for i, array in enumerate(arrays):
        result[(i, *(slice(n) for n in array.shape))] = array
    return result


class ConcatWithAsyncTransfer(Converter):
    """:func:`concat_examples` that copies to a card while the card still computes.

    The batch is put together in pinned memory and copied on a stream of its own, into memory of the converter's that
    alternates between two places. Only the last copy, within the card, waits for what was computed before, so results
    are ordinary arrays that may be kept. On other devices it is :func:`concat_examples`.

    Args:
        stream: CuPy stream to copy on; ``None`` makes one for each card.
        compute_stream: CuPy stream on which the results are used; ``None`` is the current one of each call.
    """

    def __init__(self, stream: Any = None, compute_stream: Any = None) -> None:
        self._stream = stream
        self.compute_stream = compute_stream
        self._streams: dict[int, Any] = {}
        self._places: dict[int, list[_Place]] = {}

    def __call__(self, batch: Any, device: Any = None, padding: Any = None) -> Any:
        """Concatenate ``batch`` and begin to send it to ``device``."""
        tree = concat_examples(batch, None, padding)
        if device is None:
            return tree
        device = backend.get_device(device)
        arrays = _arrays_of(tree)
        if not isinstance(device, backend.GpuDevice) or not all(
                isinstance(x, np.ndarray) and x.dtype.kind in "biufc" for x in arrays):
            return device.send(tree)
        with device.create_context():
            sent = iter(self._send(device, arrays))
        return _with_arrays(tree, sent)

    def _send(self, device: Any, arrays: list[np.ndarray]) -> list[Any]:
        cuda, number = device.xp.cuda, device.device.id
        if number not in self._places:
            self._places[number] = [_Place(), _Place()]
            self._streams[number] = self._stream or cuda.Stream(non_blocking=True)
        place, other = self._places[number]
        self._places[number] = [other, place]
        return place.send(device.xp, arrays, self._streams[number],
                          self.compute_stream or cuda.get_current_stream())


class _Place:
    """Pinned memory and memory of a card through which batches go.

    Invariant: nothing is written to either before what was there has been copied on.
    """

    def __init__(self) -> None:
        self._pinned: Any = np.empty(0, np.uint8)
        self._on_card: Any = None
        self._sent: Any = None  # events: the last copy from pinned memory, and that from the memory of the card
        self._taken: Any = None

    def send(self, xp: Any, arrays: list[np.ndarray], stream: Any, compute: Any) -> list[Any]:
        """Return copies of the arrays on the current card, to be used on the stream ``compute``."""
        starts = [0]
        for x in arrays:
            starts.append(starts[-1] + -(-x.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
        total = starts[-1]
        if self._sent is not None:
            self._sent.synchronize()
            stream.wait_event(self._taken)
        if self._pinned.size < total:
            self._pinned = np.frombuffer(xp.cuda.alloc_pinned_memory(total), np.uint8, total)
            with stream:
                self._on_card = xp.empty(total, np.uint8)
        for start, x in zip(starts, arrays, strict=False):
            self._pinned[start:start + x.nbytes].view(x.dtype).reshape(x.shape)[...] = x
        if total:
            self._on_card[:total].set(self._pinned[:total], stream=stream)
        self._sent = stream.record()
        compute.wait_event(self._sent)
        with compute:
            copies = [self._on_card[start:start + x.nbytes].view(x.dtype).reshape(x.shape).copy() if x.nbytes
                      else xp.empty(x.shape, x.dtype) for start, x in zip(starts, arrays, strict=False)]
        self._taken = compute.record()
        return copies


_ALIGNMENT_BYTES = 512


def _arrays_of(tree: Any) -> list[Any]:
    """The arrays of a batch in order."""
    if isinstance(tree, (tuple, list)):
        return [x for part in tree for x in _arrays_of(part)]
    return [x for part in tree.values() for x in _arrays_of(part)] if isinstance(tree, dict) else [tree]


def _with_arrays(tree: Any, arrays: Iterator[Any]) -> Any:
    """The same tree of other arrays."""
    if isinstance(tree, dict):
        return {key: _with_arrays(part, arrays) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [_with_arrays(part, arrays) for part in tree]
        return parts if isinstance(tree, list) else type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return next(arrays)
