"""Names of PyTorch's are not there, as before, and say what to write instead: names that are there."""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizers, pytorch_keywords, pytorch_names

X = np.ones((2, 3), "f")
MODEL = kusari.Sequential(L.Linear(3, 2))
OPTIMIZER = kusari.optimizers.SGD()
HAVE = [(kusari.Variable(X), pytorch_names.VARIABLE), (kusari.Parameter(X), pytorch_names.VARIABLE),
        (MODEL, pytorch_names.LINK), (OPTIMIZER, pytorch_names.OPTIMIZER), (kusari, pytorch_names.PACKAGE),
        (F, pytorch_names.FUNCTIONS), (L, pytorch_names.LINKS), (optimizers, pytorch_names.OPTIMIZERS),
        (kusari.cuda, pytorch_names.CUDA), (kusari.datasets, pytorch_names.DATASETS)]
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
        find(text)
        assert text, name


def find(text: str) -> None:
    """Ask for all that a text names."""
    for form in forms(text):
        found: Any = FORMS[form.partition(".")[0]]
        for part in form.split(".")[1:]:
            if part in ("gamma", "beta", "update_rule"):  # of normalizations, and of parameters once set up
                break
            found = getattr(found, part)


class Model(kusari.Chain):
    """Gives keywords of PyTorch's to functions that nothing is wrapped around."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Any) -> Any:
        return self.call(x)


class Loss(Model):
    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return self.call(x)


def log_softmax(x: Any) -> Any:
    """One of the user's."""
    return x


KEYWORDS: list[tuple[Callable[[], Any], str]] = [
    (lambda: optimizers.Adam(lr=1), r"Adam.__init__\(\) got an unexpected keyword argument 'lr', .* here: alpha$"),
    (lambda: optimizers.AMSGrad(weight_decay=1), r"optimizer_hooks.WeightDecay\(rate\)\)$"),
    (lambda: optimizers.AdamW(weight_decay=1), "here: weight_decay_rate=lr"),
    (lambda: optimizers.SGD(momentum=1), r"'momentum', .*here: kusari.optimizers.MomentumSGD\(lr, momentum\)$"),
    (lambda: L.Linear(2, 3, bias=False), "Linear.__init__.* 'bias', .*here: nobias=True for bias=False$"),
    (lambda: L.Convolution2D(2, 3, 3, padding=1), "here: pad$"),
    (lambda: L.Convolution2D(2, 3, 3, dilation=1), "here: dilate$"),
    (lambda: L.NStepLSTM(1, 2, 3, 0.0, bidirectional=True), "here: L.NStepBiLSTM$"),
    (lambda: L.BatchNormalization(3, momentum=0.1), "here: decay=1 - momentum$"),
    (lambda: type("Mine", (L.Linear,), {})(2, 3, bias=False), "Mine.__init__.*nobias=True"),
    (lambda: F.dropout(X, training=False), r"here: with kusari.using_config\(\"train\", False\)"),
    (lambda: F.relu(X, inplace=True), "here: leave it out"),
    (lambda: F.convolution_2d(X, X, dilation=1), "here: dilate$"),
    (lambda: F.max_pooling_2d(X, kernel_size=2), "here: ksize$"),
    (lambda: kusari.Sequential(Model(lambda x: F.softmax(x, dim=1)))(X), "softmax.. got .* 'dim', .*here: axis$"),
    (lambda: Model(lambda x: kusari.Variable(x).mean(dim=1))(X), "'dim', which is PyTorch's; here: axis$"),
    (lambda: OPTIMIZER.setup(MODEL).update(lambda x: F.sum(x, keepdim=True), X), "here: keepdims$"),
    (lambda: Model(lambda x: log_softmax(x, dim=1))(X), "'dim'$"),
    (lambda: L.Linear(2, 3, momentum=1), "'momentum'$"), (lambda: optimizers.SGD(nonsense=1), "'nonsense'$"),
    (lambda: Model(lambda x: F.sum(x, padding=1))(X), "'padding'$")]


