"""The test of all guards of a schedule, as one generated function."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...epochs import Attributes, Exposed, Modules, Version
from ...link.namespace import entries_of, is_exposed
from ..source import Source
from .guard import Guard

_VERSIONS: dict[str, type[Version]] = {"attributes": Attributes, "modules": Modules}


@dataclass(frozen=True)
class Checks:
    """The guards of a schedule; ``test`` says whether all hold, None where there are none."""

    guards: tuple[Guard, ...] = ()
    test: Callable[[], bool] | None = None

    def changes(self) -> str:
        """Return a text that names the guards that do not hold now."""
        return ", ".join([g.change() for g in self.guards if not g.holds()]) or "something"

    def condition(self, source: Source) -> str:
        """Return the test of the guards that no version stands for; empty where there are none."""
        return " and ".join([g.test(source) for g in self.guards if g.versioned is None])

    def write(self, source: Source, otherwise: str) -> None:
        """Append the line ``otherwise`` wherever a guard does not hold; where a test raises, it does not hold either.

        Guards that a version stands for are left to ``test``, once the attributes of any link have changed.
        """
        if self.test is None:
            return
        if condition := self.condition(source):
            source.line(f"if not ({condition}): {otherwise}")
        with _changed(source, Attributes):
            source.line(f"if not {source.name(self.test, 'check')}(): {otherwise}")


@contextmanager
def _changed(source: Source, holder: type[Version]) -> Generator[None]:
    """Append a block that runs where the version of ``holder`` is not the one of the last call that went through it."""
    seen, version = source.kept("seen"), source.fresh("version")
    source.line(f"{version} = {source.name(holder, holder.__name__)}.version")
    with source.block(f"if {version} is not {seen}"):
        yield
        source.line(f"{seen} = {version}")


def _still_there(links: Sequence[Any]) -> Callable[[], bool]:
    """Return the test that links have the namespaces they have now; of exposed ones no version stays what it is."""
    found = [(weakref.ref(link), entries_of(link)) for link in links]

    def test() -> bool:
        for reference, entries in found:
            link = reference()
            if link is not None and is_exposed(link):
                if entries_of(link) is not entries:
                    return False
                Attributes.version = object()
        return True
    return test


def checks_of(guards: Sequence[Guard], links: Sequence[Any] = ()) -> Checks:
    """Return the guards with their test; ``links`` are those whose attributes are among them."""
    if not guards:
        return Checks()
    checks = Checks(tuple(guards))
    source = Source("guards", "check()")
    with source.block("try"):
        for version, holder in _VERSIONS.items():
            condition = " and ".join([g.test(source) for g in guards if g.versioned == version])
            if condition:
                with _changed(source, holder):
                    source.line(f"if not ({condition}): return False")
                    if holder is Attributes and links:
                        there = source.name(_still_there(links), "still_there")
                        source.line(f"if {source.name(Exposed, 'Exposed')}.ever and not {there}(): return False")
        source.line(f"return {checks.condition(source) or True}")
    source.otherwise("return False")
    return Checks(checks.guards, source.function())
