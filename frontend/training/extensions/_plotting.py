"""Matplotlib where it is installed, without touching its global state."""

import importlib
import importlib.util
import warnings
from typing import Any


def available() -> bool:
    """Whether matplotlib is installed; warns when it is not."""
    if importlib.util.find_spec("matplotlib") is not None:
        return True
    warnings.warn(
        "matplotlib is not installed, so no plots are made: pip install matplotlib (or 'kusari[examples]')",
        stacklevel=3,
    )
    return False


def new_figure(**options: Any) -> Any:
    """A figure that is drawn to files only: no window, no pyplot, no matter which backend the user chose."""
    figure = importlib.import_module("matplotlib.figure").Figure(**options)
    importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure
