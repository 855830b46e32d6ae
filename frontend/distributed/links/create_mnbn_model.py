"""Models whose batch normalization is that of all ranks."""
from __future__ import annotations

import copy
from typing import Any

from ...link import Chain, ChainList
from ...links import BatchNormalization
from .batch_normalization import MultiNodeBatchNormalization

__all__ = ["create_mnbn_model"]


def create_mnbn_model(link: Any, comm: Any, communication_backend: str = "auto") -> Any:
    """Return a copy of a link in which each `BatchNormalization` is a `MultiNodeBatchNormalization`.

    Args:
        link: The link.
        comm: A communicator.
        communication_backend: As for ``MultiNodeBatchNormalization``.
    """
    if isinstance(link, BatchNormalization):
        return _multi_node(link, comm, communication_backend)
    made = copy.deepcopy(link)
    if isinstance(link, Chain):
        for name in sorted(link._children):
            child = create_mnbn_model(getattr(link, name), comm, communication_backend)
            child.name = name
            vars(made)[name] = child
    elif isinstance(link, ChainList):  # and Sequential
        for i, child in enumerate(link):
            if hasattr(child, "namedlinks"):  # a Sequential may have functions
                made[i] = create_mnbn_model(child, comm, communication_backend)
    return made


def _multi_node(link: BatchNormalization, comm: Any, communication_backend: str) -> MultiNodeBatchNormalization:
    size = None if link.avg_mean is None else link.avg_mean.shape
    made = MultiNodeBatchNormalization(
        size, comm, link.decay, link.eps, link._dtype, link.gamma is not None, link.beta is not None,
        communication_backend=communication_backend, axis=link.axis if size is None or link.axis is not None else None)
    if size is not None:
        made.copyparams(link)
    made.N = link.N
    made.name = link.name
    return made
