"""Test cases that are run with every one of many sets of attributes."""

from __future__ import annotations

import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["from_pytest_parameterize", "parameterize", "parameterize_pytest", "product", "product_dict"]

#: The cases that `parameterize` has made of a class.
CASES: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()


def product_dict(*parameters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All ways to take one dictionary from each list, the dictionaries joined.

    >>> kusari.testing.product_dict([{"a": 1}, {"a": 2}], [{"b": 3, "c": 4}])
    [{'a': 1, 'b': 3, 'c': 4}, {'a': 2, 'b': 3, 'c': 4}]
    """
    return [{name: value for part in parts for name, value in part.items()} for parts in itertools.product(*parameters)]


def product(parameter: Mapping[str, Sequence[Any]] | Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """All ways to take one value for every name.

    Args:
        parameter: The values by name, where ``'a,b'`` names the items of tuples; or a list of lists of dictionaries, as
            `product_dict` takes them one by one.

    >>> kusari.testing.product({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    if isinstance(parameter, Mapping):
        return product_dict(*([_named(name, value) for value in values] for name, values in parameter.items()))
    return product_dict(*parameter)


def _named(names: str, value: Any) -> dict[str, Any]:
    """Return one value under its name, or the items of a tuple under theirs."""
    if "," not in names:
        return {names: value}
    return dict(zip([name.strip() for name in names.split(",")], value, strict=True))


def from_pytest_parameterize(names: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """The dictionaries that `parameterize` takes, of what ``pytest.mark.parametrize`` does.

    >>> kusari.testing.from_pytest_parameterize("a,b", [(1, 2), (3, 4)])
    [{'a': 1, 'b': 2}, {'a': 3, 'b': 4}]
    """
    return [_named(names, value) for value in values]


def parameterize_pytest(names: str, values: Sequence[Any]) -> Callable[[type], type]:
    """Run the tests of a class once for every value, as ``pytest.mark.parametrize`` would, with attributes.

    Args:
        names: The name of an attribute, or several with commas between them.
        values: Its values, or tuples of theirs.
    """
    return parameterize(*from_pytest_parameterize(names, values))


def parameterize(*params: Mapping[str, Any]) -> Callable[[type], type]:
    """Run the tests of a class once for every dictionary, with its entries as attributes.

    The tests move to one subclass for each, in the same module: ``TestSum_param_0_{axis=1}`` and so on. Applied twice,
    it makes a case of every pair.

    Args:
        params: The attributes, often made by `product`.
    """

    def decorate(cls: type) -> type:
        module = sys.modules[cls.__module__]
        cases: list[type] = []
        for base in CASES.get(cls, [cls]):  # the cases of a decorator below multiply
            tests = {name: inspect.getattr_static(base, name) for name in dir(base) if name.startswith("test")}
            for name in tests:
                setattr(base, name, None)  # the class itself stays as the base, where super() looks for it
            for index, attributes in enumerate(params):
                shown = ", ".join(f"{name}={value!r}" for name, value in attributes.items())
                name = f"{base.__name__}_param_{index}_{{{shown if len(shown) <= 60 else shown[:57] + '...'}}}"
                given = {name: staticmethod(value) if isinstance(value, FunctionType) else value
                         for name, value in attributes.items()}
                members = {**tests, **given, "__module__": cls.__module__, "__doc__": cls.__doc__}
                cases.append(type(base)(name, (base,), members))
                setattr(module, name, cases[-1])
        CASES[cls] = cases
        return cls

    return decorate
