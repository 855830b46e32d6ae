"""What a row is, and what rows are made of.

A row names a repository and builds a ``Case``: a model, its loss as a function of the model and the arguments of a
call, and those arguments as a function of a random state. Several losses are those of a loop with several optimizers:
the model is a ChainList then, and the optimizer of loss i updates child i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Loss = Callable[..., Any]
Arguments = Callable[[np.random.RandomState], tuple[Any, ...]]


def drop_last(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments without the last example, the first axis being that of examples."""
    from chainer import Variable
    return tuple(Variable(x.array[:-1]) if isinstance(x, Variable) else x[:-1] for x in args)


@dataclass(frozen=True)
class Case:
    """A model, its loss or losses, the arguments of a call, and those of a smaller batch where it has any."""

    model: Any
    loss: Loss | tuple[Loss, ...]
    arguments: Arguments
    fewer: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = drop_last


@dataclass(frozen=True)
class Row:
    """A model of a repository; ``folder`` of it goes on the path."""

    repository: str
    what: str
    build: Callable[[], Case]
    folder: str = ""
    needs: tuple[str, ...] = ()  # other repositories


ROWS: dict[str, Row] = {}


def row(repository: str, what: str, folder: str = "",
        needs: tuple[str, ...] = ()) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def add(build: Callable[[], Case]) -> Callable[[], Case]:
        ROWS[build.__name__] = Row(repository, what, build, folder, needs)
        return build
    return add


# -- data ------------------------------------------------------------------------------------------------------------


def images(*shape: int) -> Arguments:
    from chainer import Variable
    return lambda r: (Variable(r.uniform(-1, 1, shape).astype("f")),)


def pictures_and_labels(classes: int, *shape: int) -> Arguments:
    return lambda r: (r.uniform(0, 1, shape).astype("f"), r.randint(0, classes, shape[:1]).astype("i"))


def words(r: np.random.RandomState, n: int, *shape: int) -> Any:
    return r.randint(2, n, shape).astype("i")


def mean_square(y: Any) -> Any:
    import chainer.functions as F
    parts = y if isinstance(y, (tuple, list)) else (y,)
    return sum(F.mean(F.square(x)) for x in parts)


def of_output(model: Any, *args: Any) -> Any:
    return mean_square(model(*args))


def itself(model: Any, *args: Any) -> Any:
    return model(*args)
