"""Optimizers."""

from ..pytorch_names import OPTIMIZERS as _OPTIMIZERS
from ..pytorch_names import answer_in_module as _answer
from .ada_delta import AdaDelta as AdaDelta
from .ada_grad import AdaGrad as AdaGrad
from .adam import AdaBound as AdaBound
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adam import AMSBound as AMSBound
from .adam import AMSGrad as AMSGrad
from .corrected_momentum_sgd import CorrectedMomentumSGD as CorrectedMomentumSGD
from .momentum_sgd import MomentumSGD as MomentumSGD
from .msvag import MSVAG as MSVAG
from .nesterov_ag import NesterovAG as NesterovAG
from .rmsprop import RMSprop as RMSprop
from .rmsprop import RMSpropGraves as RMSpropGraves
from .sgd import SGD as SGD
from .smorms3 import SMORMS3 as SMORMS3

__all__ = [
    "AMSBound", "AMSGrad", "MSVAG", "SGD", "SMORMS3", "AdaBound", "AdaDelta", "AdaGrad", "Adam", "AdamW",
    "CorrectedMomentumSGD", "MomentumSGD", "NesterovAG", "RMSprop", "RMSpropGraves",
]  # fmt: skip

_answer(globals(), _OPTIMIZERS)
