"""Arrays and devices of each kind of hardware."""
from . import cpu, cuda

__all__ = ["cpu", "cuda"]
