"""Stopping at NaN."""

from typing import Any

import numpy as np

from ... import backend
from ..extension import Extension


class FailOnNonNumber(Extension):
    """Extension that ends training when a parameter contains NaN or infinity.

    Raises:
        RuntimeError: when it is called and one does; the message names the parameters.
    """

    def __call__(self, trainer: Any) -> None:
        """Look at all parameters of all optimizers."""
        for name, optimizer in trainer.updater.get_all_optimizers().items():
            bad = [path for path, param in optimizer.target.namedparams() if not _is_finite(param.array)]
            if bad:
                raise RuntimeError(
                    f"Kill the process since parameters in optimizer '{name}' contain NaN or Inf: {', '.join(bad)} "
                    f"at iteration {trainer.updater.iteration}"
                )


def _is_finite(array: Any) -> bool:
    """Whether all elements are numbers; parameters without a shape yet have none."""
    if array is None:
        return True
    xp: Any = backend.get_array_module(array) if not isinstance(array, np.ndarray) else np
    return bool(xp.isfinite(array).all())
