"""Hooks of optimizers and update rules."""

from .clipping import GradientClipping as GradientClipping
from .clipping import GradientHardClipping as GradientHardClipping
from .decay import Lasso as Lasso
from .decay import WeightDecay as WeightDecay
from .lars import GradientLARS as GradientLARS
from .noise import GradientNoise as GradientNoise

__all__ = ["GradientClipping", "GradientHardClipping", "GradientLARS", "GradientNoise", "Lasso", "WeightDecay"]
