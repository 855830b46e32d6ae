"""Extensions: callables that a trainer runs besides the updater."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils.argument import assert_kwargs_empty, check_unexpected_kwargs

PRIORITY_WRITER = 300
PRIORITY_EDITOR = 200
PRIORITY_READER = 100


class Extension:
    """Base class of extensions, callables on a trainer that run when their trigger fires.

    Attributes:
        trigger: default trigger, every iteration unless it is changed.
        priority: extensions of one iteration run in descending order of it:
            ``PRIORITY_WRITER`` (300) for extensions that report values, ``PRIORITY_EDITOR`` (200) for extensions
            that change reported values, ``PRIORITY_READER`` (100) for extensions that only read them.
        name: name under which the trainer knows the extension; set by ``Trainer.extend``.
    """

    trigger: Any = (1, "iteration")
    priority: int = PRIORITY_READER
    name: str | None = None

    @property
    def default_name(self) -> str:
        """Name when none is given: that of the class."""
        return type(self).__name__

    def __call__(self, trainer: Any) -> Any:
        """Do the extension's work, once."""
        raise NotImplementedError(f"{type(self).__name__} has to define __call__")

    def initialize(self, trainer: Any) -> None:
        """Called once before the training loop begins."""

    def on_error(self, trainer: Any, exc: BaseException, tb: Any) -> None:
        """Called with the exception and its traceback when an error ends the training loop."""

    def finalize(self) -> None:
        """Called once at the end of the training loop."""

    def serialize(self, serializer: Any) -> None:
        """Save the extension's state to, or load it from, ``serializer``."""


def make_extension(
    trigger: Any = None,
    default_name: str | None = None,
    priority: int | None = None,
    finalizer: Callable[[], Any] | None = None,
    initializer: Callable[[Any], Any] | None = None,
    on_error: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that gives a function ``f(trainer)`` the attributes of an extension.

    Args:
        trigger: default trigger; ``None`` is every iteration.
        default_name: name; ``None`` is the function's own.
        priority: see :class:`Extension`; ``None`` is ``PRIORITY_READER``.
        finalizer: function without arguments, called at the end of the loop.
        initializer: function of the trainer, called before the loop.
        on_error: function of the trainer, the exception and its traceback, called after an error.
        kwargs: none; ``invoke_before_training`` of old programs raises ValueError.

    Example:
        >>> from kusari import training
        >>> @training.make_extension(trigger=(10, "epoch"))
        ... def lr_drop(trainer):
        ...     trainer.updater.get_optimizer("main").lr *= 0.1
        >>> lr_drop.trigger, lr_drop.default_name, lr_drop.priority
        ((10, 'epoch'), 'lr_drop', 100)
    """
    check_unexpected_kwargs(kwargs, invoke_before_training="invoke_before_training is not supported anymore. Use "
                            "initializer, or call_before_training of Trainer.extend")
    assert_kwargs_empty(kwargs)

    def decorate(function: Any) -> Any:
        function.trigger = Extension.trigger if trigger is None else trigger
        function.default_name = function.__name__ if default_name is None else default_name
        function.priority = PRIORITY_READER if priority is None else priority
        function.finalize = finalizer
        function.initialize = initializer
        function.on_error = on_error
        return function

    return decorate
