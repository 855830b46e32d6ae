"""Link hooks: callbacks around the forward computation of links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import tape as _tape

__all__ = ["ForwardPostprocessArgs", "ForwardPreprocessArgs", "LinkHook", "call_with_hooks", "get_link_hooks"]


def get_link_hooks() -> dict[str, LinkHook]:
    """Return the hooks that this thread has entered with ``with``, by name."""
    current = _tape.current
    if current.link_hooks is None:
        current.link_hooks = {}
    return current.link_hooks


class ForwardPreprocessArgs:
    """The argument of :meth:`LinkHook.forward_preprocess`.

    Attributes:
        link: The link that is called.
        forward_name: Name of its forward method.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    def __init__(self, link: Any, forward_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.link = link
        self.forward_name = forward_name
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join(f'{k}={v!r}' for k, v in vars(self).items())}>"


class ForwardPostprocessArgs(ForwardPreprocessArgs):
    """The argument of :meth:`LinkHook.forward_postprocess`: also ``out``, the return value."""

    def __init__(self, link: Any, forward_name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        super().__init__(link, forward_name, args, kwargs)
        self.out = out


class LinkHook:
    """Base class of callbacks that run before and after the forward computation of links.

    Used in a ``with`` statement a hook applies to every link called in this thread; registered by
    :meth:`Link.add_hook <kusari.Link.add_hook>`, to that link alone.

    >>> class Names(kusari.LinkHook):
    ...     name = "Names"
    ...     def forward_preprocess(self, args):
    ...         print(type(args.link).__name__)
    >>> with Names():
    ...     y = kusari.Sequential(L.Linear(2, 3))(np.ones((1, 2), "float32"))
    Sequential
    Linear
    """

    name = "LinkHook"

    def __enter__(self) -> LinkHook:
        if _tape.current.tape is not None:
            _tape.current.tape.note(f"the hook {self.name} is entered inside, and replays would not call it; enter it "
                                    "outside the static function")
        hooks = get_link_hooks()
        if self.name in hooks:
            raise KeyError(f"hook {self.name} already exists in this thread; leave its with block first, or rename it")
        self.added(None)  # which may refuse
        hooks[self.name] = self
        return self

    def __exit__(self, *exc: object) -> None:
        get_link_hooks().pop(self.name).deleted(None)

    def added(self, link: Any) -> None:
        """Called when the hook is registered, to ``link`` or (None) by a ``with`` statement."""

    def deleted(self, link: Any) -> None:
        """Called when the hook is unregistered, from ``link`` or (None) at the end of a ``with`` block."""

    def forward_preprocess(self, args: ForwardPreprocessArgs) -> None:
        """Called before the forward computation."""

    def forward_postprocess(self, args: ForwardPostprocessArgs) -> None:
        """Called after the forward computation."""

    def _abandon(self, args: ForwardPreprocessArgs) -> None:
        """Called when the forward computation has raised: what was changed for its time is put back."""


def call_with_hooks(
    link: Any,
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    local: dict[str, LinkHook] | None,
) -> Any:
    """Run ``forward`` with this thread's hooks around it, then the link's own ones."""
    hooks = (*get_link_hooks().values(), *(local or {}).values())
    before = ForwardPreprocessArgs(link, "forward", args, kwargs)
    for hook in hooks:
        hook.forward_preprocess(before)
    try:
        out = forward(*args, **kwargs)
    except BaseException:
        for hook in hooks:
            hook._abandon(before)
        raise
    after = ForwardPostprocessArgs(link, "forward", args, kwargs, out)
    for hook in hooks:
        hook.forward_postprocess(after)
    return out
