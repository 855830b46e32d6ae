"""The exceptions of distributed training; all ranks of a communicator raise the same one."""
from __future__ import annotations

from ..errors import KusariError

__all__ = ["CollectiveMismatch", "Deadlock", "InconsistentRanks", "MPIMissing", "RankGone"]


class MPIMissing(KusariError, ImportError):
    """Several ranks were asked for, and mpi4py or an MPI library is not installed."""


class CollectiveMismatch(KusariError, ValueError, TypeError):
    """Ranks have called different operations, or one operation with arguments that do not fit together."""


class RankGone(KusariError, RuntimeError):
    """A rank has ended its program while another one waits for it."""


class Deadlock(KusariError, RuntimeError):
    """Every rank waits for another one."""


class InconsistentRanks(KusariError, RuntimeError):
    """Parameters, or states of optimizers, are not the same on all ranks."""
