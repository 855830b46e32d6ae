"""The mode in which compiled code may run: configuration and observers of the thread."""
from __future__ import annotations

from ..configuration import config
from ..epochs import Shared
from ..tape import current, watched
from .errors import is_from_handler
from .source import Source


def may_run(*, gradients: bool = False, following: bool = False, training: bool = False) -> bool:
    """Whether compiled code may run now: it is wanted, and neither a trace nor hooks nor debug mode see each function.

    Code that computes ``gradients`` runs only where define-by-run would keep a graph for them; code for functions that
    are applied to results of static ones (``following``) may be switched off for itself; a function may be static in
    ``training`` only.
    """
    return (config.use_static_graph and not config.debug and not (current.__dict__ and watched())
            and (not gradients or config.enable_backprop) and (not following or config.follow_static)
            and (not training or config.train))


class Mode:
    """The mode in which a fast path is made; generated code asks whether it is the same."""

    def __init__(self) -> None:
        self._shared, self._own = Shared.version, dict(config.__dict__)

    def test(self, source: Source) -> str:
        """Return the test that the configuration is another, or that something watches this thread."""
        shared, own = f"{source.name(Shared, 'Shared')}.version", f"{source.name(config, 'config')}.__dict__"
        other = f"{own} != {source.name(self._own, 'own')}" if self._own else own
        return (f"{other} or {shared} is not {source.name(self._shared, 'shared')} or "
                f"{source.name(current, 'current')}.__dict__ and {source.name(watched, 'watched')}()")

    def forget(self) -> None:
        """Be a mode that is never current."""
        self._shared = object()

    def is_current(self) -> bool:
        """Whether the configuration is this one, so that another fast path would do no more."""
        try:
            return self._shared is Shared.version and self._own == config.__dict__
        except Exception as error:  # a user's own entry cannot be compared: an array, a Variable
            if is_from_handler(error):
                raise
            return False
