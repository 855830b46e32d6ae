"""Arrays and devices of each kind of hardware."""
from . import chainerx, cpu, cuda, intel64

__all__ = ["chainerx", "cpu", "cuda", "intel64"]
