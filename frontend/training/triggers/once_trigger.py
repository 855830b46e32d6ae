"""The trigger that fires once."""

import warnings
from typing import Any

from ...serializer import Deserializer


class OnceTrigger:
    """Trigger that fires at the first iteration and never again.

    Args:
        call_on_resume: also fire at the first iteration after a training was resumed from a snapshot.
    """

    def __init__(self, call_on_resume: bool = False) -> None:
        self._first = True
        self._resumed = call_on_resume

    @property
    def finished(self) -> bool:
        """Whether it has fired and will not again."""
        return not self._first

    def __call__(self, trainer: Any) -> bool:
        """True at the first call."""
        fire, self._first = self._first, False
        return fire

    def serialize(self, serializer: Any) -> None:
        """Save or load whether it has fired."""
        try:
            first = bool(serializer("_flag_first", self._first))
        except KeyError:  # files of old versions of Chainer
            warnings.warn("the file does not say whether the trigger has fired: it is taken to have", UserWarning,
                          stacklevel=3)
            first = False
        self._first = first or (self._resumed and isinstance(serializer, Deserializer))

