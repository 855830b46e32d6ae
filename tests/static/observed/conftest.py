"""Rows that are known to be wrong, each with the reason: a row that becomes right fails until it is taken out here."""
from __future__ import annotations

import pytest

_RANKS = "the rank of a result counts the static call as one function"
_TUPLES = "a tuple from outside with a list in it is handed out as an equal one"
KNOWN: dict[str, str] = {
    **{f"test_gradients.py::test_afterwards[{how}-ranks]": _RANKS
       for how in ("always", "later", "parameters changed", "after a step", "train is False")},
    "test_gradients.py::test_inside[stored_and_cut]": "a result that is cut keeps its gradient",
    "test_library_objects.py::test_programs[scale_of_losses]": "an optimizer's private attribute",
    "test_memory_of_arrays.py::test_programs[shapes_of_parameters]": "gradients of parameters reshaped in place",
    "test_odd_objects.py::test_objects[returned-tuple]": _TUPLES,
    "test_odd_objects.py::test_objects[stored-tuple]": _TUPLES,
    "test_optimizers.py::test_optimizers[True-a rule's values]": "values of a rule's hyperparameters that count",
    "test_optimizers.py::test_optimizers[False-a rule's values]": "values of a rule's hyperparameters that count",
    "test_values_in_places.py::test_values_in_places[configuration-variable]": "a Variable in the configuration",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        reason = KNOWN.get(f"{item.path.name}::{item.name}")
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
