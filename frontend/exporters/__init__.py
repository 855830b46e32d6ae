"""Models written in the formats of other frameworks."""

from . import caffe

__all__ = ["caffe"]
