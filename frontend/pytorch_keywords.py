"""PyTorch's names of arguments: errors name ours, and calls that are right pay nothing.

Python itself refuses an unknown keyword, before a line of the callee has run. Our name is added where such errors
pass anyway: where links and optimizers are made, in decorators that look at errors, in links that are called and in
``optimizer.update``. A bare call of a plain function passes none of them.
"""
from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

__all__ = ["answer_keywords", "ending", "explain", "explained"]

P = ParamSpec("P")
R = TypeVar("R")

# By what is called, or "" for everything: PyTorch's keyword -> what to write. An answer that begins with the name of
# an argument holds for what has that argument.
KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "": {
        "affine": "use_gamma=False, use_beta=False for affine=False",
        "bias": "nobias=True for bias=False",
        "ceil_mode": "cover_all",
        "dilation": "dilate",
        "dim": "axis",
        "embedding_dim": "out_size",
        "hidden_size": "out_size",
        "ignore_index": "ignore_label",
        "in_features": "in_size",
        "inplace": "leave it out: functions make new Variables",
        "input": "x",
        "input_size": "in_size",
        "keepdim": "keepdims",
        "kernel_size": "ksize",
        "max": "x_max",
        "min": "x_min",
        "momentum": "decay=1 - momentum",
        "negative_slope": "slope",
        "normalized_shape": "size",
        "num_channels": "size",
        "num_embeddings": "in_size",
        "num_features": "size",
        "num_groups": "groups",
        "num_layers": "n_layers",
        "out_features": "out_size",
        "padding": "pad",
        "padding_idx": "ignore_label",
        "reduction": "reduce",
        "target": "t",
        "tensors": "xs",
        "weight": "class_weight",
    },
    "GradientMethod": {
        "params": "optimizer.setup(model)",
        "weight_decay": "optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(rate))",
    },
    "AdaDelta": {"lr": "leave it out: steps are those of lr=1"},
    "Adam": {"betas": "beta1, beta2", "lr": "alpha"},
    "AdamW": {"weight_decay": "weight_decay_rate=lr * weight_decay, as alpha is no factor of it"},
    "MomentumSGD": {"nesterov": "kusari.optimizers.NesterovAG(lr, momentum)"},
    "SGD": {
        "momentum": "kusari.optimizers.MomentumSGD(lr, momentum)",
        "nesterov": "kusari.optimizers.NesterovAG(lr, momentum)",
    },
    "NStepGRU": {"bidirectional": "L.NStepBiGRU"},
    "NStepLSTM": {"bidirectional": "L.NStepBiLSTM"},
    "dropout": {"p": "ratio", "training": 'with kusari.using_config("train", False): around it'},
    "export": {"dynamic_axes": "dynamic_shapes", "f": "filename"},
    "resize_images": {"size": "output_shape"},
}  # fmt: skip
_EVERY = frozenset().union(*KEYWORDS.values())
_IN_KWARGS = ("dilate", "groups")  # what functions and links with ``**kwargs`` take, where it is an answer
_ANY_NAMES = ("Chain", "Link")  # whose keywords are names of children and parameters
_REFUSED = re.compile(r"(?:(Variable)\.)?(\w+)\(\) got (?:an )?unexpected keyword argument(?:\(s\))? '(\w+)'"
                      r"(?:\. Did you mean '\w+'\?)?$")


def ending(names: tuple[str, ...], keyword: str, callee: Callable[..., Any]) -> str:
    """Return the end of a message on an unknown keyword: our form of a name of PyTorch's; else empty.

    Args:
        names: What is called, by its name and those of its base classes.
        keyword: The keyword.
        callee: The function that has the arguments.

    >>> ending(("Adam", "GradientMethod"), "lr", kusari.optimizers.Adam.__init__)
    ", which is PyTorch's; here: alpha"
    """
    for name in (*names, ""):
        text = KEYWORDS.get(name, {}).get(keyword)
        if text is None:
            continue
        known = inspect.signature(callee).parameters
        argument = re.split("[=,]", text)[0]
        takes_more = any(each.kind is each.VAR_KEYWORD for each in known.values())
        fits = not argument.isidentifier() or argument in known or takes_more and argument in _IN_KWARGS
        return f", which is PyTorch's; here: {text}" if fits and keyword not in known else ""
    return ""


class _New:
    """``__new__`` of a class: says what to write for keywords that ``__init__`` does not know."""

    def __init__(self, owner: type) -> None:
        self._owner = owner

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(vars(self._owner)["__init__"])

    def __call__(self, cls: type, *args: Any, **kwargs: Any) -> Any:
        behind: Any = super(self._owner, cls).__new__
        made = behind(cls) if behind is object.__new__ else behind(cls, *args, **kwargs)
        if not _EVERY.isdisjoint(kwargs):
            mro = cls.__mro__
            first = next(i for i, base in enumerate(mro) if "__init__" in vars(base))
            if mro[first].__module__.startswith("kusari.") and mro[first].__name__ not in _ANY_NAMES:
                names = tuple([base.__name__ for base in mro])
                for keyword in kwargs:
                    if end := ending(names, keyword, vars(mro[first])["__init__"]):
                        raise TypeError(
                            f"{cls.__name__}.__init__() got an unexpected keyword argument {keyword!r}{end}")
        return made


def answer_keywords(owner: Any) -> None:
    """Let a class and those derived from it, in Kusari, say what to write for PyTorch's names of arguments."""
    owner.__new__ = _New(owner)


_NOT_USERS = "builtins", "kusari", "chainer", "numpy"


def explain(error: TypeError) -> None:
    """Add what to write to the error of a function or method of ours that was given a keyword of PyTorch's."""
    found = _REFUSED.match(str(error)) if type(error) is TypeError else None
    if found is None:
        return
    owner, name, keyword = found.groups()
    source = vars(sys.modules["kusari.functions"]) if owner is None else vars(sys.modules["kusari.variable"].Variable)
    callee, frame = source.get(name), error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    around = {} if frame is None else frame.tb_frame.f_globals
    seen = around.get(name, callee)
    users = any(isinstance(x, ModuleType) and callable(vars(x).get(name)) and not x.__name__.startswith(_NOT_USERS)
                for x in around.values())
    if callable(callee) and not users and str(getattr(seen, "__module__", "")).startswith("kusari."):
        if end := ending((name,), keyword, callee):
            error.args = str(error)[:found.end(3) + 1] + end,  # without Python's guess


def explained(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that is not called often: for PyTorch's names of its arguments it says what to write."""
    @functools.wraps(fn)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        for keyword in kwargs:
            if end := ending((fn.__name__,), keyword, fn):
                raise TypeError(f"{fn.__name__}() got an unexpected keyword argument {keyword!r}{end}")
        return fn(*args, **kwargs)
    return function
