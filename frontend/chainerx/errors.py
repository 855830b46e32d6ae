"""The exceptions of ChainerX; each also is the exception that NumPy or Python would raise."""
from __future__ import annotations

import builtins

from .. import errors as _errors

__all__ = [
    "BackendError", "ChainerxError", "ContextError", "DeviceError", "DimensionError", "DtypeError",
    "GradientCheckError", "GradientError", "NotImplementedError",
]


class ChainerxError(_errors.KusariError):
    """The root of them."""


class ContextError(ChainerxError, RuntimeError):
    """There is no context, or two contexts are mixed."""


class BackendError(ChainerxError, _errors.DeviceError):
    """There is no such backend, or it cannot do this."""


class DeviceError(ChainerxError, _errors.DeviceError):
    """There is no such device, or arrays of several devices are mixed."""


class DimensionError(ChainerxError, ValueError):
    """Shapes or axes do not fit."""


class DtypeError(ChainerxError, TypeError):
    """Data types do not fit."""


class GradientError(ChainerxError, _errors.GradientError):
    """A gradient does not fit its array, or there are too few or too many of them."""


class GradientCheckError(ChainerxError, AssertionError):
    """Gradients differ from those found by finite differences."""


class NotImplementedError(ChainerxError, builtins.NotImplementedError):
    """This combination of arguments is not supported."""
