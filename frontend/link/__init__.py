"""Links: the pieces of a model that hold parameters."""

from .base import Link as Link
from .chain import Chain as Chain
from .chain_list import ChainList as ChainList

__all__ = ["Chain", "ChainList", "Link"]
