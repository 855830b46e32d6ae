"""Whether models and optimizers are the same on all ranks: by digests of each array, so that a message can name it."""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from .communicators.messages import flat
from .errors import InconsistentRanks

__all__ = ["digests", "require_consistent"]


def _digest(array: Any) -> str:
    values = flat(array)
    return hashlib.blake2b(values.view(np.uint8).data, digest_size=12).hexdigest()


def digests(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an update depends on, with a digest of it: names are paths in the model and of hyperparameters."""
    yield "the count of updates t", optimizer.t
    yield "the loss scale", optimizer._loss_scale
    for name, value in sorted(optimizer.hyperparam.get_dict().items()) if hasattr(optimizer, "hyperparam") else ():
        yield f"the hyperparameter {name}", value if isinstance(value, (int, float, bool, str)) else repr(value)
    for name, param in sorted(optimizer.target.namedparams()):
        if param.array is not None:
            yield f"the parameter {name}", _digest(param.array)
        rule = param.update_rule
        if rule is None:
            continue
        yield f"the update rule of {name}", (type(rule).__name__, rule.enabled, rule.t)
        for state, value in sorted((rule.state or {}).items()):
            if value is not None:
                yield f"the state {state!r} of {name}", _digest(np.asarray(value) if np.isscalar(value) else value)


def require_consistent(comm: Any, optimizer: Any) -> None:
    """Raise unless parameters, states and hyperparameters are the same on all ranks.

    Raises:
        InconsistentRanks: They are not; the message names the first that differs.
    """
    found: list[dict[str, Any]] = comm.agree("update", None, lambda: dict(digests(optimizer)))
    for rank, other in enumerate(found):
        different = [name for name in dict.fromkeys((*found[0], *other)) if found[0].get(name) != other.get(name)]
        if different:
            more = f", and {len(different) - 1} more" if len(different) > 1 else ""
            raise InconsistentRanks(
                f"in the first update {different[0]} is not the same on ranks 0 and {rank}{more}. "
                "comm.bcast_data(model) "
                "makes parameters the same; optimizers have to be made with the same arguments on all ranks, and to be "
                "loaded on all of them or on none.")
