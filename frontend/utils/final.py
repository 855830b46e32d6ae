"""Methods that are not to be overridden."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["enable_final", "final"]


def final(*args: Any, **kwargs: Any) -> Any:
    """Mark a method as final, in a class that derives from `enable_final`.

    Args:
        action: An error that overriding raises, `TypeError` by default, or a category of warnings.

    >>> class Base(kusari.utils.enable_final()):
    ...     @kusari.utils.final
    ...     def run(self): ...
    >>> class Derived(Base):
    ...     def run(self): ...
    Traceback (most recent call last):
        ...
    TypeError: Derived overrides run, which is final
    """

    def mark(method: Callable[..., Any], action: Any = TypeError) -> Callable[..., Any]:
        vars(method)["_final"] = action
        return method

    return mark(*args) if args else lambda method: mark(method, **kwargs)


class _Final:
    """The base of classes with final methods."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            action = getattr(getattr(super(cls, cls), name, None), "_final", None)
            if action is None:
                continue
            message = f"{cls.__name__} overrides {name}, which is final"
            if not issubclass(action, Warning):
                raise action(message)
            warnings.warn(message, action, stacklevel=3)


def enable_final(base: Any = (), meta_base: Any = ()) -> type:
    """Return a base of classes in which `final` counts.

    Args:
        base: The bases of that base: a class or several.
        meta_base: Metaclasses that it has, one or several.
    """
    bases = tuple(base) if isinstance(base, (list, tuple)) else (base,)
    metas = tuple(meta_base) if isinstance(meta_base, (list, tuple)) else (meta_base,)
    made: Any = type("Meta", (*metas, type), {}) if metas else type
    return made("Final", (_Final, *bases), {})
