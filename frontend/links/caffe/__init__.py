"""Networks of Caffe's files, as links."""

from .caffe_function import CaffeFunction

__all__ = ["CaffeFunction"]
