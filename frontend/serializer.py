"""The interface of serializers: one protocol, ``obj.serialize(serializer)``, saves and loads."""

from __future__ import annotations

from typing import Any

__all__ = ["AbstractSerializer", "Deserializer", "Serializer"]


class AbstractSerializer:
    """The base of serializers and deserializers.

    An object supports both with one method:

    >>> class Counter:
    ...     count = 0
    ...     def serialize(self, serializer):
    ...         self.count = serializer("count", self.count)
    """

    def __getitem__(self, key: str) -> AbstractSerializer:
        """Return the serializer of the part ``key``."""
        raise NotImplementedError(f"{type(self).__name__} must override __getitem__(key)")

    def __call__(self, key: str, value: Any) -> Any:
        """Save ``value`` as ``key``, or load it.

        Args:
            key: Name of the entry.
            value: An array, a scalar, a string or None. Arrays are loaded in place.

        Returns:
            The value, or the loaded one.
        """
        raise NotImplementedError(f"{type(self).__name__} must override __call__(key, value)")


class Serializer(AbstractSerializer):
    """Base class of what saves."""

    def save(self, obj: Any) -> None:
        """Save an object: ``obj.serialize(self)``."""
        obj.serialize(self)


class Deserializer(AbstractSerializer):
    """Base class of what loads."""

    def load(self, obj: Any) -> None:
        """Load into an existing object: ``obj.serialize(self)``."""
        obj.serialize(self)
