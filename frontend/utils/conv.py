"""The arithmetic of windows: how many there are, and what size they came from."""
from __future__ import annotations


def get_conv_outsize(size: int, k: int, s: int, p: int, cover_all: bool = False, d: int = 1) -> int:
    """Number of positions of a window along one axis.

    Args:
        size: Extent of the axis.
        k: Size of the window.
        s: Step from one window to the next.
        p: Padding on either side.
        cover_all: Whether windows go on until every element is in one, beyond the padding if need be.
        d: Distance between the elements of a window.

    >>> get_conv_outsize(6, 3, 2, 0), get_conv_outsize(6, 3, 2, 0, cover_all=True)
    (2, 3)
    """
    reach = d * (k - 1) + 1
    return (size + 2 * p - reach + (s - 1 if cover_all else 0)) // s + 1


def get_deconv_outsize(size: int, k: int, s: int, p: int, cover_all: bool = False, d: int = 1) -> int:
    """Extent of the axis on which ``size`` windows were: the least one, or with ``cover_all`` for such windows.

    Args:
        size: Number of windows.
        k: Size of the window.
        s: Step from one window to the next.
        p: Padding on either side.
        cover_all: Whether the windows went on until every element was in one.
        d: Distance between the elements of a window.

    >>> get_deconv_outsize(3, 2, 2, 0)
    6
    """
    reach = d * (k - 1) + 1
    return s * (size - 1) + reach - 2 * p - (s - 1 if cover_all else 0)
