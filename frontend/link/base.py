"""`Link`, the building block that holds parameters."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import backend, initializers
from .. import link_hook as _link_hook
from ..device_resident import DeviceResident, DeviceResidentsVisitor
from ..epochs import Attributes
from ..parameter import Parameter
from ..pytorch_keywords import answer_keywords, explain
from ..pytorch_names import LINK, answer
from ..tape import current as _current
from ..utils.arrays import is_array, no_array
from .namespace import entries_of
from .static_view import StaticView
from .tree import tree
from .walk import Names, WatchedNamespace, all_params, changed

if TYPE_CHECKING:
    from ..sequential import Sequential

__all__ = ["Link"]

MODES = ("init", "copy", "share")


def check_mode(mode: str) -> None:
    """Raise ValueError unless ``mode`` says how links are copied."""
    if mode not in MODES:
        raise ValueError(f"The 'mode' argument should be either 'init', 'copy', or 'share'. But {mode!r} was given.")


class _InitScope:
    """The context manager of ``init_scope()``; scopes of one link nest."""

    __slots__ = ("_link", "_outer")

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        entries = entries_of(self._link)
        if "_params" not in entries:
            raise not_initialized(self._link)
        self._outer = entries["_within_init_scope"]
        entries["_within_init_scope"] = True

    def __exit__(self, *exc: object) -> None:
        entries_of(self._link)["_within_init_scope"] = self._outer


def not_initialized(link: Link) -> RuntimeError:
    return RuntimeError(
        f"Link.__init__() has not been called. Call super().__init__() first in {type(link).__name__}.__init__()."
    )


class _StaticView:
    """Gives links a view of what their static functions did; an attribute of that name set by a user wins."""

    def __get__(self, link: Link | None, kind: type | None = None) -> Any:
        return self if link is None else StaticView(link)


class _ScheduleView(_StaticView):
    """The same by Chainer's names: there only once a static function of the link has been called."""

    def __get__(self, link: Link | None, kind: type | None = None) -> Any:
        if link is not None and not StaticView(link).called():
            raise AttributeError(f"no static function of this {type(link).__name__} has been called")
        return super().__get__(link, kind)


