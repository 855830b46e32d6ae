"""Broadcasting of several inputs against each other."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...broadcasting import BroadcastTo
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable


@for_arrays
def broadcast(*args: Any) -> tuple[Variable, ...] | Variable:
    """Broadcast all inputs against each other.

    Returns:
        tuple of Variables of one shape (a single Variable for a single input).

    Raises:
        InvalidType: There is none, or the shapes do not broadcast together.
    """
    if not args:
        raise type_check.InvalidType("in_types.size > 0", "0 <= 0",
                                     "\nInvalid operation is performed in: Broadcast (Forward)")
    shapes = [x.shape for x in args]
    type_check.expect_broadcast_shapes("inputs", *shapes)
    shape = np.broadcast_shapes(*shapes)
    outputs = tuple([BroadcastTo(shape).apply((x,))[0] for x in args])
    return outputs[0] if len(args) == 1 else outputs
