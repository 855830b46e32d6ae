"""Optimizers."""

from .adam import AdaBound as AdaBound
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adam import AMSBound as AMSBound
from .adam import AMSGrad as AMSGrad
from .momentum_sgd import MomentumSGD as MomentumSGD
from .nesterov_ag import NesterovAG as NesterovAG
from .sgd import SGD as SGD

__all__ = ["AMSBound", "AMSGrad", "SGD", "AdaBound", "Adam", "AdamW", "MomentumSGD", "NesterovAG"]
