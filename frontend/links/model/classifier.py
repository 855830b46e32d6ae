"""The classifier model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functions as F
from ... import reporter
from ...link import Chain

__all__ = ["Classifier"]


class Classifier(Chain):
    """A model around a predictor that computes its loss and accuracy, and reports them.

    Args:
        predictor: The link that predicts.
        lossfun: ``lossfun(y, t)`` returns the loss, a scalar variable.
        accfun: ``accfun(y, t)`` returns the accuracy.
        label_key: Which argument is the label: an index of the positional ones, or the name of a keyword one.

    Attributes:
        predictor: The predictor.
        y: Prediction for the last batch.
        loss: Its loss.
        accuracy: Its accuracy.
        compute_accuracy: Whether accuracy is computed.

    Raises:
        TypeError: ``label_key`` is neither an integer nor a string.

    >>> model = L.Classifier(L.Linear(3, 2))
    >>> loss = model(np.ones((4, 3), "float32"), np.array([0, 1, 1, 0], "int32"))
    >>> loss.shape
    ()
    """

    compute_accuracy = True

    def __init__(
        self,
        predictor: Any,
        lossfun: Callable[..., Any] = F.softmax_cross_entropy,
        accfun: Callable[..., Any] = F.accuracy,
        label_key: int | str = -1,
    ) -> None:
        if not isinstance(label_key, (int, str)):
            raise TypeError(f"label_key must be int or str, but is {type(label_key)}")
        super().__init__()
        self.lossfun = lossfun
        self.accfun = accfun
        self.y: Any = None
        self.loss: Any = None
        self.accuracy: Any = None
        self.label_key = label_key
        with self.init_scope():
            self.predictor = predictor

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loss of a batch: predictor inputs and labels, told apart by ``label_key``.

        Raises:
            ValueError: There is no argument ``label_key``.
        """
        key = self.label_key
        if isinstance(key, int):
            if not -len(args) <= key < len(args):
                raise ValueError(f"Label key {key} is out of bounds: there are {len(args)} positional argument(s)")
            t = args[key]
            args = args[:-1] if key == -1 else args[:key] + args[key + 1 :]
        else:
            if key not in kwargs:
                names = ", ".join(kwargs) or "none"
                raise ValueError(f'Label key "{key}" is not found among the keyword arguments: {names}')
            t = kwargs.pop(key)
        self.y = None
        self.loss = None
        self.accuracy = None
        self.y = self.predictor(*args, **kwargs)
        self.loss = self.lossfun(self.y, t)
        reporter.report({"loss": self.loss}, self)
        if self.compute_accuracy:
            self.accuracy = self.accfun(self.y, t)
            reporter.report({"accuracy": self.accuracy}, self)
        return self.loss
