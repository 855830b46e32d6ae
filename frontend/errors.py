"""The exceptions that Kusari raises on purpose.

```
KusariError
├── InvalidType                  (Exception)       inputs of a function have wrong types or shapes
├── ArgumentError                (ValueError, AssertionError)  arguments of a link do not fit each other
├── ArrayTypeError               (TypeError)       something that is not an array was given as one
├── GradientError                (ValueError)      a gradient does not fit the variable it belongs to
├── GradientTypeError            (TypeError, ValueError)  … its data type or array type does not
├── NaNError                     (RuntimeError)    debug mode found a NaN
├── UninitializedParameterError  (AttributeError)  a parameter was read before its shape was known
├── DeviceError                  (RuntimeError)    the device asked for is not available
├── DeviceSpecifierError         (ValueError)      no device has the name asked for
├── SnapshotFormatError          (ValueError)      a saved file is truncated or of another format
├── MissingEntryError            (KeyError)        a saved file lacks a value that is to be loaded
├── EntryMismatchError           (ValueError)      … has it in another shape
├── EntryTypeError               (TypeError)       a value cannot be saved, or loaded without loss
└── NondifferentiableError       (Exception)       gradient_check: a numerical gradient was asked for at a kink
```

Every class also is the built-in exception in parentheses, which is what code written for Chainer catches. Other
modules may add to the tree: the exceptions of tracing, export and serialization derive from `KusariError` too.
"""
from __future__ import annotations

from typing import Any


class KusariError(Exception):
    """The root of the tree: catches everything that Kusari itself raises."""


_FIXES_IN = {  # by the function and the beginning of an expectation
    ("LinearFunction", "x.ndim == 2"): "Axis 0 is the batch: a single row x becomes x[None]; L.Linear takes more axes "
                                       "by n_batch_axes.",
    ("Transpose", "x.ndim == "): "The axes are all axes in their new order: transpose(0, 2, 1); F.swapaxes(x, 1, 2) "
                                 "exchanges two."}
_FIXES = {  # by the ends of expectations about types
    ".dtype.kind == i": "Labels and indices are integers: convert them with astype(numpy.int32).",
    ".dtype.kind == f": "Arrays of integers are no inputs here: convert them with astype(numpy.float32).",
    "t.ndim == x.ndim - 1": "Labels have one axis less than scores: a column of them becomes t[:, 0].",
    "x.ndim == 2": "Axis 0 is the batch: a single row x becomes x[None].",
    "W.shape[1]": "Axis 1 of an input has its features: give the link their number, or None to take it from the data.",
    "W.shape[1] * 1": "Axis 1 of an input has its channels: pictures as height, width, channel need "
                      "transpose(0, 3, 1, 2).",
    "slide over": "Axis 0 is the batch, axis 1 has the channels: a single picture x becomes x[None].",
    ".dtype": "Arrays and parameters must be of one type: convert with astype(numpy.float32), parameters' usual type."}


class InvalidType(KusariError):
    """Inputs of a function do not satisfy its type check.

    Args:
        expect (str): What the function expects, as an expression.
        actual (str): The same expression with the values that came.
        msg (str): Text that goes before them: in which function it happened.
        where (str): The user's ``file:line`` that applied the function; it goes last.

    Example:
        >>> print(InvalidType("x.ndim == 2", "3 != 2"))
        Expect: x.ndim == 2
        Actual: 3 != 2
    """

    def __init__(self, expect: str, actual: str, msg: str | None = None, where: str | None = None) -> None:
        text = f"Expect: {expect}\nActual: {actual}"
        if msg is not None:
            text = f"{msg}\n\n{text}"
        if where is not None:
            ways = [fix for (name, begin), fix in _FIXES_IN.items() if f" {name} (" in (msg or "") and (
                expect.startswith(begin))]
            ways += [fix for end, fix in _FIXES.items() if expect.endswith(end)]
            text = "\n".join([text, "", *ways[:1], f"Applied at: {where}"])
        super().__init__(text)
        self.expect = expect
        self.actual = actual
        self.msg = msg
        self.where = where

    def __reduce__(self) -> tuple[type, tuple[str, str, str | None, str | None]]:
        return type(self), (self.expect, self.actual, self.msg, self.where)


class ArgumentError(KusariError, ValueError, AssertionError):
    """Arguments of a link do not fit each other, or what it was made with; Chainer asserts that they do."""


class ArrayTypeError(KusariError, TypeError):
    """Something that is not an array was given where an array is needed."""


class GradientError(KusariError, ValueError):
    """A gradient has another shape than its variable, or `backward` returned the wrong number of gradients."""


class GradientTypeError(KusariError, TypeError, ValueError):
    """A gradient has another data type or array type than its variable."""


class NaNError(KusariError, RuntimeError):
    """Debug mode found a NaN in the result of a forward or backward computation."""


class UninitializedParameterError(KusariError, AttributeError):
    """A parameter whose shape is not known yet was read."""


class DeviceError(KusariError, RuntimeError):
    """The device asked for is not available here."""


class DeviceSpecifierError(KusariError, ValueError):
    """No device has the name asked for."""


class SnapshotFormatError(KusariError, ValueError):
    """A saved file cannot be read: it is truncated, damaged or of another format."""


class MissingEntryError(KusariError, KeyError):
    """A value that is to be loaded is not in the file."""

    def __str__(self) -> str:
        # KeyError would show the message as a quoted string.
        return str(self.args[0]) if self.args else ""


class EntryMismatchError(KusariError, ValueError):
    """A saved array has another shape than the one it is to be loaded into."""


class EntryTypeError(KusariError, TypeError):
    """A value has a type that cannot be saved, or a saved one cannot be loaded without loss."""


def explain_index(error: IndexError, label: str, arrays: tuple[Any, ...], where: str) -> None:
    """Add to an error the function, the values of its labels or indices, and where it was applied."""
    if "Applied at" not in str(error):
        held = [f"Input {i} holds values from {array.min()} to {array.max()}: labels and indices count from 0, and the "
                "largest is the number of classes or rows less one."
                for i, array in enumerate(arrays) if array.dtype.kind in "iu" and array.size]
        error.args = "\n".join([str(error), f"Invalid operation is performed in: {label} (Forward)", *held,
                                f"Applied at: {where}"]),


def wrong_gradient(function: Any, problem: str, kind: type[Exception] = GradientError) -> Exception:
    """Return the error for what a function's backward did wrong."""
    lines = [problem, f"  function={type(function).__name__} ({function.label})"]
    for index, x in enumerate(function.inputs or ()):
        lines.append(f"    input {index}: shape={x.shape} dtype={x.dtype}")
    for index, reference in enumerate(function.outputs or ()):
        y = reference()
        lines.append(f"    output {index}: " + ("not available" if y is None else f"shape={y.shape} dtype={y.dtype}"))
    return kind("\n".join(lines))
