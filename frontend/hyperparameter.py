"""Hyperparameters of optimizers and update rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Hyperparameter", "HyperparameterProxy"]


class Hyperparameter:
    """A set of hyperparameters; what it lacks is looked up in its parent.

    Args:
        parent: Where missing entries are looked up, normally the optimizer's for an update rule's.

    >>> common = kusari.optimizer.Hyperparameter()
    >>> common.lr = 0.1
    >>> own = kusari.optimizer.Hyperparameter(common)
    >>> own.momentum = 0.9
    >>> own.lr, own
    (0.1, Hyperparameter(lr=0.1, momentum=0.9))
    """

    def __init__(self, parent: Hyperparameter | None = None) -> None:
        self._parent = parent

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        parent = self.__dict__.get("_parent")
        if parent is None or name.startswith("__"):
            known = ", ".join(self.get_dict()) or "none"
            raise AttributeError(f"there is no hyperparameter {name!r}; there are: {known}")
        return getattr(parent, name)

    def __repr__(self) -> str:
        return f"Hyperparameter({', '.join(f'{name}={value}' for name, value in sorted(self.get_dict().items()))})"

    @property
    def parent(self) -> Hyperparameter | None:
        """Where missing entries are looked up."""
        return self._parent

    def get_dict(self) -> dict[str, Any]:
        """Return all entries, inherited ones too, as a dictionary."""
        parent = self.__dict__.get("_parent")
        found = {} if parent is None else parent.get_dict()
        found.update(self.__dict__)
        found.pop("_parent", None)
        return found


class HyperparameterProxy:
    """A class attribute that stands for the entry ``attr_name`` of the instance's ``hyperparam``."""

    def __init__(self, attr_name: str) -> None:
        self._name = attr_name
        self.__doc__ = f"Alias to ``self.hyperparam.{attr_name}``"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else getattr(instance.hyperparam, self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance.hyperparam, self._name, value)
