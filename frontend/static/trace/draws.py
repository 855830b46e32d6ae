"""Random numbers that the user's code draws itself in a traced call: replays draw them at the same place, in order.

Draws from NumPy's global generator are the primitive that functions draw with. Python draws from other generators that
were there before the call: those of the module ``random``, of ``random.Random`` and of ``numpy.random``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import PRIMITIVES

from ..._random_state import state_of
from .numpy_nodes import as_number, by_python

if TYPE_CHECKING:
    from .recorder import Tape

_BY_SHAPE = {"rand": "random_sample", "randn": "standard_normal"}
_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("random_sample", "random", "standard_normal", "standard_exponential", "standard_cauchy"), ()),
    **dict.fromkeys(("normal", "laplace", "gumbel", "logistic"), ("loc", "scale")), "uniform": ("low", "high"),
    **dict.fromkeys(("randint", "random_integers"), ("low", "high")),
    "binomial": ("n", "p"), "exponential": ("scale",), "rayleigh": ("scale",),
    "poisson": ("lam",), "geometric": ("p",), "beta": ("a", "b"), "gamma": ("shape", "scale"),
    "lognormal": ("mean", "sigma"), "standard_gamma": ("shape",), "chisquare": ("df",), "choice": ("a",)}
RANDOM = PRIMITIVES["random"]


def drawn(tape: Tape, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Record that replays draw as ``numpy.random.name`` has drawn ``result``; returns it as a value of the trace.

    None if they cannot.
    """
    if type(result) not in (np.ndarray, float, int) or tape.fault is not None:
        return None
    if name == "permutation":
        if len(args) != 1 or kwargs or type(args[0]) is not int:
            return None
        dist, given = name, args
    elif name in _BY_SHAPE:
        dist, given = _BY_SHAPE[name], ()
    else:
        names = _PARAMETERS.get(name)
        if names is None or len(args) > len(names) + 1 or not kwargs.keys() <= {*names, "size"}:
            return None
        dist, given = name, args[:len(names)]
        for left in names[len(given):]:
            if left not in kwargs:
                break
            given += kwargs[left],
        if len(given) != len(args[:len(names)]) + len(kwargs.keys() & {*names}):
            return None
    if not all(type(x) in (int, float) for x in given):
        return None
    array = np.asarray(result)
    tape.append(RANDOM, (), (array,), {
        "dist": dist, "args": given, "shape": array.shape, "dtype": array.dtype.name})
    tape.expect_draws()
    tape.draws = True
    if type(result) is not np.ndarray:
        return as_number(tape, f"numpy.random.{name}", result, array)
    tape.written.made(result)
    return result


# -- other generators --------------------------------------------------------------------------------------------------


def drawn_by_python(tape: Tape, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Record that replays draw as ``f``, a method of a generator, has drawn ``result``; returns it as a value.

    None if they cannot.
    """
    generator = f.__self__
    if state_of(generator) is None:
        return None
    return by_python(tape, f"{type(generator).__name__}.{f.__name__}", f, args, kwargs, result, generator=generator)
