"""The old name of `kusari.backends.cuda`."""
import sys

from .backends import cuda

sys.modules[__name__] = cuda