class Link(WatchedNamespace, DeviceResident):
    """A building block of models that holds parameters and persistent values.

    Parameters are registered by assignment inside ``init_scope()``:

    >>> class Affine(kusari.Link):
    ...     def __init__(self, n_in, n_out):
    ...         super().__init__()
    ...         with self.init_scope():
    ...             self.W = kusari.Parameter(kusari.initializers.Normal(), (n_out, n_in))
    ...             self.b = kusari.Parameter(0, (n_out,))
    ...     def forward(self, x):
    ...         return F.linear(x, self.W, self.b)
    >>> link = Affine(3, 2)
    >>> [name for name, _ in link.namedparams()]
    ['/W', '/b']
    >>> link(np.ones((4, 3), "float32")).shape
    (4, 2)

    Args:
        params: Shapes, or ``(shape, dtype)``, of parameters to register by their names; they hold NaN until set.

    Attributes:
        name: The name under which a chain holds this link; None if none does.
    """

    static = _StaticView()
    schedule_manager = static_schedule = _ScheduleView()
    _params: Names
    _persistent: set[str]
    _local_link_hooks: dict[str, _link_hook.LinkHook] | None = None

    def __init__(self, **params: Any) -> None:
        super().__init__()
        entries = entries_of(self)
        entries["_params"] = Names()
        entries["_persistent"] = set()
        entries["_within_init_scope"] = False
        self.name: str | None = None
        for name, value in params.items():
            if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], (int, np.integer)):
                self.add_param(name, value[0], value[1])
            else:
                self.add_param(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` with link hooks around it."""
        if "_params" not in entries_of(self):
            raise not_initialized(self)
        watching = _current.__dict__
        if watching and _current.tape is not None:
            _current.tape.link(self)
        try:
            forward = self.forward  # pyright: ignore[reportAttributeAccessIssue]
        except AttributeError:
            # A mix-in after Link in the bases may define __call__.
            forward = getattr(super(), "__call__", None)  # noqa: B004 (it is called)
            if forward is None or "forward" in dir(self):
                raise
        local = self._local_link_hooks
        if local or watching and _current.link_hooks:
            return _link_hook.call_with_hooks(self, forward, args, kwargs, local)
        try:
            return forward(*args, **kwargs) if kwargs else forward(*args)
        except AttributeError as error:
            if (better := no_array(error, type(self).__name__)) is not None:
                raise better from None
            raise
        except TypeError as error:
            explain(error)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter) and entries_of(self).get("_within_init_scope"):
            value.name = name
            self._params.add(name)
            self._persistent.discard(name)
        object.__setattr__(self, name, value)
        Attributes.version = object()

    def __delattr__(self, name: str) -> None:
        self._params.discard(name)
        self._persistent.discard(name)
        object.__delattr__(self, name)
        Attributes.version = object()

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.printable_specs)})"

    def _repr_html_(self) -> str:
        return tree(self).html

    @property
    def printable_specs(self) -> Iterator[tuple[str, Any]]:
        """``(name, value)`` of each setting that ``str(link)`` shows."""
        return iter(())

    # Registration

    @property
    def within_init_scope(self) -> bool:
        """Whether the link is inside a ``with link.init_scope():`` block."""
        return entries_of(self).get("_within_init_scope", False)

    def init_scope(self) -> Any:
        """Return a context manager in which assigned parameters (in chains, links too) are registered."""
        return _InitScope(self)

    def add_param(
        self, name: str, shape: int | Sequence[int] | None = None, dtype: Any = np.float32, initializer: Any = None
    ) -> None:
        """Register a parameter.

        Args:
            name: Its name, also as an attribute.
            shape: Its shape; None leaves it uninitialized.
            dtype: Its dtype, where ``initializer`` does not say.
            initializer: A number, array or initializer; by default the parameter holds NaN.

        Raises:
            AttributeError: The link has an attribute of this name.
        """
        if "_params" not in entries_of(self):
            raise not_initialized(self)
        if name in entries_of(self):
            raise AttributeError(f"cannot register a new parameter {name}: attribute exists in {type(self).__name__}")
        if initializer is None:
            initializer = initializers.NaN(dtype)
        with self.init_scope():
            setattr(self, name, Parameter(initializer, shape))

    def add_persistent(self, name: str, value: Any) -> None:
        """Register a persistent value: an attribute that serializers save with the parameters.

        Raises:
            AttributeError: The link has an attribute of this name.
        """
        if name in entries_of(self):
            raise AttributeError(
                f"cannot register a new persistent value {name}: attribute exists in {type(self).__name__}"
            )
        self._persistent.add(name)
        self._params.discard(name)
        setattr(self, name, value)

    def register_persistent(self, name: str) -> None:
        """Register an existing attribute as a persistent value (no longer as a parameter, if it was one).

        Raises:
            AttributeError: There is no such attribute.
        """
        if not hasattr(self, name):
            raise AttributeError(
                f"cannot register non-existent attribute {name} as a persistent value of {type(self).__name__}"
            )
        self._persistent.add(name)
        self._params.discard(name)

    # The hierarchy

    def params(self, include_uninit: bool = True) -> Iterator[Parameter]:
        """Yield the parameters of the link and of those below it, sorted by name in each.

        Args:
            include_uninit: Whether to yield parameters whose shape is not known yet.
        """
        entries = entries_of(self)
        for name in sorted(self._params):
            if include_uninit or entries[name].is_initialized:
                yield entries[name]

    def namedparams(self, include_uninit: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield ``(path, parameter)``, as :meth:`params`; paths look like ``/child/W``."""
        entries = entries_of(self)
        for name in sorted(self._params):
            if include_uninit or entries[name].is_initialized:
                yield "/" + name, entries[name]

    def children(self) -> Iterator[Link]:
        """Yield the links directly below this one."""
        return iter(())

    def links(self, skipself: bool = False) -> Iterator[Link]:
        """Yield the link itself (unless ``skipself``) and all links below it."""
        if not skipself:
            yield self

    def namedlinks(self, skipself: bool = False) -> Iterator[tuple[str, Link]]:
        """Yield ``(path, link)``, as :meth:`links`; the link itself has the path ``/``."""
        if not skipself:
            yield "/", self

    def count_params(self) -> int:
        """Return the number of scalars in all parameters; warns about each uninitialized one."""
        size = 0
        for path, param in self.namedparams():
            if param.is_initialized:
                size += param.size
            else:
                warnings.warn(
                    f"Parameter '{path}' has not been initialized, so the resulting count will not include "
                    "the number of parameters in it.",
                    UserWarning,
                    stacklevel=2,
                )
        return size

    # Copies

    @classmethod
    def from_params(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a link made of given arrays; of the library's, linear, convolutional and embedding layers do that.

        Raises:
            NotImplementedError: The class does not.
        """
        raise NotImplementedError(f"{cls.__name__} does not implement from_params: make it and set its parameters")

    def copy(self, mode: str = "share") -> Any:
        """Return a copy of the link and of all links below it.

        Args:
            mode: ``'share'``: new parameters on the same arrays, also those to come, and no ``name``; ``'copy'``: a
                deep copy; ``'init'``: a deep copy whose parameters are initialized anew, with gradients of NaN.
        """
        check_mode(mode)
        if mode == "share":
            return self._share()
        copied = copy.deepcopy(self)
        if mode == "init":
            for param in copied.params(include_uninit=False):
                param.initialize(param.shape)
                param.grad = param.xp.full_like(param.array, np.nan)
        return copied

    def _share(self) -> Any:
        copied = copy.copy(self)
        entries = entries_of(copied)
        entries["_params"] = Names(self._params)
        entries["_persistent"] = set(self._persistent)
        if self._local_link_hooks:
            entries["_local_link_hooks"] = dict(self._local_link_hooks)
        for name in copied._params:
            param = copy.copy(entries[name])
            param.cleargrad()
            entries[name] = param
        copied.name = None
        return copied

    def repeat(self, n_repeat: int, mode: str = "init") -> Sequential:
        """Return a :class:`~kusari.Sequential` of ``n_repeat`` copies; for ``mode`` see :meth:`copy`."""
        from ..sequential import Sequential  # a Sequential is a link

        check_mode(mode)
        return Sequential(*(self.copy(mode) for _ in range(n_repeat)))

    def copyparams(self, link: Link, copy_persistent: bool = True) -> None:
        """Copy all parameters (and persistent values) from ``link``, which has the same structure.

        Raises:
            KeyError: ``link`` lacks one.
        """
        source, target = entries_of(link), entries_of(self)
        for name in sorted(self._params):
            target[name].copydata(_entry(link, name))
        if not copy_persistent:
            return
        for name in sorted(self._persistent):
            old, new = target[name], _entry(link, name)
            if is_array(old) and is_array(new):
                old[...] = backend.get_device_from_array(old).send(new)
            else:
                target[name] = copy.deepcopy(source[name])
                changed()

    # Gradients and updates

    def cleargrads(self) -> None:
        """Clear all gradients: ``grad`` of every parameter becomes None."""
        if _current.tape is not None:
            _current.tape.note("cleargrads() inside changes gradients, which replays cannot repeat; "
                                    "call it outside")
        for param in all_params(self):
            param.cleargrad()

    def zerograds(self) -> None:
        """Fill all gradients with zeros; :meth:`cleargrads` is faster (deprecated)."""
        warnings.warn("Link.zerograds is deprecated. Use Link.cleargrads instead.", DeprecationWarning, stacklevel=2)
        for param in all_params(self):
            param.zerograd()

    def addgrads(self, link: Link) -> None:
        """Add the gradients of ``link``, which has the same structure, to those of this link."""
        entries = entries_of(self)
        for name in sorted(self._params):
            entries[name].addgrad(_entry(link, name))

    def enable_update(self) -> None:
        """Let optimizers change all parameters below this link (see :meth:`disable_update`)."""
        self._set_enabled(True)

    def disable_update(self) -> None:
        """Keep optimizers from changing the parameters below this link, until :meth:`enable_update`."""
        self._set_enabled(False)

    def _set_enabled(self, enabled: bool) -> None:
        for param in self.params():
            rule = param.update_rule
            if rule is not None:
                rule.enabled = enabled

    @property
    def update_enabled(self) -> bool:
        """Whether an optimizer would change at least one parameter below this link."""
        return any(param.update_rule is not None and param.update_rule.enabled for param in self.params())

    def device_resident_accept(self, visitor: DeviceResidentsVisitor) -> None:
        """Show a visitor what this link and its children hold; to be extended for arrays that are not registered.

        >>> class Table(kusari.Link):
        ...     table = np.eye(3)
        ...     def device_resident_accept(self, visitor):
        ...         super().device_resident_accept(visitor)
        ...         self.table = visitor.visit_array(self.table)
        """
        super().device_resident_accept(visitor)
        entries = entries_of(self)
        for name in self._params:
            visitor.visit_variable(entries[name])
        for name in self._persistent:
            if is_array(entries[name]):
                entries[name] = visitor.visit_array(entries[name])
        changed()
        for link in self.children():
            link.device_resident_accept(visitor)

    # Hooks

    @property
    def local_link_hooks(self) -> dict[str, _link_hook.LinkHook]:
        """The hooks registered to this link, by name."""
        if self._local_link_hooks is None:
            self._local_link_hooks = {}
        return self._local_link_hooks

    def add_hook(self, hook: _link_hook.LinkHook, name: str | None = None) -> Link:
        """Register a link hook, as ``name`` or its own name; returns the link.

        Raises:
            KeyError: The link has a hook of this name.
        """
        name = hook.name if name is None else name
        hooks = self.local_link_hooks
        if name in hooks:
            raise KeyError(f"Hook {name} already exists in {type(self).__name__}; give add_hook() another name")
        hooks[name] = hook
        Attributes.version = object()
        hook.added(self)
        return self

    def delete_hook(self, name: str) -> None:
        """Unregister the link hook of this name.

        Raises:
            KeyError: There is none.
        """
        if name not in self.local_link_hooks:
            raise KeyError(f"Hook {name} does not exist in {type(self).__name__}")
        self.local_link_hooks.pop(name).deleted(self)

    # Serialization

    def serialize(self, serializer: Any) -> None:
        """Save or load parameters and persistent values, each under its name."""
        entries = entries_of(self)
        for name in sorted(self._params):
            param = entries[name]
            value = serializer(name, param.data if param.is_initialized else None)
            if value is not None and not param.is_initialized:
                param.initialize(value.shape)
                param.data[...] = param.device.send(value)
        for name in sorted(self._persistent):
            entries[name] = serializer(name, entries[name])
        changed()


answer(Link, LINK)
answer_keywords(Link)


def _entry(link: Link, name: str) -> Any:
    try:
        return entries_of(link)[name]
    except KeyError:
        raise KeyError(
            f"{type(link).__name__} has no {name!r}; both links must have the same parameters, values and children"
        ) from None
