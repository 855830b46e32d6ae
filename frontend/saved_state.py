"""The state of objects and of random numbers, to be put back after a call that is made once more."""
from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ._random_state import state_of
from .epochs import Attributes
from .variable import Variable

_PYTHONS: Any = random.random.__self__  # type: ignore[attr-defined]  # the generator of the module's functions
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)


class SavedState:
    """Namespaces, containers, their arrays, Variables, and random numbers as they are now.

    Random numbers are NumPy's, those of the module ``random``, and those of generators in namespaces and containers.

    Invariant: ``restore`` puts all of it back as it was when this object was made, arrays in place, but for the names
    in ``apart``.
    """

    def __init__(self, namespaces: Iterable[dict[str, Any]], containers: Iterable[Any] = (),
                 variables: Iterable[Variable] = (), apart: Collection[str] = ()) -> None:
        self._apart = apart
        self._containers = [(x, x.copy()) for x in containers if isinstance(x, (list, dict, set))]
        self.random = np.random.get_state()
        self._namespaces = [(d, {k: v for k, v in d.items() if k not in apart}) for d in namespaces]
        self._variables = [(v, v._array, v.grad) for v in {id(v): v for v in variables}.values()]
        held = [entries.values() if isinstance(entries, dict) else entries
                for _, entries in (*self._namespaces, *self._containers)]
        arrays = [a for values in (*held, *(own for _, *own in self._variables)) for a in values]
        generators = {id(x): x for values in held for x in values if isinstance(x, _GENERATORS)}
        self._generators = [state_of(x) for x in (_PYTHONS, *generators.values())]
        self._copies = {id(a): (a, a.copy()) for a in arrays if isinstance(a, np.ndarray)}

    def restore(self) -> None:
        """Put everything back."""
        np.random.set_state(self.random)
        for put_back in self._generators:
            if put_back is not None:
                put_back()
        for container, before in self._containers:
            container.clear()
            container.extend(before) if isinstance(container, list) else container.update(before)
        for namespace, entries in self._namespaces:
            for key in [k for k in namespace if k not in entries and k not in self._apart]:
                del namespace[key]
            for key, value in entries.items():
                if namespace.get(key) is not value:
                    namespace[key] = value
        for variable, array, grad in self._variables:
            if variable._array is not array:
                variable.array = array
            if variable.grad is not grad:
                variable.grad = grad
        for array, copy in self._copies.values():
            if array.flags.writeable:
                array[...] = copy
        Attributes.version = object()
