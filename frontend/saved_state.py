"""The state of objects and of NumPy's random numbers, to be put back after a call that is made once more."""
from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from .epochs import Attributes
from .variable import Variable


class SavedState:
    """Namespaces, containers, their arrays, Variables, and NumPy's random numbers as they are now.

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
        self._copies = {id(a): (a, a.copy()) for a in arrays if isinstance(a, np.ndarray)}

    def restore(self) -> None:
        """Put everything back."""
        np.random.set_state(self.random)
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
