"""Links that keep Variables from call to call."""

from __future__ import annotations

from typing import Any

from ... import tape
from ...link import Chain
from ...variable import Variable

__all__ = ["StatefulChain", "zeros"]


def zeros(link: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of zeros on the link's device, which a traced call may use."""
    with link.device.create_context():
        return tape.constant(link.xp.zeros(shape, dtype))


class StatefulChain(Chain):
    """A chain whose attributes ``_states`` are its state: a Variable, or None before the first call.

    The state is no persistent value: it is copied with the link and sent to devices with it, but not saved.
    """

    _states: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.reset_state()

    def reset_state(self) -> None:
        """Forget the state: the next call begins a sequence."""
        for name in self._states:
            setattr(self, name, None)

    def _set(self, **states: Any) -> None:
        for name, state in states.items():
            if not isinstance(state, Variable):
                raise TypeError(f"{type(self).__name__}.set_state: {name} must be a Variable, got "
                                f"{type(state).__name__}; wrap the array, or call reset_state()")
        for name, state in states.items():
            state.to_device(self.device)
            setattr(self, name, state)

    def device_resident_accept(self, visitor: Any) -> None:
        """Send the states, too."""
        super().device_resident_accept(visitor)
        for name in self._states:
            state = getattr(self, name)
            if state is not None:
                visitor.visit_variable(state)

