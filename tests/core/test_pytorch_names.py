"""Names of PyTorch's are not there, as before, and say what to write instead: names that are there."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import pytorch_names

X = np.ones((2, 3), "f")
MODEL = kusari.Sequential(L.Linear(3, 2))
OPTIMIZER = kusari.optimizers.SGD()
HAVE = [(kusari.Variable(X), pytorch_names.VARIABLE), (kusari.Parameter(X), pytorch_names.VARIABLE),
        (MODEL, pytorch_names.LINK), (OPTIMIZER, pytorch_names.OPTIMIZER), (kusari, pytorch_names.PACKAGE),
        (F, pytorch_names.FUNCTIONS), (L, pytorch_names.LINKS)]
FORMS = {"kusari": kusari, "F": F, "L": L, "np": np, "x": kusari.Variable(X), "model": MODEL, "link": L.Linear(3, 2),
         "optimizer": OPTIMIZER, "param": kusari.Parameter(X), "loss": kusari.Variable(X)}


def forms(text: str) -> list[str]:
    """The dotted names of a hint that name something of ours or of NumPy's."""
    return re.findall(rf"\b(?:{'|'.join(FORMS)})(?:\.[A-Za-z_]\w*)+", re.sub(r"\"[^\"]*\"", "", text))


@pytest.mark.parametrize("thing, table", HAVE, ids=lambda x: getattr(x, "__name__", type(x).__name__))
def test_a_name_that_is_not_there_says_what_to_write(thing: Any, table: Mapping[str, str]) -> None:
    for name, text in table.items():
        assert not hasattr(thing, name) and name not in dir(thing), name
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}, which is PyTorch's; here: {text}")):
            getattr(thing, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = thing.nonsense


@pytest.mark.parametrize("table", [name for name in vars(pytorch_names) if name.isupper() and name[0] != "_"])
def test_what_to_write_is_there(table: str) -> None:
    for name, text in getattr(pytorch_names, table).items():
        for form in forms(text):
            found: Any = FORMS[form.partition(".")[0]]
            for part in form.split(".")[1:]:
                if part in ("gamma", "beta", "update_rule"):  # of normalizations, and of parameters once set up
                    break
                found = getattr(found, part)
        assert text, name


class Own(kusari.Chain):
    """Defines names of PyTorch's in all the places that there are."""

    eval = "class"

    def __init__(self) -> None:
        super().__init__()
        self.train = "instance"
        with self.init_scope():
            self.weight = kusari.Parameter(X)

    @property
    def bias(self) -> str:
        return "property"


class Behind:
    """Stands behind `Chain` in the bases."""

    def train(self) -> str:
        return f"behind {type(self).__name__}"

    modules = "value"


class Both(kusari.Chain, Behind):
    def train(self) -> str:
        return super().train() + "!"


def test_names_that_users_define_win() -> None:
    own = Own()
    assert (own.eval, own.train, own.bias) == ("class", "instance", "property")
    assert [name for name, _ in own.namedparams()] == ["/weight"] and "weight" in dir(own)
    assert (Both().train(), Both().modules, Both.modules) == ("behind Both!", "value", "value")
    own.add_persistent("state_dict", 1)
    assert own.state_dict == 1 and own.copy().state_dict == 1


def test_tests_for_names_compile() -> None:
    class Asks(Own):
        @kusari.static_graph(strict=True)
        def forward(self, x: Any) -> Any:
            h = x if hasattr(self, "modules") else F.relu(self.weight * x)
            return h * 2 if getattr(self, "zero_grad", None) is None else h

    model = Asks()
    for _ in range(3):
        y = model(X)
    assert (y.array == 2 * X).all()
    assert "1 schedule " in str(model.static.explain())
    model.modules = 1
    assert (model(3 * X) == 6 * X).all()
