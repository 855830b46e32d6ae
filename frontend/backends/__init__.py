"""Arrays and devices of each kind of hardware."""
from . import cpu, cuda, intel64

__all__ = ["cpu", "cuda", "intel64"]