@pytest.mark.parametrize("call, text", KEYWORDS, ids=[text for _, text in KEYWORDS])
def test_an_unknown_argument_says_what_to_write(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


def test_answers_on_arguments_hold_and_no_argument_is_refused() -> None:
    answered: set[tuple[str, str]] = set()
    for module in (F, L, optimizers):
        for name in dir(module):
            callee = getattr(module, name)
            if name[0] == "_" or not callable(callee) or not getattr(callee, "__module__", "").startswith("kusari."):
                continue
            kinds = [base.__name__ for base in getattr(callee, "__mro__", ())] or [name]
            known = inspect.signature(callee).parameters
            for kind, table in pytorch_keywords.KEYWORDS.items():
                for keyword, text in table.items() if kind in ("", *kinds) else ():
                    if pytorch_keywords.ending(tuple(kinds), keyword, callee):
                        find(text)
                        answered.add((kind, keyword))
                        assert keyword not in known
    assert answered >= {(kind, word) for kind, table in pytorch_keywords.KEYWORDS.items() if kind != "export"
                        for word in table}


def test_a_guess_of_pythons_is_replaced() -> None:
    for keyword, end in (("dim", "'dim', which is PyTorch's; here: axis"), ("ax", "'ax'. Did you mean 'axis'?")):
        error = TypeError(f"softmax() got an unexpected keyword argument {keyword!r}. Did you mean 'axis'?")
        pytorch_keywords.explain(error)
        assert str(error) == f"softmax() got an unexpected keyword argument {end}"


def test_names_of_children_and_parameters_are_free() -> None:
    link = kusari.Chain(inplace=L.Linear(2, 3), dilation=kusari.Link(input=(2,), bias=(3,)))
    assert [name for name, _ in link.namedparams()] == ["/dilation/bias", "/dilation/input", "/inplace/W", "/inplace/b"]


class Made:
    """Has a ``__new__`` with arguments, behind a link."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made.given = args, kwargs  # pyright: ignore[reportAttributeAccessIssue]
        return made


def test_links_are_made_as_before() -> None:
    class OfMade(L.Linear, Made):
        pass

    both = OfMade(3, out_size=2)
    assert both.given == ((3,), {"out_size": 2}) and both.W.shape == (2, 3)
    assert list(inspect.signature(kusari.Link).parameters) == ["params"]
    assert list(inspect.signature(optimizers.SGD).parameters) == ["lr"]


@pytest.mark.parametrize("kind", [Model, Loss])
def test_a_model_in_the_place_of_a_loss_function_is_told(kind: Any) -> None:
    model = kind(lambda x: x)
    model.add_param("W", (3,), initializer=0)
    optimizer, t = optimizers.SGD().setup(model), np.zeros(2, "i")
    batches = kusari.iterators.SerialIterator(kusari.datasets.TupleDataset(X, t), 2)
    for call in (lambda: optimizer.update(model, X, t), kusari.training.StandardUpdater(batches, optimizer).update):
        with pytest.raises(TypeError, match=r"but 3 were given: .* L.Classifier, .* loss_func=model.loss"):
            call()
    for wrong in (kusari.Variable(X), X):
        with pytest.raises(TypeError, match=r"is not callable: update\(\) takes a function that returns the loss"):
            optimizer.update(wrong, t)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^StandardUpdater takes an iterator, as iterators.SerialIterator\(dataset"):
        kusari.training.StandardUpdater([(X, t)], optimizer)
    with pytest.raises(TypeError, match=r"^len.* takes [^:]* given\)?$"):  # of the model's own
        optimizer.update(kind(lambda x: len(x, 1)), X)


class Strays(kusari.Chain):
    """Has links that are no children, and others that are children elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = L.Linear(2, 2)
        with self.init_scope():
            self.found = kusari.Sequential(L.Linear(2, 2))
            self.several = [L.Linear(2, 2), L.Linear(2, 2)]
        self.inner, self.same = self.found[0], [self.found]
        self.found.parent = self


def test_links_that_are_no_children_are_shown() -> None:
    lines = [f"not a child, neither trained nor saved: {text}" for text in (
        "self.lost (Linear), assigned outside init_scope()",
        "self.several, a plain list of links: use kusari.ChainList or kusari.Sequential")]
    model = Strays()
    assert str(model).split("\n")[4:] == [f"  {line}" for line in lines] + [")"]
    assert str(model.static.explain("model")).split("\n")[-2:] == lines
    whole = kusari.Sequential(model)
    assert str(whole.static.explain("model")).split("\n")[-2:] == [f"{line} of /0" for line in lines]


def test_a_link_that_is_not_initialized_is_named() -> None:
    class Forgot(kusari.Chain):
        def __init__(self) -> None:
            self.n = 1

    for model in (Forgot(), kusari.Sequential(Forgot())):
        with pytest.raises(RuntimeError, match=r"super\(\).__init__\(\) first in Forgot.__init__\(\)"):
            optimizers.SGD().setup(model)


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
