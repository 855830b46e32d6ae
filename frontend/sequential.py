"""`Sequential`, links and functions called one after the other."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .link import ChainList, Link
from .link.chain import indented
from .link.namespace import entries_of

__all__ = ["Sequential"]


class Sequential(ChainList):
    """A model that calls its layers, links or any callables, one after the other.

    A tuple returned by one layer becomes the positional arguments of the next.  All operations of Python lists
    are there; only the links among the layers are children.  Their names in paths are those of Chainer 7, which are not
    in the order of the layers where there are three links or more.

    Args:
        layers: Callables.

    Raises:
        ValueError: One of them is not callable.

    >>> model = kusari.Sequential(L.Linear(3, 4), F.relu, L.Linear(4, 2))
    >>> model(np.ones((5, 3), "float32")).shape
    (5, 2)
    >>> [path for path, _ in model.namedparams()]
    ['/0/W', '/0/b', '/1/W', '/1/b']
    """

    _layers: list[Any]

    def __init__(self, *layers: Callable[..., Any]) -> None:
        super().__init__()
        self._replace_layers(layers)

    def _replace_layers(self, layers: Iterable[Any]) -> None:
        """Make ``layers`` the layers, and the links among them the children."""
        entries_of(self)["_layers"] = []
        self._replace_children(())
        for layer in layers:
            self.append(layer)

    def forward(self, *x: Any) -> Any:
        """Call the layers in order.

        Raises:
            RuntimeError: There are no layers.
        """
        if not self._layers:
            raise RuntimeError("Sequential does not have any layer. Give some to Sequential(...) or append() them.")
        for layer in self._layers:
            x = layer(*x) if isinstance(x, tuple) else layer(x)
        return x

    def __str__(self) -> str:
        if not self._layers:
            return "Sequential()"
        return f"{type(self).__name__}(\n{indented((str(i), _shown(layer)) for i, layer in enumerate(self._layers))})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        if any(getattr(layer, "__name__", "") == "<lambda>" for layer in self._layers):
            raise ValueError(
                "This Sequential has a lambda function among its layers, which cannot be pickled. "
                "Use functools.partial or a named function in its place, or the package dill."
            )
        return super().__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        copied = type(self).__new__(type(self))
        entries_of(copied).update(entries_of(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # Not through __reduce_ex__, so that lambdas do not keep models from being copied.
        from copy import deepcopy

        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        entries_of(copied).update(deepcopy(entries_of(self), memo))
        return copied

    def _share(self) -> Any:
        copied = Link._share(self)
        copied._replace_layers(layer.copy("share") if isinstance(layer, Link) else layer for layer in self._layers)
        return copied

    # The list

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._layers)

    def __contains__(self, layer: object) -> bool:
        return layer in self._layers

    def index(self, layer: Any, start: int | None = None, end: int | None = None) -> int:
        """Return the first place of a layer, from ``start`` to ``end``."""
        return self._layers.index(layer, start or 0, len(self._layers) if end is None else end)

    def count(self, layer: Any) -> int:
        """Return how often a layer is there."""
        return self._layers.count(layer)

    def pop(self, i: int = -1) -> Any:
        """Remove a layer, by default the last one, and return it."""
        return super().pop(i)

    def __getitem__(self, index: Any) -> Any:
        """Return the layer at ``index``, or a list of those in a slice."""
        return self._layers[index]

    def __setitem__(self, index: Any, layer: Any) -> None:
        if isinstance(index, slice):
            layers = list(self._layers)
            layers[index] = layer
            self._replace_layers(layers)
            return
        if index >= len(self._layers):
            raise ValueError(f"index {index} should be less than {len(self._layers)}, the number of layers")
        _check_callable(layer)
        del self[index]
        self.insert(index % (len(self._layers) + 1), layer)

    def __delitem__(self, index: Any) -> None:
        removed = self._layers[index]
        layers = list(self._layers)
        del layers[index]
        entries_of(self)["_layers"] = layers
        gone = removed if isinstance(index, slice) else [removed]
        children = list(self._children)
        for link in gone:
            if isinstance(link, Link):
                children.pop(next(i for i, child in enumerate(children) if child is link))
        self._replace_children(children)

    def __add__(self, other: Any) -> Sequential:
        self._check_sequential(other)
        return Sequential(*self._layers, *other._layers)

    def __iadd__(self, other: Any) -> Sequential:
        self._check_sequential(other)
        self.extend(other)
        return self

    @staticmethod
    def _check_sequential(other: Any) -> None:
        if not isinstance(other, Sequential):
            raise ValueError(f"add (+) operator supports only objects of Sequential class, but {type(other)} is given.")

    def insert(self, i: int, layer: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Insert a layer before the one at ``i``.

        Its place among the children is the one it has in Chainer 7, which names it in files: behind the *first* link
        before it, at the position after that link's position among all layers. So of three links that are appended the
        second is called ``2`` and the third ``1``. Were the names the other way round, a file from there would not
        load, or, where the shapes agree, load into the wrong layers.

        Raises:
            IndexError: there is no such place.
            ValueError: the layer is not callable.
        """
        size = len(self._layers)
        if not -size <= i <= size:
            raise IndexError(f"index {i} is out of range for {size} layers")
        _check_callable(layer)
        i += size if i < 0 else 0
        entries_of(self)["_layers"] = [*self._layers[:i], layer, *self._layers[i:]]
        children = list(self._children)
        if isinstance(layer, Link):
            first = next((k for k, other in enumerate(self._layers[:i]) if isinstance(other, Link)), 0)
            children.insert(0 if i == 0 else first + 1, layer)
        self._replace_children(children)  # also tells replays that the layers are others

    def append(self, layer: Any) -> None:
        """Append a layer."""
        self.insert(len(self._layers), layer)

    def extend(self, sequential: Iterable[Any]) -> None:
        """Append the layers of another Sequential, or of a list."""
        for layer in list(sequential):
            self.append(layer)

    def clear(self) -> None:
        """Remove all layers."""
        self._replace_layers(())

    def remove(self, layer: Any) -> None:
        """Remove the first layer that is ``layer``.

        Raises:
            ValueError: There is none.
        """
        if layer not in self._layers:
            raise ValueError(f"There is no layer object that is same as {layer!r}")
        del self[self._layers.index(layer)]

    def remove_by_layer_type(self, type_name: str) -> None:
        """Remove all layers whose class (links) or function is called ``type_name``."""
        for index in range(len(self._layers) - 1, -1, -1):
            if _type_name(self._layers[index]) == type_name:
                del self[index]

    def count_by_layer_type(self, type_name: str) -> int:
        """Return how many layers have a class (links) or function called ``type_name``."""
        return sum(_type_name(layer) == type_name for layer in self._layers)

    def flatten(self) -> Sequential:
        """Return a Sequential of the same layers, those of nested Sequentials in their place."""
        flat = Sequential()
        for layer in self._layers:
            if isinstance(layer, Sequential):
                flat.extend(layer.flatten())
            else:
                flat.append(layer)
        return flat


def _check_callable(layer: Any) -> None:
    if not callable(layer):
        raise ValueError(f"All elements of the argument should be callable. But given {layer!r} is not callable.")


def _shown(layer: Any) -> str:
    """Write a layer; a lambda as it stands in its file, where that is there and has one in the line."""
    if getattr(layer, "__name__", None) != "<lambda>":
        return str(layer)
    lines = linecache.getlines(layer.__code__.co_filename)
    try:
        found = [node for node in ast.walk(ast.parse("".join(lines)))
                 if isinstance(node, ast.Lambda) and node.lineno == layer.__code__.co_firstlineno]
    except SyntaxError:
        found = []
    text = ast.get_source_segment("".join(lines), found[0]) if len(found) == 1 else None
    return text or str(layer)


def _type_name(layer: Any) -> str:
    return type(layer).__name__ if isinstance(layer, Link) else getattr(layer, "__name__", type(layer).__name__)
