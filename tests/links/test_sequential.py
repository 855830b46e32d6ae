"""Sequential: a list of callables whose links are children."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Sequential


def names(model: Sequential) -> list[str]:
    return [getattr(layer, "__name__", None) or type(layer).__name__ for layer in model]


def double(x):
    return 2 * x


def test_forward_passes_tuples_as_arguments() -> None:
    assert Sequential(lambda x: (x, x + 1), lambda x, y: x + y)(3) == 7
    assert Sequential(lambda x: [x, x], len)(3) == 2
    assert Sequential(lambda *xs: xs)(3, 4) == (3, 4)
    with pytest.raises(RuntimeError, match="does not have any layer"):
        Sequential()(3)


def test_children_are_the_links() -> None:
    model = Sequential(L.Linear(3, 4), F.relu, Sequential(F.relu, L.Linear(4, 2)))
    assert [path for path, _ in model.namedparams()] == ["/0/W", "/0/b", "/1/0/W", "/1/0/b"]
    assert [path for path, _ in model.namedlinks()] == ["/", "/0", "/1", "/1/0"]
    assert model(np.ones((5, 3), "f")).shape == (5, 2)
    assert names(model.flatten()) == ["Linear", "relu", "relu", "Linear"]
    assert len(model) == 3 and F.relu in model and model.index(F.relu) == 1 and model.count(F.relu) == 1
    assert model.count_by_layer_type("Linear") == model.count_by_layer_type("relu") == 1
    assert str(model).startswith("Sequential(\n  (0): Linear(in_size=3, out_size=4, nobias=False),\n  (1): <")
    assert str(Sequential()) == "Sequential()"


def test_list_operations() -> None:
    model = Sequential(L.Linear(1, 1), F.relu)
    model.append(double)
    model.insert(1, L.Linear(1, 2))
    assert [path for path, _ in model.namedlinks(True)] == ["/0", "/1"]
    model.extend([F.relu, double])
    model[0] = double
    assert names(model) == ["double", "Linear", "relu", "double", "relu", "double"]
    assert model[1].name == "0" and model[-1] is double and model[:2] == [double, model[1]]
    assert model.pop() is double and model.pop(0) is double
    model.remove(F.relu)
    model.remove_by_layer_type("relu")
    model.reverse()
    assert names(model) == ["double", "Linear"]
    model += Sequential(F.relu)
    assert names(model + Sequential(double)) == ["double", "Linear", "relu", "double"]
    del model[0]
    assert names(model) == ["Linear", "relu"]
    model.clear()
    assert len(model) == 0 and not list(model.links(skipself=True))


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda m: Sequential(3), ValueError),
        (lambda m: m.append(3), ValueError),
        (lambda m: m.insert(0, 3), ValueError),
        (lambda m: m + [double], ValueError),
        (lambda m: m.__iadd__([double]), ValueError),
        (lambda m: m.__setitem__(9, double), ValueError),
        (lambda m: m.remove(F.exp), ValueError),
        (lambda m: m[9], IndexError),
    ],
)
def test_wrong_use_leaves_it_as_it_was(act, error) -> None:
    model = Sequential(L.Linear(1, 1), double)
    with pytest.raises(error):
        act(model)
    assert names(model) == ["Linear", "double"]


@pytest.mark.parametrize("mode", ["share", "copy", "init"])
def test_copies(mode: str) -> None:
    model = Sequential(L.Linear(2, 2), F.relu, lambda x: x)
    other = model.copy(mode)
    assert other[1] is F.relu and other[2] is model[2] and other[0] is not model[0]
    assert other[0] is list(other.links())[1]
    assert (other[0].W.array is model[0].W.array) == (mode == "share")
    assert (other[0].W.array == model[0].W.array).all() == (mode != "init")
    other.append(double)
    assert len(model) == 3
    again = model.repeat(2, mode)
    assert [path for path, _ in again.namedparams()] == ["/0/0/W", "/0/0/b", "/1/0/W", "/1/0/b"]


def test_copyparams_between_models() -> None:
    one, two = Sequential(L.Linear(2, 2), F.relu), Sequential(L.Linear(2, 2), F.relu)
    one.copyparams(two)
    assert (one[0].W.array == two[0].W.array).all()
    with pytest.raises(ValueError, match="1 children"):
        one.copyparams(Sequential())


def test_pickle() -> None:
    model = Sequential(L.Linear(2, 2), double)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert names(other) == names(model) and (other[0].W.array == model[0].W.array).all()
    with pytest.raises(ValueError, match="functools.partial"):
        pickle.dumps(Sequential(lambda x: x))


def test_training_through_it() -> None:
    np.random.seed(0)
    model = Sequential(L.Linear(8), F.relu, L.Linear(1))
    optimizer = kusari.optimizers.Adam(0.05).setup(model)
    x = np.random.randn(32, 4).astype("f")
    y = (x[:, :1] * x[:, 1:2]).astype("f")

    def loss():
        return F.sum((model(x) - y) ** 2) / 32

    first = float(loss().array)
    for _ in range(100):
        optimizer.update(loss)
    assert float(loss().array) < first / 4 and model[0].in_size == 4


def sized(size: int) -> L.Scale:
    return L.Scale(W_shape=(size,))


@pytest.mark.parametrize(("change", "expected"), [
    (lambda s: s.insert(0, sized(9)), [9, 1, 3, 2]), (lambda s: s.insert(2, sized(9)), [1, 9, 3, 2]),
    (lambda s: s.insert(-1, sized(9)), [1, 9, 3, 2]), (lambda s: s.append(sized(9)), [1, 9, 3, 2]),
    (lambda s: s.insert(1, F.tanh), [1, 3, 2]), (lambda s: s.__setitem__(0, sized(9)), [9, 3, 2]),
    (lambda s: s.__setitem__(1, sized(9)), [1, 9, 3, 2]), (lambda s: s.__setitem__(3, sized(9)), [1, 9, 2]),
    (lambda s: s.__delitem__(2), [1, 3]), (lambda s: s.pop(0), [3, 2]), (lambda s: s.reverse(), [3, 1, 2]),
    (lambda s: s.remove_by_layer_type("relu"), [1, 3, 2]), (lambda s: s.extend([sized(8), sized(9)]), [1, 9, 8, 3, 2]),
])
def test_names_of_links_are_those_of_chainers_files(change, expected) -> None:
    """Numbers are Chainer 7.8.1's: links are not always named in the order of the layers."""
    model = Sequential(sized(1), F.relu, sized(2), sized(3))
    change(model)
    assert [child.W.shape[0] for child in model.children()] == expected
    assert [child.name for child in model.children()] == [str(i) for i in range(len(expected))]


def test_a_refused_layer_changes_nothing() -> None:
    model = Sequential(F.relu, sized(1))
    for wrong in (lambda: model.insert(0, 1), lambda: model.__setitem__(1, 1), lambda: model.insert(3, F.relu)):
        with pytest.raises((ValueError, IndexError)):
            wrong()
    assert len(model) == 2 and len(list(model.children())) == 1
