"""Which link each function was applied in: what nodes of an exported model are told of where they come from."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..function_hook import FunctionHook
from ..link import Link
from ..link_hook import LinkHook

_MARK = "_origin"


def origin_of(function: Any) -> str:
    """Return the path of the link that a recorded function was applied in; empty where there was none."""
    return getattr(function, _MARK, "")


class _Links(LinkHook):
    """Keeps the paths of the links that are being called, the innermost last."""

    name = "kusari.onnx links"

    def __init__(self, paths: dict[int, str]) -> None:
        self.paths = paths
        self.stack: list[tuple[Any, str]] = []

    def forward_preprocess(self, args: Any) -> None:
        """Enter a link; one that is not of the model counts as part of where it is called."""
        self.stack.append((args.link, self.paths.get(id(args.link), self.current)))

    def forward_postprocess(self, args: Any) -> None:
        """Leave it, and what has not been left because of an exception."""
        while self.stack and self.stack.pop()[0] is not args.link:
            pass

    @property
    def current(self) -> str:
        """The path of the innermost link."""
        return self.stack[-1][1] if self.stack else ""


class _Functions(FunctionHook):
    """Marks functions, those of gradients with the link of the function that the gradient is of."""

    name = "kusari.onnx functions"

    def __init__(self, links: _Links) -> None:
        self.links = links
        self.of_gradient: str | None = None

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """Mark a function, unless it is a copy of one that is marked."""
        if not hasattr(function, _MARK):
            setattr(function, _MARK, self.links.current if self.of_gradient is None else self.of_gradient)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Note whose gradient is computed."""
        self.of_gradient = origin_of(function)

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Forget it."""
        self.of_gradient = None


@contextmanager
def origins(roots: list[Link]) -> Iterator[None]:
    """Context in which functions are marked with the links, below ``roots``, that they are applied in."""
    paths: dict[int, str] = {}
    for root in roots:
        for path, link in root.namedlinks():
            paths.setdefault(id(link), path)
    links = _Links(paths)
    with links, _Functions(links):
        yield
