"""`FunctionHook`: code that runs around every function application."""
from __future__ import annotations

from typing import Any

from . import tape as _tape


def get_function_hooks() -> dict[str, FunctionHook]:
    """Return the function hooks that are registered in this thread, by name."""
    hooks = _tape.current.__dict__.get("function_hooks")
    if hooks is None:
        hooks = _tape.current.function_hooks = _tape.Hooks()
    return hooks


class FunctionHook:
    """The base of hooks: register one with a ``with`` statement, or with `FunctionNode.add_hook`.

    Override some of the four callbacks, `added` and `deleted`; all of them do nothing here. A hook is known by its
    `name`, which must be unique among the registered ones.

    Example:
        >>> import kusari, numpy as np
        >>> class Names(kusari.FunctionHook):
        ...     name = "Names"
        ...     def forward_postprocess(self, function, in_data):
        ...         print(function.label)
        >>> with Names():
        ...     y = kusari.functions.relu(np.ones(2, np.float32))
        ReLU
    """

    name = "FunctionHook"

    def __enter__(self) -> FunctionHook:
        if _tape.current.tape is not None:
            _tape.current.tape.note(f"the hook {self.name} is entered inside, and replays would not call it; enter it "
                                    "outside the static function")
        hooks = get_function_hooks()
        if self.name in hooks:
            raise KeyError(f"hook {self.name} already exists")
        self.added(None)  # which may refuse
        hooks[self.name] = self
        return self

    def __exit__(self, *exc: object) -> None:
        get_function_hooks().pop(self.name).deleted(None)

    def added(self, function: Any = None) -> None:
        """Called when the hook is registered: with the function node, or with None for the thread."""

    def deleted(self, function: Any = None) -> None:
        """Called when the hook is unregistered: with the function node, or with None for the thread."""

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Called before forward propagation.

        Args:
            function (FunctionNode): The function.
            in_data (tuple of arrays): Its inputs.
        """

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Called after forward propagation, with the same arguments as `forward_preprocess`."""

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Called before backward propagation.

        Args:
            function (FunctionNode): The function.
            in_data (tuple of arrays): Its inputs; None where they were not retained.
            out_grad (tuple of arrays): Gradients of its outputs; None where there are none.
        """

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Called after backward propagation, with the same arguments as `backward_preprocess`."""
